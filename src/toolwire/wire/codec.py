"""The codec of a wire as a frozen value: the data and the functions that `protocol.Wire` requires.

Three of its fields have a type of their own: the form of tool searches (`SearchCodec`), the form of log probabilities
(`LogprobForm`), and the items that `encode_onto` fills (`ConversationItems`), of which the first may be written already.

A long conversation grows at its end. A caller that translated its beginning before has the JSON text of those items,
and the encoder of a wire writes only the rest:

    items = ConversationItems(prefix, boundary)
    body, losses = codec.encode_onto(request, items)
    prefix = items.cut_prefix(request.messages)     # for the next request: the text up to message `boundary`

Log probabilities of the tokens of an answer: the position and the form that each wire gives them.

They are no part of the canonical values, because nothing but their client reads them. A codec keeps them in an `extra`,
and its `LogprobForm` converts them from and to OpenAI's list of tokens, in which they travel between wires:

    [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": [{"token", "logprob", "bytes"}, …]}, …]

A wire package ends with its codec:

    CODEC = WireCodec(name="acme", decode_request=decode_request, …)
    replace(CODEC, version="2026-01-01", older=(CODEC,))                    # another version (msgspec.structs.replace)
    replace(CODEC, name="acme", limits=…)                                   # a server that deviates from the wire
    CODEC.at_completions(("<tool_call>",))                                  # the server's raw completion endpoint

The functions are fields, so a call costs one attribute lookup, and a variant of a codec needs no subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.events import CallStart
from ..ir.losses import Loss, Losses
from ..ir.parts import Opaque, ToolCall
from ..ir.pointer import JSON, Object, join
from ..ir.request import Message, Request
from ..ir.response import Fault, Response, Stop
from ..ir.text import finite_to_bytes
from ..ir.tools import HostedSearchCall, HostedSearchResult, Tool
from ..ir.value import Value
from .documents import AnswerSummary, no_summary
from .faults import Signature
from .fields import decode_list
from .hosted import HostedCodec
from .protocol import Capabilities, Encoded, EncodedFault, Kind, Limits, StreamDecoder, StreamEncoder
from .typed_tools import TypedCodec


class WrittenPrefix(NamedTuple):
    """The first messages of a fitted request as JSON text: items with commas between them, and their losses."""

    messages: tuple[Message, ...]
    text: bytes
    losses: tuple[Loss, ...]


class WrittenSettings(NamedTuple):
    """The fields of an encoded body besides its conversation: those before it and those after it, with their losses."""

    first: Object
    last: Object
    first_losses: tuple[Loss, ...]
    last_losses: tuple[Loss, ...]


class ConversationItems:
    """The list of items that an encoder fills. It begins with the text of `prefix`, if there is one.

    `boundary` is the number of messages after which the items can be cut; 0 if they are not cut. `text_blocks`: the
    text of a user message is a list of one block also where a string would do, because a cache mark requires a list,
    and the bytes must not change when the mark moves on to the next turn. `settings`: the other fields, if written.
    """

    __slots__ = ("_boundary", "_losses", "_prefix", "_split", "settings", "text_blocks", "written")

    def __init__(
        self,
        prefix: WrittenPrefix | None = None,
        boundary: int = 0,
        *,
        text_blocks: bool = False,
        settings: WrittenSettings | None = None,
    ) -> None:
        # JSON text of several items as one element: msgspec copies it into the list without a look at it
        self.written: list[JSON] = [] if prefix is None else [Raw(prefix.text)]
        self.text_blocks = text_blocks
        self.settings = settings
        self._prefix = prefix
        self._boundary = boundary
        self._split = 0  # the number of elements of `written` before the boundary
        self._losses: tuple[Loss, ...] = ()

    def unwritten(self, messages: tuple[Message, ...], losses: Losses, start: int = 0) -> Iterator[tuple[int, Message]]:
        """Return the messages from `start` that are not written yet, with their indices. Losses of others are added."""
        if self._prefix is None and not self._boundary:
            return enumerate(messages[start:], start)
        return self._split_at_boundary(messages, losses, start)

    def _split_at_boundary(
        self, messages: tuple[Message, ...], losses: Losses, start: int
    ) -> Iterator[tuple[int, Message]]:
        """Yield the unwritten messages, and add the losses of the prefix.

        At the boundary, note the items and the losses before it for `cut_prefix`.
        """
        earlier = len(losses)
        if self._prefix is not None:
            losses.extend(self._prefix.losses)
            start = len(self._prefix.messages)
        boundary = self._boundary
        for index in range(start, len(messages)):
            if index == boundary:
                self._split, self._losses = len(self.written), tuple(losses)[earlier:]
            yield index, messages[index]

    def cut_prefix(self, messages: tuple[Message, ...]) -> WrittenPrefix | None:
        """Replace the items before the boundary by their text, and return it, or None if there are none.

        `messages` are the messages of the encoded request, which was parsed from JSON: it has no NaN and no infinities.
        """
        if not self._split:
            return None
        if self._prefix is not None and len(self._prefix.messages) == self._boundary:
            return self._prefix
        # the first item is the prefix text, if there is one; [1:-1]: without the brackets
        text = finite_to_bytes(self.written[self._prefix is not None : self._split])[1:-1]
        if self._prefix is not None:
            text = b"%b,%b" % (self._prefix.text, text) if text else self._prefix.text
        self.written[: self._split] = [Raw(text)]
        return WrittenPrefix(messages[: self._boundary], text, self._losses)


class LogprobForm(Value, frozen=True):
    """The log probabilities of one wire: the field `field` of the extra named `scope`.

    `position`: that extra belongs to the stop of each choice, to the whole response, or to its texts. `read` returns the
    tokens, or None if there are none, or if their form is unknown. `omitted` is a field of every token that no other
    wire has.
    """

    scope: str
    position: Literal["stop", "response", "text"]
    read: Callable[[JSON], list[Object] | None]
    write: Callable[[list[Object]], JSON]
    field: str = "logprobs"
    omitted: str | None = None


def read_tokens(value: JSON) -> list[Object] | None:
    """Read OpenAI's list of tokens, or return None if it is empty or invalid.

    Ollama omits `bytes` and `top_logprobs` where they are empty.
    """
    if type(value) is not list or not value:
        return None
    tokens: list[Object] = []
    for entry in value:
        token = _read_token(entry)
        top = entry.get("top_logprobs") or [] if type(entry) is dict else None
        others = [_read_token(other) for other in top] if type(top) is list else [None]
        if token is None or None in others:
            return None
        tokens.append({**token, "top_logprobs": [other for other in others if other is not None]})
    return tokens


def _read_token(entry: JSON) -> Object | None:
    """Return a token with its bytes, by default the bytes of its text, or None if it is invalid."""
    if type(entry) is not dict or type(entry.get("token")) is not str or type(entry.get("logprob")) not in (int, float):
        return None
    token: str = entry["token"]
    return {"bytes": [*token.encode("utf-8", "surrogatepass")], **entry}


HostedSearchPart: TypeAlias = HostedSearchCall | HostedSearchResult


def report_search_call(call: ToolCall | CallStart, path: str, losses: Losses) -> None:
    """Report a call of a search on a wire where it is a call of a function."""
    if call.kind == "search":
        losses.add(path, "call of a search", "rewritten", "sent as a call of a function", "info")


def report_incomplete_call(call: ToolCall, label: str, losses: Losses, path: str) -> None:
    """Report an incomplete call that is left out. Calls of the wire are always complete, so a client would execute it."""
    losses.add(path, "call", "dropped", f"its arguments are {call.state}; {label} calls are always complete", "error")


def stop_without_call(call: ToolCall, stop: Stop | None, losses: Losses, detail: str | None = None) -> Stop:
    """Return the stop for an answer whose incomplete call was left out; a changed stop is a loss."""
    if stop is not None and stop.reason not in ("stop", "tool_calls"):
        return stop
    losses.add("/stop", "stop reason", "rewritten", f"the call to {call.name} is {call.state}", "info")
    return Stop("length" if call.state == "truncated" else "malformed_call", detail=detail)


def unknown_fields(value: JSON, known: Collection[str], pointer: str = "") -> Iterator[str]:
    """Yield the pointers of the fields of an object that are not known."""
    if type(value) is dict:
        yield from (pointer + join(field) for field in value if field not in known)


class _WriteCall(Protocol):
    def __call__(self, call: HostedSearchCall, *, is_output: bool) -> Opaque: ...


class _WriteResult(Protocol):
    def __call__(self, result: HostedSearchResult, tools: Sequence[Tool], *, is_output: bool) -> Opaque:
        """Write a result with the declarations of the tools that it found."""
        ...


class SearchCodec(Value, frozen=True, kw_only=True, eq=False):
    """Functions that read and write the declaration, the calls and the results of a provider's tool search.

    `is_output`: the part is written into an answer, not into the history of a request.
    """

    method_of: Callable[[Object], str | None]
    """Return the method of a declaration, empty if it names none; None for any other built-in tool."""
    fields: Collection[str]
    """The fields of a declaration that `method_of` reads."""
    declare: Callable[[str], Tool]
    """Return the declaration that is nearest to a method."""
    read: Callable[[Opaque], HostedSearchPart | None]
    unread: Callable[[Opaque], Iterator[str]]
    """Yield the pointers, relative to the part, of the fields that `read` does not return."""
    write_call: _WriteCall
    write_result: _WriteResult


class _PathOf(Protocol):
    def __call__(self, model: str, *, stream: bool) -> str: ...


class _OpenStreamEncoder(Protocol):
    def __call__(self, request: Request | None = None) -> StreamEncoder: ...


class _EncodeResponse(Protocol):
    def __call__(self, response: Response, request: Request | None = None) -> Encoded: ...


class _EncodePrompt(Protocol):
    def __call__(self, request: Request, kept_tokens: Sequence[str]) -> Encoded:
        """Encode a request. The server must not remove `kept_tokens`, which are special tokens, from the text."""
        ...


class SettingsCodec(NamedTuple):
    """The steps of `decode_request` and of `encode_onto`, for callers that know the result of some of them.

    `decode_settings` does not read the fields `apart`: the conversation and the tools.
    """

    apart: frozenset[str]
    decode_messages: Callable[[Object], tuple[Message, ...] | None]
    """Decode the conversation; return None if the settings of this document depend on it."""
    decode_tools: Callable[[Object], tuple[Tool, ...]]
    decode_settings: Callable[[Object, tuple[Message, ...], tuple[Tool, ...]], Request]
    encode_settings: Callable[[Request], WrittenSettings]


class CompletionEndpoint(Value, frozen=True, kw_only=True):
    """The raw completion endpoint beside the chat endpoint of a wire: one prompt in, text out.

    It takes a request of one user message, which is the whole prompt, and answers with one text. Errors, usage and stop
    reasons are the same as on the wire. A client never uses it, so it has no inverse functions.
    """

    path: str
    encode_request: _EncodePrompt
    decode_response: Callable[[Object], Response]
    stream_decoder: Callable[[], StreamDecoder]


class WireCodec(Value, frozen=True, kw_only=True, eq=False):
    """One wire, or one version of it. Two codecs are equal only if they are the same object."""

    name: str
    provider: str
    dialect: str
    conversation: str
    terminal: bytes
    detection: Mapping[Kind, Callable[[JSON], int]]
    limits: Limits
    capabilities: Capabilities
    path: _PathOf
    decode_request: Callable[[Object], Request]
    encode_request: Callable[[Request], Encoded]
    decode_response: Callable[[Object], Response]
    summarise: Callable[[bytes], AnswerSummary | None] = no_summary
    encode_response: _EncodeResponse
    read_error: Callable[[int | None, JSON, Mapping[str, str] | None, tuple[Signature, ...]], Fault]
    encode_error: Callable[[Fault], EncodedFault]
    stream_decoder: Callable[[], StreamDecoder]
    stream_encoder: _OpenStreamEncoder
    decode_tools: Callable[[list[JSON]], tuple[Tool, ...]]
    encode_tools: Callable[[tuple[Tool, ...]], tuple[list[Object], Losses]]
    locator: Callable[[Request | Response], Callable[[str], str]]
    read_discovery: Callable[[JSON], tuple[Tool, ...]] | None = None  # None: the wire has no discovery reply
    version: str | None = None
    headers: Mapping[str, str] = {}
    older: tuple[WireCodec, ...] = ()  # earlier versions of this wire
    completions: Callable[[], CompletionEndpoint] | None = None  # None: the wire has no raw completion endpoint
    search: SearchCodec | None = None  # None: the provider has no tool search
    typed: TypedCodec | None = None  # None: the provider defines no tools that the client runs
    hosted: HostedCodec | None = None  # None: the provider has no hosted tools
    logprobs: LogprobForm | None = None  # None: the wire has no log probabilities
    encode_onto: Callable[[Request, ConversationItems], Encoded] | None = None
    """Like `encode_request`, for a request of which a part may be written already; None: not supported."""
    settings: SettingsCodec | None = None  # None: the settings of a request are decoded with its conversation
    is_own_message: Callable[[JSON], bool] | None = None
    """True for an item of a conversation that is a message; adjacent other items are one. None: each is a message."""

    @property
    def versions(self) -> dict[str, WireCodec]:
        """All versions of a wire that has several, by name."""
        return {codec.version: codec for codec in (*self.older, self) if codec.version} if self.older else {}

    def decode_error(self, status: int | None, body: JSON, headers: Mapping[str, str] | None = None) -> Fault:
        """Decode an error response; the signatures of this codec's limits find the limit that was exceeded."""
        return self.read_error(status, body, headers, self.limits.signatures)

    def at_completions(self, kept_tokens: Sequence[str] = ()) -> WireCodec:
        """Return this wire at its raw completion endpoint; raise ConfigError if it has none.

        `kept_tokens` are special tokens that the server must not remove from the text. There is no known limit on the
        number of stop sequences: servers that run open models do not have the limit of OpenAI's chat endpoint.
        """
        if self.completions is None:
            raise ConfigError(f"the wire {self.name} has no raw completion endpoint", hint='use via = "chat"')
        endpoint = self.completions()
        none: frozenset[str] = frozenset()
        return replace(
            self,
            path=fixed_path(endpoint.path),
            encode_request=partial(endpoint.encode_request, kept_tokens=tuple(kept_tokens)),
            encode_onto=None,
            settings=None,
            decode_response=endpoint.decode_response,
            summarise=no_summary,
            stream_decoder=endpoint.stream_decoder,
            limits=replace(self.limits, stops=None),
            capabilities=replace(
                self.capabilities, media=none, assistant_media=none, result_media=none, cache=none, json_mention=""
            ),
            completions=None,
        )

    def list_tools(self, body: JSON) -> tuple[Tool, ...]:
        """Return the tools of a discovery reply; raise ConfigError if the wire has none."""
        if self.read_discovery is None:
            hint = "read the tools of a request from its `tools`"
            raise ConfigError(f"{self.name} has no discovery reply", hint=hint)
        return self.read_discovery(body)

    def __repr__(self) -> str:
        return f"WireCodec({self.name!r})" if self.version is None else f"WireCodec('{self.name}@{self.version}')"


def fixed_path(path: str) -> _PathOf:
    """Return `path` for a wire with one endpoint for all models and for streams."""

    def path_of(model: str, *, stream: bool) -> str:
        del model, stream
        return path

    return path_of


def tools_decoder(read_tool: Callable[[JSON], Tool]) -> Callable[[list[JSON]], tuple[Tool, ...]]:
    """Return `decode_tools` for a wire with one declaration per tool."""

    def decode_tools(declarations: list[JSON]) -> tuple[Tool, ...]:
        return tuple(decode_list({"tools": declarations}, "tools", read_tool))

    return decode_tools


def tools_encoder(
    write_tool: Callable[[Tool, Losses, str], Object | None],
) -> Callable[[tuple[Tool, ...]], tuple[list[Object], Losses]]:
    """Return `encode_tools` for a wire with one declaration per tool; None from `write_tool` leaves the tool out."""

    def encode_tools(tools: tuple[Tool, ...]) -> tuple[list[Object], Losses]:
        losses = Losses()
        written = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(tools)]
        return [tool for tool in written if tool is not None], losses

    return encode_tools
