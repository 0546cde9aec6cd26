"""Write a tool once; call it from any model, over any wire.

The public names. Each is loaded on first use, so `import toolwire` costs nothing.
"""

from __future__ import annotations

from ._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import text, wire
    from .bridge.emulation.requests import emulate
    from .bridge.emulation.settings import EmulationSettings
    from .bridge.translation.detection import detect
    from .bridge.translation.documents import (
        translate,
        translate_error,
        translate_request,
        translate_response,
        translate_stream,
    )
    from .bridge.translation.preparation import prepare
    from .bridge.translation.shortcuts import calls, list_tools, results
    from .bridge.translation.tool_lists import translate_tools
    from .ir.errors import EncodeError, ProtocolError, ToolwireError, TruncatedStream
    from .ir.folding import fold, unfold
    from .ir.losses import Loss, LossError
    from .ir.parts import Media, Reasoning, Text, ToolCall, ToolResult
    from .ir.request import Message, Request
    from .ir.response import Response, UpstreamError
    from .ir.tools import Tool, ToolChoice
    from .net.agent.agent import Agent
    from .net.agent.answers import Answer
    from .net.model.client import ModelClient
    from .net.stores import open_store
    from .net.tools.runner import Runner
    from .run.calls.context import CallContext, ToolError, Transient
    from .run.calls.policy import Policy
    from .run.session.output import StructuredOutput
    from .run.session.state import Budget
    from .run.tools.function_tool import tool
    from .run.tools.toolbox import Toolbox
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "bridge.translation.documents": (
                "translate",
                "translate_error",
                "translate_request",
                "translate_response",
                "translate_stream",
            ),
            "bridge.translation.tool_lists": ("translate_tools",),
            "bridge.translation.detection": ("detect",),
            "bridge.translation.shortcuts": ("calls", "list_tools", "results"),
            "bridge.translation.preparation": ("prepare",),
            "bridge.emulation.requests": ("emulate",),
            "bridge.emulation.settings": ("EmulationSettings",),
            "ir.tools": ("Tool", "ToolChoice"),
            "ir.parts": ("Media", "Reasoning", "Text", "ToolCall", "ToolResult"),
            "ir.request": ("Message", "Request"),
            "ir.response": ("Response", "UpstreamError"),
            "ir.losses": ("Loss", "LossError"),
            "ir.folding": ("fold", "unfold"),
            "run.tools.function_tool": ("tool",),
            "ir.errors": ("EncodeError", "ProtocolError", "ToolwireError", "Transient", "TruncatedStream"),
            "net.agent.agent": ("Agent",),
            "net.agent.answers": ("Answer",),
            "run.calls.context": ("CallContext", "ToolError", "Transient"),
            "run.session.state": ("Budget",),
            "net.tools.runner": ("Runner",),
            "net.model.client": ("ModelClient",),
            "net.stores": ("open_store",),
            "run.tools.toolbox": ("Toolbox",),
            "run.calls.policy": ("Policy",),
            "run.session.output": ("StructuredOutput",),
        },
        packages=(
            "asgi",
            "audit",
            "bridge",
            "gateway",
            "ir",
            "local",
            "mcp",
            "net",
            "openapi",
            "run",
            "schema",
            "stream",
            "testing",
            "text",
            "wire",
        ),
        own=("text", "wire"),
    )

__all__ = [
    "Agent",
    "Answer",
    "Budget",
    "CallContext",
    "EmulationSettings",
    "EncodeError",
    "Loss",
    "LossError",
    "Media",
    "Message",
    "ModelClient",
    "Policy",
    "ProtocolError",
    "Reasoning",
    "Request",
    "Response",
    "Runner",
    "StructuredOutput",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "ToolwireError",
    "Transient",
    "TruncatedStream",
    "UpstreamError",
    "calls",
    "detect",
    "emulate",
    "fold",
    "list_tools",
    "open_store",
    "prepare",
    "results",
    "text",
    "tool",
    "translate",
    "translate_error",
    "translate_request",
    "translate_response",
    "translate_stream",
    "translate_tools",
    "unfold",
    "wire",
]
