"""What a wire supplies. A wire is pure shape: it reads and writes one provider's JSON and fits nothing.

    decode_*    bytes or a parsed document in, canonical values out; ProtocolError with a pointer for what is not that wire
    encode_*    canonical values in, a document and the losses out; what has no place on the wire is a loss, never silence
    stream_*    the same, piece by piece

The bridge reads `limits` and `capabilities` to fit a request before it is encoded, so that nothing outside a wire ever
asks which wire it is talking to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from ..ir.events import Event
from ..ir.losses import Losses
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.response import Fault, Response
from ..ir.tools import Tool
from ..ir.value import Value
from .signatures import Signature

__all__ = ["Capabilities", "Encoded", "EncodedFault", "Kind", "Limits", "StreamDecoder", "StreamEncoder", "Wire"]

Kind = Literal["request", "response", "stream", "tools", "error"]


class Limits(Value, frozen=True):
    """Numbers and patterns that the provider enforces. None: no limit known."""

    name: str  # a regular expression for tool names; letters, digits and _ must be among what it admits
    name_length: int
    id: str  # a regular expression for call ids
    id_length: int
    tools: int | None = None
    stops: int | None = None  # stop sequences
    max_tokens: int | None = None  # what to ask for where the wire requires a number and the request has none
    min_budget: int = 0  # the least number of tokens to think with; a wire that has one also wants less than max_tokens
    signatures: tuple[Signature, ...] = ()  # how its errors tell which limit was broken


class Capabilities(Value, frozen=True):
    """What the wire has a native word for, and what its provider insists on."""

    choices: frozenset[str]  # tool choice modes
    media: frozenset[str]  # kinds of media in a user message
    assistant_media: frozenset[str] = frozenset()  # kinds of media in what the model said
    result_media: frozenset[str] = frozenset()  # kinds of media in a tool result
    named_results: bool = False  # a result names its tool
    result_error: bool = False  # a flag that says that the tool failed
    result_structured: bool = False  # a JSON value as a result
    refusals: bool = False  # the words of a refusal have a place of their own
    freeform: bool = False  # tools whose input is plain text
    namespaces: bool = False
    strict: bool = False  # strict per tool
    parallel: bool = False  # a switch for parallel calls
    counts_on_request: bool = False  # a stream tells its usage only to who asks for it
    counts_tool_input: bool = False  # tokens that the provider's own tools put into the prompt are counted apart
    examples: bool = False  # example inputs in a declaration
    cache: frozenset[str] = frozenset()  # what a prompt-cache mark can sit on: part, tool, call, result
    cache_ttls: tuple[str, ...] = ()  # times to live, ascending
    object_arguments: bool = False  # arguments travel as an object, not as text
    lone_reasoning: bool = True  # reasoning with nothing behind it in its turn
    ordered: bool = True  # text and calls keep their order in a turn
    developer: bool = True  # a developer role beside the system role
    system_anywhere: bool = True  # system messages in the middle of a conversation
    system_only: bool = False  # a request of system messages alone
    declared_history: bool = False  # calls in the history need a declaration
    unique_names: bool = False  # two tools of one name are refused
    one_message_a_turn: bool = False  # messages of one role in a row are one message
    efforts: tuple[str, ...] = ()  # words for how much to think, from little to much
    budgets: bool = False  # a number of tokens to think with
    effort_and_budget: bool = False  # both in one request
    adaptive: bool = False  # thinking on, as much as the model likes
    forced_with_budget: bool = True  # a forced call together with a thinking budget
    unsigned_call: str | None = None  # what stands in for the signature of a call that another provider made


class Encoded(NamedTuple):
    body: Object
    losses: Losses


class EncodedFault(NamedTuple):
    status: int
    body: Object
    headers: dict[str, str]


class StreamDecoder(Protocol):
    losses: Losses

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]:
        """The end of the input: the last events, or TruncatedStream."""
        ...


class StreamEncoder(Protocol):
    losses: Losses

    def feed(self, event: Event) -> bytes: ...


class Wire(Protocol):
    """One provider's protocol, both ways."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str | None: ...
    @property
    def provider(self) -> str: ...
    @property
    def dialect(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def conversation(self) -> str:
        """The field of a request that holds the messages."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What a request over HTTP has to carry besides its body and a key."""
        ...

    def path(self, model: str, *, stream: bool) -> str:
        """Where a request is posted, behind the base URL."""
        ...

    @property
    def terminal(self) -> bytes:
        """A regular expression for the mark after which a stream is whole."""
        ...

    @property
    def signs(self) -> Mapping[Kind, Callable[[JSON], int]]:
        """For each kind of document, how much a JSON document looks like it (0: not at all)."""
        ...

    def decode_request(self, body: Object) -> Request: ...
    def encode_request(self, request: Request) -> Encoded: ...
    def decode_response(self, body: Object) -> Response: ...
    def encode_response(self, response: Response) -> Encoded: ...
    def decode_error(self, status: int | None, body: JSON, headers: Mapping[str, str] | None = None) -> Fault:
        """`status` None: whatever the body says."""
        ...

    def encode_error(self, fault: Fault) -> EncodedFault: ...
    def stream_decoder(self) -> StreamDecoder: ...
    def stream_encoder(self, request: Request | None = None) -> StreamEncoder: ...
    def decode_tools(self, declarations: list[JSON]) -> tuple[Tool, ...]: ...
    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]: ...
    def list_tools(self, body: JSON) -> tuple[Tool, ...]:
        """The tools of a discovery reply; ConfigError where the wire has none."""
        ...

    def locator(self, value: Request | Response) -> Callable[[str], str]:
        """A function from a canonical path in `value`, which was read from this wire, to the pointer into the document."""
        ...
