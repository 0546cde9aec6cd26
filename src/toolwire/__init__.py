"""Write a tool once; call it from any model, over any wire.

The public names. Each is loaded on first use, so `import toolwire` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, without the import

__version__ = "0.1.0"

_HOMES = {
    # translate documents and streams from wire to wire
    "translate": "bridge.translate",
    "translate_stream": "bridge.translate_stream",
    "detect": "bridge.detect",
    "calls": "bridge.shortcuts",
    "results": "bridge.shortcuts",
    "list_tools": "bridge.shortcuts",
    "prepare": "bridge.prepare",
    "emulate": "bridge.emulate",
    # the canonical model
    "Tool": "ir.tools",
    "ToolChoice": "ir.tools",
    "ToolCall": "ir.parts",
    "ToolResult": "ir.parts",
    "Text": "ir.parts",
    "Media": "ir.parts",
    "Reasoning": "ir.parts",
    "Message": "ir.request",
    "Request": "ir.request",
    "Response": "ir.response",
    "Loss": "ir.losses",
    "fold": "ir.fold",
    "unfold": "ir.fold",
    # tools from functions
    "tool": "schema.infer",
    # errors
    "ToolwireError": "ir.errors",
    "ProtocolError": "ir.errors",
    "TruncatedStream": "ir.errors",
    "EncodeError": "ir.errors",
    "LossError": "ir.errors",
    "UpstreamError": "ir.errors",
}
_RULE_MODULES = ("ir", "stream", "schema", "wire", "text", "bridge", "testing")

__all__ = [
    "EncodeError",
    "Loss",
    "LossError",
    "Media",
    "Message",
    "ProtocolError",
    "Reasoning",
    "Request",
    "Response",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "ToolwireError",
    "TruncatedStream",
    "UpstreamError",
    "calls",
    "detect",
    "emulate",
    "fold",
    "list_tools",
    "prepare",
    "results",
    "text",
    "tool",
    "translate",
    "translate_stream",
    "unfold",
    "wire",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is not None:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    elif name in _RULE_MODULES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_RULE_MODULES})


if TYPE_CHECKING:
    from . import text as text
    from . import wire as wire
    from .bridge.detection import detect as detect
    from .bridge.document_translation import translate as translate
    from .bridge.emulation import emulate as emulate
    from .bridge.preparation import prepare as prepare
    from .bridge.shortcuts import calls as calls
    from .bridge.shortcuts import list_tools as list_tools
    from .bridge.shortcuts import results as results
    from .bridge.stream_translation import translate_stream as translate_stream
    from .ir.errors import EncodeError as EncodeError
    from .ir.errors import LossError as LossError
    from .ir.errors import ProtocolError as ProtocolError
    from .ir.errors import ToolwireError as ToolwireError
    from .ir.errors import TruncatedStream as TruncatedStream
    from .ir.errors import UpstreamError as UpstreamError
    from .ir.fold import fold as fold
    from .ir.fold import unfold as unfold
    from .ir.losses import Loss as Loss
    from .ir.parts import Media as Media
    from .ir.parts import Reasoning as Reasoning
    from .ir.parts import Text as Text
    from .ir.parts import ToolCall as ToolCall
    from .ir.parts import ToolResult as ToolResult
    from .ir.request import Message as Message
    from .ir.request import Request as Request
    from .ir.response import Response as Response
    from .ir.tools import Tool as Tool
    from .ir.tools import ToolChoice as ToolChoice
    from .schema.infer import tool as tool
