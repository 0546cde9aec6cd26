"""Write a tool once; call it from any model, over any wire.

The public names. Each is loaded on first use, so `import toolwire` costs nothing.
"""

from __future__ import annotations

from ._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import text as text
    from . import wire as wire
    from .bridge.emulation.requests import emulate as emulate
    from .bridge.emulation.settings import EmulationSettings as EmulationSettings
    from .bridge.translation.detection import detect as detect
    from .bridge.translation.documents import translate as translate
    from .bridge.translation.documents import translate_error as translate_error
    from .bridge.translation.documents import translate_request as translate_request
    from .bridge.translation.documents import translate_response as translate_response
    from .bridge.translation.documents import translate_stream as translate_stream
    from .bridge.translation.preparation import prepare as prepare
    from .bridge.translation.shortcuts import calls as calls
    from .bridge.translation.shortcuts import list_tools as list_tools
    from .bridge.translation.shortcuts import results as results
    from .bridge.translation.tool_lists import translate_tools as translate_tools
    from .ir.errors import EncodeError as EncodeError
    from .ir.errors import ProtocolError as ProtocolError
    from .ir.errors import ToolwireError as ToolwireError
    from .ir.errors import TruncatedStream as TruncatedStream
    from .ir.folding import fold as fold
    from .ir.folding import unfold as unfold
    from .ir.losses import Loss as Loss
    from .ir.losses import LossError as LossError
    from .ir.parts import Media as Media
    from .ir.parts import Reasoning as Reasoning
    from .ir.parts import Text as Text
    from .ir.parts import ToolCall as ToolCall
    from .ir.parts import ToolResult as ToolResult
    from .ir.request import Message as Message
    from .ir.request import Request as Request
    from .ir.response import Response as Response
    from .ir.response import UpstreamError as UpstreamError
    from .ir.tools import Tool as Tool
    from .ir.tools import ToolChoice as ToolChoice
    from .net.agent.agent import Agent as Agent
    from .net.agent.answers import Answer as Answer
    from .net.model.client import ModelClient as ModelClient
    from .net.stores import open_store as open_store
    from .net.tools.runner import Runner as Runner
    from .run.calls.context import CallContext as CallContext
    from .run.calls.context import ToolError as ToolError
    from .run.calls.context import Transient as Transient
    from .run.calls.policy import Policy as Policy
    from .run.session.output import StructuredOutput as StructuredOutput
    from .run.session.state import Budget as Budget
    from .run.tools.function_tool import tool as tool
    from .run.tools.toolbox import Toolbox as Toolbox
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "bridge.emulation.requests": "emulate",
            "bridge.emulation.settings": "EmulationSettings",
            "bridge.translation.detection": "detect",
            "bridge.translation.documents": (
                "translate translate_error translate_request translate_response translate_stream"
            ),
            "bridge.translation.preparation": "prepare",
            "bridge.translation.shortcuts": "calls list_tools results",
            "bridge.translation.tool_lists": "translate_tools",
            "ir.errors": "EncodeError ProtocolError ToolwireError TruncatedStream",
            "ir.folding": "fold unfold",
            "ir.losses": "Loss LossError",
            "ir.parts": "Media Reasoning Text ToolCall ToolResult",
            "ir.request": "Message Request",
            "ir.response": "Response UpstreamError",
            "ir.tools": "Tool ToolChoice",
            "net.agent.agent": "Agent",
            "net.agent.answers": "Answer",
            "net.model.client": "ModelClient",
            "net.stores": "open_store",
            "net.tools.runner": "Runner",
            "run.calls.context": "CallContext ToolError Transient",
            "run.calls.policy": "Policy",
            "run.session.output": "StructuredOutput",
            "run.session.state": "Budget",
            "run.tools.function_tool": "tool",
            "run.tools.toolbox": "Toolbox",
        },
        packages="asgi audit bridge gateway ir local mcp net openapi run schema stream testing text wire",
        own="text wire",
    )
