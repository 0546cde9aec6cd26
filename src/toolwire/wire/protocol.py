"""The interface of a wire. A wire is pure shape: it reads and writes one provider's JSON and adapts nothing.

    decode_*    bytes or a parsed document in, canonical values out; ProtocolError with a pointer for invalid input
    encode_*    canonical values in, a document and the losses out; a value that the wire cannot express is a loss
    stream_*    the same, piece by piece

The bridge reads `limits` and `capabilities` to fit a request before it is encoded, so that no code outside a wire
depends on which wire it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from msgspec.structs import replace

from ..ir.events import Event
from ..ir.losses import Losses
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.response import Fault, Response
from ..ir.tools import Tool
from ..ir.value import Value
from .documents import AnswerSummary
from .faults import Signature

Kind = Literal["request", "response", "stream", "tools", "error"]


class Limits(Value, frozen=True):
    """Numbers and patterns that the provider enforces. None: no limit known."""

    name: str  # a regular expression for tool names; it must admit letters, digits and _
    name_length: int
    id: str  # a regular expression for call ids
    id_length: int
    tools: int | None = None
    stops: int | None = None  # stop sequences
    cache_marks: int | None = None  # prompt-cache marks in a request
    cache_minimum: int = 0  # tokens of the smallest prefix that a mark caches
    max_tokens: int | None = None  # default where the wire requires a number and the request has none
    min_output: int = 0  # minimum of max_tokens
    max_output: int | None = None  # maximum of max_tokens
    ranges: Mapping[str, tuple[float, float]] | None = None  # bounds of other parameters, by their names in `Params`
    user_length: int | None = None  # characters of the user id
    min_budget: int = 0  # minimum thinking budget in tokens; a wire that has one also requires less than max_tokens
    signatures: tuple[Signature, ...] = ()  # patterns that find the broken limit in an error


class Capabilities(Value, frozen=True):
    """Features that the wire supports natively, and requirements of its provider."""

    choices: frozenset[str]  # tool choice modes
    media: frozenset[str]  # kinds of media in a user message
    choice_by_schema: Literal["", "declared", "stated"] = ""
    """The form of a forced call that `choices` lacks: the schema of the answer, beside the declared tools; `stated`:
    the tools are also in the instructions, because the server's chat template drops declarations."""
    assistant_media: frozenset[str] = frozenset()  # kinds of media in an assistant message
    result_media: frozenset[str] = frozenset()  # kinds of media in a tool result
    named_results: bool = False  # a result names its tool
    result_error: bool = False  # a flag for a failed tool
    result_structured: bool = False  # a JSON value as a result
    refusals: bool = False  # the text of a refusal has its own field
    freeform: bool = False  # tools whose input is plain text
    deferred: bool = False  # deferred tools, which a search loads
    search_calls: bool = False  # a separate kind of call for a search that the client runs
    search_wire: str = ""  # the wire whose parts represent a search that the provider ran; empty: none
    hosted: frozenset[str] = frozenset()  # kinds of hosted tools that the provider runs
    hosted_wire: str = ""  # the wire whose parts represent runs of hosted tools, and citations; empty: none
    hosted_with_functions: bool = True  # hosted tools beside functions
    forces_hosted: bool = False  # a tool choice can name a hosted tool
    namespaces: bool = False
    strict: bool = False  # strict per tool
    parallel: bool = False  # a switch for parallel calls
    counts_on_request: bool = False  # a stream reports its usage only on request
    counts_tool_input: bool = False  # tokens that the provider's own tools put into the prompt are counted separately
    examples: bool = False  # example inputs in a declaration
    cache: frozenset[str] = frozenset()  # values that accept a prompt-cache mark: part, tool, call, result, request
    cache_ttls: tuple[str, ...] = ()  # times to live, ascending
    object_arguments: bool = False  # arguments are an object, not text
    lone_reasoning: bool = True  # reasoning with nothing after it in its turn
    ordered: bool = True  # text and calls keep their order in a turn
    developer: bool = True  # a developer role beside the system role
    system_anywhere: bool = True  # system messages in the middle of a conversation
    system_after_user: bool = False  # the same, but only after a user turn and last or before an assistant turn
    system_only: bool = False  # a request of system messages alone
    declared_history: bool = False  # calls in the history need a declaration
    unique_names: bool = False  # two tools of the same name are rejected
    one_message_a_turn: bool = False  # consecutive messages of one role are one message
    adjacent_results: bool = False  # the results of a message's calls must come before the next assistant message
    lone_results: bool = False  # results are in a message of their own, without text
    starts_with_user: bool = False  # the first message after the system messages is a user message
    blank_text: bool = True  # text of only whitespace, and trailing whitespace at the end of the last assistant message
    efforts: tuple[str, ...] = ()  # effort levels, ascending
    budgets: bool = False  # a thinking budget in tokens
    effort_and_budget: bool = False  # both in one request
    adaptive: bool = False  # thinking without a fixed amount: the model decides
    forced_with_budget: bool = True  # a forced call together with a thinking budget
    timestamps: bool = False  # an answer has the time of its creation
    model_in_path: bool = False  # the model is named in the path, not in the body
    output_schemas: bool = True  # answers that match a JSON Schema
    output_with_tools: bool = True  # a required form of the answer in a request with tools
    output_descriptions: bool = False  # a description beside the schema of the answer
    json_mode: bool = True  # answers that are JSON, without a schema
    json_mention: Literal["", "messages", "input"] = ""  # where JSON mode requires a mention of JSON
    prefill: bool = True  # continues an assistant message at the end of a request
    prefill_with_thinking: bool = True  # continues it also while thinking is on
    unsigned_call: str | None = None  # placeholder for the signature of a call that another provider made
    rejected_fields: frozenset[tuple[str, str]] = frozenset()  # fields of the wire that this vendor rejects
    rejected_kinds: frozenset[str] = frozenset()  # built-in tools and kinds of parts that this vendor rejects


