"""Write a tool once; call it from any model, over any wire.

The public names. Each is loaded on first use, so `import toolwire` costs nothing.
"""

from __future__ import annotations

from ._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import text, wire
    from .bridge.detection import detect
    from .bridge.document_translation import (
        translate,
        translate_error,
        translate_request,
        translate_response,
        translate_tools,
    )
    from .bridge.emulation import emulate
    from .bridge.emulation_settings import EmulationSettings
    from .bridge.preparation import prepare
    from .bridge.shortcuts import calls, list_tools, results
    from .bridge.stream_translation import translate_stream
    from .ir.errors import EncodeError, ProtocolError, ToolwireError, TruncatedStream
    from .ir.folding import fold, unfold
    from .ir.losses import Loss, LossError
    from .ir.parts import Media, Reasoning, Text, ToolCall, ToolResult
    from .ir.request import Message, Request
    from .ir.response import Response, UpstreamError
    from .ir.tools import Tool, ToolChoice
    from .net.agent import Agent
    from .net.answers import Answer
    from .net.client import ModelClient
    from .net.runner import Runner
    from .net.stores import open_store
    from .run.context import CallContext
    from .run.failures import ToolError, Transient
    from .run.function_tool import tool
    from .run.output_type import StructuredOutput
    from .run.policy import Policy
    from .run.run_state import Budget
    from .run.toolbox import Toolbox
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "bridge.document_translation": (
                "translate",
                "translate_error",
                "translate_request",
                "translate_response",
                "translate_tools",
            ),
            "bridge.stream_translation": ("translate_stream",),
            "bridge.detection": ("detect",),
            "bridge.shortcuts": ("calls", "list_tools", "results"),
            "bridge.preparation": ("prepare",),
            "bridge.emulation": ("emulate",),
            "bridge.emulation_settings": ("EmulationSettings",),
            "ir.tools": ("Tool", "ToolChoice"),
            "ir.parts": ("Media", "Reasoning", "Text", "ToolCall", "ToolResult"),
            "ir.request": ("Message", "Request"),
            "ir.response": ("Response", "UpstreamError"),
            "ir.losses": ("Loss", "LossError"),
            "ir.folding": ("fold", "unfold"),
            "run.function_tool": ("tool",),
            "ir.errors": (
                "EncodeError",
                "ProtocolError",
                "ToolwireError",
                "Transient",
                "TruncatedStream",
            ),
            "net.agent": ("Agent",),
            "net.answers": ("Answer",),
            "run.context": ("CallContext",),
            "run.run_state": ("Budget",),
            "net.runner": ("Runner",),
            "net.client": ("ModelClient",),
            "net.stores": ("open_store",),
            "run.toolbox": ("Toolbox",),
            "run.policy": ("Policy",),
            "run.failures": ("ToolError", "Transient"),
            "run.output_type": ("StructuredOutput",),
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
