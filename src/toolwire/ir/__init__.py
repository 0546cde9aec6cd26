"""The canonical model: one tool, call, result, choice, request, response and stream for every wire.

Imports no other part of toolwire. All other packages are written in terms of these values.
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .errors import BrokenJSON as BrokenJSON
    from .errors import ConfigError as ConfigError
    from .errors import EncodeError as EncodeError
    from .errors import InvalidArguments as InvalidArguments
    from .errors import MissingExtra as MissingExtra
    from .errors import ProtocolError as ProtocolError
    from .errors import SchemaError as SchemaError
    from .errors import StoreError as StoreError
    from .errors import ToolwireError as ToolwireError
    from .errors import TruncatedStream as TruncatedStream
    from .events import ArgumentEnd as ArgumentEnd
    from .events import CallDelta as CallDelta
    from .events import CallEnd as CallEnd
    from .events import CallStart as CallStart
    from .events import Event as Event
    from .events import PartStart as PartStart
    from .events import Ping as Ping
    from .events import ReasoningDelta as ReasoningDelta
    from .events import ReasoningEnd as ReasoningEnd
    from .events import ReasoningStart as ReasoningStart
    from .events import ResponseEnd as ResponseEnd
    from .events import ResponseStart as ResponseStart
    from .events import StreamFault as StreamFault
    from .events import TextDelta as TextDelta
    from .events import TextEnd as TextEnd
    from .events import TextStart as TextStart
    from .events import UsageUpdate as UsageUpdate
    from .events import WholePart as WholePart
    from .folding import Folder as Folder
    from .folding import fold as fold
    from .folding import unfold as unfold
    from .losses import Loss as Loss
    from .losses import LossError as LossError
    from .losses import Losses as Losses
    from .losses import require_lossless as require_lossless
    from .notebook import ValueTable as ValueTable
    from .parts import Artefact as Artefact
    from .parts import Extra as Extra
    from .parts import Media as Media
    from .parts import Opaque as Opaque
    from .parts import Part as Part
    from .parts import Reasoning as Reasoning
    from .parts import Refusal as Refusal
    from .parts import Text as Text
    from .parts import ToolCall as ToolCall
    from .parts import ToolResult as ToolResult
    from .pointer import JSON as JSON
    from .pointer import Object as Object
    from .request import Message as Message
    from .request import OutputFormat as OutputFormat
    from .request import Params as Params
    from .request import ReasoningConfig as ReasoningConfig
    from .request import Request as Request
    from .request import found_in_history as found_in_history
    from .response import Alternative as Alternative
    from .response import Breach as Breach
    from .response import Fault as Fault
    from .response import Response as Response
    from .response import Stop as Stop
    from .response import UpstreamError as UpstreamError
    from .response import Usage as Usage
    from .tools import SEARCH_TOOLS as SEARCH_TOOLS
    from .tools import Grammar as Grammar
    from .tools import Tool as Tool
    from .tools import ToolChoice as ToolChoice
    from .tools import search_tool as search_tool
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "errors": (
                "BrokenJSON ConfigError EncodeError InvalidArguments MissingExtra ProtocolError SchemaError "
                "StoreError ToolwireError TruncatedStream"
            ),
            "events": (
                "ArgumentEnd CallDelta CallEnd CallStart Event PartStart Ping ReasoningDelta ReasoningEnd "
                "ReasoningStart ResponseEnd ResponseStart StreamFault TextDelta TextEnd TextStart UsageUpdate "
                "WholePart"
            ),
            "folding": "Folder fold unfold",
            "losses": "Loss LossError Losses require_lossless",
            "notebook": "ValueTable",
            "parts": "Artefact Extra Media Opaque Part Reasoning Refusal Text ToolCall ToolResult",
            "pointer": "JSON Object",
            "request": "Message OutputFormat Params ReasoningConfig Request found_in_history",
            "response": "Alternative Breach Fault Response Stop UpstreamError Usage",
            "tools": "SEARCH_TOOLS Grammar Tool ToolChoice search_tool",
        },
    )