def forced_by_schema(can: Capabilities, form: Literal["declared", "stated"]) -> Capabilities:
    """Return the capabilities of a server that ignores a forced choice, but enforces a schema of the answer.

    Its tools are functions: no such server has freeform tools.
    """
    return replace(can, choices=can.choices & {"auto", "none"}, freeform=False, choice_by_schema=form)


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
        """End the input; return the last events or raise TruncatedStream."""
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
        """HTTP headers that a request needs besides the key."""
        ...

    def path(self, model: str, *, stream: bool) -> str:
        """Return the path of a request, relative to the base URL."""
        ...

    @property
    def terminal(self) -> bytes:
        """A regular expression for the marker after which a stream is complete."""
        ...

    @property
    def detection(self) -> Mapping[Kind, Callable[[JSON], int]]:
        """For each kind of document, a function that scores how well a JSON document matches it (0: no match)."""
        ...

    def decode_request(self, body: Object) -> Request: ...
    def encode_request(self, request: Request) -> Encoded: ...
    def decode_response(self, body: Object) -> Response: ...
    def summarise(self, data: bytes) -> AnswerSummary | None:
        """Summarise a whole answer without decoding its content; None if it must be decoded in full.

        A summary never differs from `decode_response(parse_object(data))`.
        """
        ...

    def encode_response(self, response: Response, request: Request | None = None) -> Encoded:
        """Encode a response; `request` is the client's request, which some wires repeat or depend on."""
        ...

    def decode_error(self, status: int | None, body: JSON, headers: Mapping[str, str] | None = None) -> Fault:
        """Decode an error response. With `status` None, the body decides."""
        ...

    def encode_error(self, fault: Fault) -> EncodedFault: ...
    def stream_decoder(self) -> StreamDecoder: ...
    def stream_encoder(self, request: Request | None = None) -> StreamEncoder: ...
    def decode_tools(self, declarations: list[JSON]) -> tuple[Tool, ...]: ...
    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]: ...
    def list_tools(self, body: JSON) -> tuple[Tool, ...]:
        """Return the tools of a discovery reply; raise ConfigError if the wire has none."""
        ...

    def locator(self, value: Request | Response) -> Callable[[str], str]:
        """Return a function from a canonical path in `value`, decoded from this wire, to a document pointer."""
        ...
