"""The codec of a wire as a frozen value: the data and the functions that `protocol.Wire` requires.

    CODEC = WireCodec(name="acme", decode_request=decode_request, …)        # a wire package ends with its codec
    replace(CODEC, version="2026-01-01", older=(CODEC,))                    # another version (msgspec.structs.replace)
    replace(CODEC, name="acme", limits=…)                                   # a server that deviates from the wire
    CODEC.at_completions(("<tool_call>",))                                  # the server's raw completion endpoint

The functions are fields, so a call costs one attribute lookup, and a variant of a codec needs no subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.losses import Losses
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.response import Fault, Response
from ..ir.tools import Tool
from ..ir.value import Value
from .answer_summary import AnswerSummary, no_summary
from .conversation_items import ConversationItems
from .fields import decode_list
from .logprobs import LogprobForm
from .protocol import Capabilities, Encoded, EncodedFault, Kind, Limits, StreamDecoder, StreamEncoder
from .search_codec import SearchCodec
from .signatures import Signature

__all__ = ["CompletionEndpoint", "WireCodec", "fixed_path", "tools_decoder", "tools_encoder"]


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


class CompletionEndpoint(Value, frozen=True, kw_only=True):
    """The raw completion endpoint beside the chat endpoint of a wire: one prompt in, text out.

    It takes a request of one user message, which is the whole prompt, and answers with one text. Errors, usage and stop
    reasons are those of the wire. A client never uses it, so it has no inverse functions.
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
    logprobs: LogprobForm | None = None  # None: the wire has no log probabilities
    encode_onto: Callable[[Request, ConversationItems], Encoded] | None = None
    """Like `encode_request`, for a request whose first messages may be written already; None: not supported."""
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
        """Return this wire at its raw completion endpoint; ConfigError if it has none.

        `kept_tokens` are special tokens that the server must not remove from the text. There is no known limit on the
        number of stop sequences: the limit of OpenAI's chat endpoint is not one of servers that run open models.
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
