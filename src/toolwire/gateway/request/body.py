"""The body of a client's request: forbidden fields, estimated tokens, and forwarding while it arrives.

Every check works on pieces, so a large body is never held only to be checked.
"""

from __future__ import annotations

import asyncio
import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Mapping
from operator import attrgetter

import msgspec

from ...asgi.http_exchange import BodyTooLarge, HttpExchange
from ...bridge.conversation.reasoning_envelope import EnvelopeFinder
from ...ir.errors import ConfigError, ToolwireError
from ...ir.pointer import join
from ...ir.response import Usage
from ...ir.text import to_bytes
from ...net.http.transport import StreamedBody
from ...net.model.pass_through import find_leading_model
from ..config.settings import LimitsRow
from ..keys import Caller
from ..memory import MemoryReservation
from .field_scan import CountedObjects, FieldFound, FieldScan, InvalidPiece

BYTES_PER_TOKEN = 4  # of English text, by the rule of thumb of providers; other text and code have fewer
# base64, as a whole string or after the comma of a data URL: anchored at its start, so that nothing is scanned twice
_MEDIA = re.compile(rb"""[",][A-Za-z0-9+/_-]{2048,}""")
_PIECE_OF_MEDIA = re.compile(rb"""(?:[",]|\A)[A-Za-z0-9+/_-]{2048,}""")
_TOKENS_PER_MEDIA = 1000  # the approximate cost of a picture of any size
_MAX_TOKENS = 10**9  # of one answer; more is an error, which must not be charged to any account
_get_counts = attrgetter("input", "output", "cached", "reasoning")


def is_plausible(usage: Usage) -> bool:
    """Return whether an upstream may have counted this: no usage is zero, negative or far too large."""
    if not usage.input and not usage.output:
        return False
    counts = list(filter(None, _get_counts(usage)))
    return bool(min(counts) >= 0 and max(counts) <= _MAX_TOKENS)


def estimate_tokens(request_body: bytes) -> int:
    media = [len(found.group()) for found in _MEDIA.finditer(request_body)]
    return _estimate_from_sizes(len(request_body) - sum(media), len(media))


def _estimate_from_sizes(text_bytes: int, media: int) -> int:
    return -(-text_bytes // BYTES_PER_TOKEN) + media * _TOKENS_PER_MEDIA


class RequestSize:
    """The size of a request that arrives in pieces, in tokens. Media may continue in the next piece."""

    __slots__ = ("_ends_in_media", "_media", "_text_bytes")

    def __init__(self) -> None:
        self._text_bytes = 0
        self._media = 0
        self._ends_in_media = False

    def add(self, piece: bytes) -> None:
        """Count a piece: its text in bytes, and its media by number, without the rest of media from the last piece."""
        last_end = 0
        self._text_bytes += len(piece)
        for found in _PIECE_OF_MEDIA.finditer(piece):
            self._media += found.start() > 0 or not self._ends_in_media
            self._text_bytes -= len(found.group())
            last_end = found.end()
        self._ends_in_media = last_end == len(piece)

    @property
    def tokens(self) -> int:
        return _estimate_from_sizes(self._text_bytes, self._media)


# Fields that clients must not set, because an upstream that is a gateway itself reads them.
#
# FORBIDDEN_FIELDS name the address of an upstream, or its key, and are refused for every client (`user_config` of
# LiteLLM's proxy has both, BerriAI/litellm#1296). ROUTING_FIELDS choose another model than `model`, so they are
# refused for a key that allows only some models:
#
# - OpenRouter: `models` and `route` are fallbacks, `provider` and `plugins` select them, and a `preset` has a model
#   (see openrouter.ai/docs/features/model-routing, /presets, /plugins)
# - LiteLLM's proxy: the lists of fallbacks, `model_list`, `deployment_id`, and `extra_body`, which it merges into the body
#   (see docs.litellm.ai/docs/proxy/reliability)
# - Vercel's gateway: `providerOptions.gateway.models` (vercel.com/docs/ai-gateway/models-and-providers)
# - servers in Go, such as Ollama: `Model`, because their decoder ignores case, and the last name wins
#   (pkg.go.dev/encoding/json#Unmarshal). So all these names are refused in any case, and `model` in any but its own. For
#   that decoder, U+017F (long s) and U+212A (the Kelvin sign) are letters s and k in another case, as for `casefold`


FORBIDDEN_FIELDS = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider", "user_config")
ROUTING_FIELDS = (
    *("models", "route", "provider", "preset", "plugins", "providerOptions", "provider_options", "extra_body"),
    *("fallbacks", "fallback_models", "context_window_fallbacks", "content_policy_fallbacks", "model_list"),
    *("deployment_id", "litellm_params"),
)
_ROUTING_NAMES = frozenset(map(str.casefold, ROUTING_FIELDS))
_OTHER_CASES = {"s": "(?:s|\u017f)", "k": "(?:k|\u212a)"}
ROUTING_NAME = (
    rb'(?!model")(?i:model|%b)'
    % re.sub("[sk]", lambda letter: _OTHER_CASES[letter[0]], "|".join(map(re.escape, ROUTING_FIELDS))).encode()
)
"""A pattern of the names that `may_route` refuses, without escaped letters and before a quotation mark."""


def may_route(name: str) -> bool:
    """Return whether a field of this name may choose another model than the field `model`."""
    folded = name.casefold()
    return folded in _ROUTING_NAMES or (folded == "model" and name != "model")


class RoutingRefused(ToolwireError):
    """A field could choose a model that the key does not allow."""

    default_status = 403

    def __init__(self, name: str) -> None:
        message = f"the key allows only some models, and {name} could choose another one"
        super().__init__(message, pointer=join(name), hint="leave it out, and name the model in `model`")


def forbidden_field_error(name: str) -> ConfigError:
    hint = "leave it out; the gateway's settings name the upstreams and their keys"
    return ConfigError(f"{name} must not be set by a client", pointer=join(name), hint=hint)


# A large body of a client: its beginning is read first, then it is read whole, or sent on while it arrives.
#
# While it is sent on, one piece is held. Each piece is checked before it is sent: a second model would circumvent the
# models that a key allows, because upstreams read the last one. The upstream then gets an incomplete request, which
# has no effect.
#
# Clients of Anthropic may return reasoning of another model, which must be removed. Their pieces are kept until all
# of them are sent, so that the request can be sent again without it.


_REFUSED_FIELDS = ("model", *FORBIDDEN_FIELDS)  # after the leading model
_MAX_START = 64 * 1024  # bytes in which the model must be found: SDKs send it among the first fields


class BodyRefused(ToolwireError):
    """A part of a body cannot be sent on, although earlier parts were sent."""

    default_status = 400


class EnvelopeFound(ToolwireError):
    """A body that is sent on may contain reasoning of another model: it must be read whole."""


class ClientBody:
    """The body of one request. `model` is its leading model, and `size` its size as far as it was sent.

    `is_sent` is True once a part of it was sent: it cannot be sent again, except after EnvelopeFound.
    """

    def __init__(
        self, http_exchange: HttpExchange, limits: LimitsRow, memory: MemoryReservation, caller: Caller
    ) -> None:
        self.model: str | None = None
        self.size = RequestSize()
        self.is_sent = False
        self._http_exchange = http_exchange
        self._limits = limits
        self._memory = memory
        self._seconds = limits.slow_client  # left for the client; waiting for the upstream does not count
        self._unread = http_exchange.declared_length
        self._has_more = True
        self._held = 0  # reserved bytes
        self._start = b""
        self._checked_start = b""  # with renamed fields
        self._model_span: tuple[int, int] | None = None  # in the start
        self._may_route = caller.has_all_models
        self._scan = self._make_scan()
        self._renamed: Mapping[str, str] = {}
        self._max_tools = 0
        self._finder: EnvelopeFinder | None = None  # if the pieces may contain envelopes
        self._kept: list[bytes] = []  # the pieces so far, if they may

    async def read_start(self, *, needs_model: bool) -> None:
        """Read the first pieces, until the leading model if it is needed, and set `model` if it is found.

        An interruption of the request ends the running task from now on.
        """
        self._http_exchange.interruption.attach()
        while self._has_more and len(self._start) < _MAX_START:
            self._start += await self._read_piece(len(self._start))
            self._model_span = find_leading_model(self._start)
            if self._model_span is not None or (self._start and not needs_model):
                break
        self._start = self._start.removeprefix(BOM_UTF8)  # an upstream may not accept it
        self._model_span = find_leading_model(self._start)
        if self._model_span is not None:
            self.model = _decode_name(self._start[slice(*self._model_span)])

    def may_stream(
        self, renamed: Mapping[str, str], *, may_have_envelopes: bool, counted: CountedObjects | None
    ) -> bool:
        """Return whether more will follow and the fields so far can be sent on, and prepare the scan of all fields.

        `renamed` are fields with another name at the target. `counted` are the tools, if it accepts a limited number.
        """
        start, span = self._start, self._model_span
        if not self._has_more or (span is not None and self.model is None):
            return False
        if may_have_envelopes:
            self._finder = EnvelopeFinder()
            if self._finder.feed(start):
                return False
        self._scan, self._renamed = self._make_scan(renamed, counted), renamed
        self._max_tools = 0 if counted is None else counted.limit
        try:
            if span is None:
                self._checked_start = self._scan.feed(start)
            else:
                name_start = start.rindex(b'"model"', 0, span[0])
                before = self._scan.feed(start[:name_start])
                self._checked_start = before + start[name_start : span[1]] + self._scan.feed(start[span[1] :])
                return len(before) == name_start  # else the model comes after half a string
        except (FieldFound, InvalidPiece):
            return False
        return True

    def _make_scan(self, renamed: Mapping[str, str] | None = None, counted: CountedObjects | None = None) -> FieldScan:
        return FieldScan(_REFUSED_FIELDS, renamed, counted, pattern=b"" if self._may_route else ROUTING_NAME)

    async def read_whole(self) -> bytes:
        """Read the rest, and return the whole body, also after EnvelopeFound."""
        start, self._start, self._kept = self._start or b"".join(self._kept), b"", []
        if not self._has_more:
            return start
        return await self._http_exchange.read_remaining_body(start, self._limits.body, self._seconds, self._memory.add)

    def for_model(self, model: str) -> StreamedBody:
        """Return the body with another model, to be sent while it arrives."""
        start, span = self._checked_start, self._model_span
        if span is not None and self.model != model:
            start = start[: span[0]] + to_bytes(model) + start[span[1] :]
        return StreamedBody(self._send(start), len(start) + len(self._scan.held) + self._unread)

    async def _send(self, start: bytes) -> AsyncIterator[bytes]:
        """Yield the pieces after each is checked, and count them. After the last, watch for a disconnect of the client.

        Raise EnvelopeFound, BodyRefused or the error for a forbidden field at the piece that must not be sent.
        """
        self.is_sent = True
        if self._finder is not None:
            self._kept.append(self._start)
        self._start = self._checked_start = b""
        self.size.add(start)
        yield start
        start = b""
        while self._has_more:
            piece = self._check(await self._read_piece(0))
            self.size.add(piece)
            if piece:
                yield piece
        if self._scan.held:
            self.size.add(self._scan.held)
            yield self._scan.held
        self._memory.subtract(sum(map(len, self._kept[1:])))
        self._kept = []
        self._http_exchange.watch()

    async def _read_piece(self, kept: int) -> bytes:
        """Return the next piece, and reserve memory for it and for `kept` earlier bytes, if more is needed than before.

        Raise BodyTooLarge if the body exceeds its content-length, BodyTimeout, ClientGone and MemoryExhausted.
        """
        clock = asyncio.get_running_loop().time
        started_at = clock()
        piece, self._has_more = await self._http_exchange.read_piece(self._seconds)
        self._seconds -= clock() - started_at
        self._unread -= len(piece)
        if self._unread < 0:
            raise BodyTooLarge("the body is longer than its content-length", hint="send its exact length")
        if kept + len(piece) > self._held:
            self._memory.add(kept + len(piece) - self._held)
            self._held = kept + len(piece)
        return piece

    def _check(self, piece: bytes) -> bytes:
        """Return the bytes of a piece that can be sent on. Keep the piece if it may contain envelopes.

        Raise EnvelopeFound, BodyRefused for invalid JSON, or the error for a field that must not be sent.
        """
        if self._finder is not None:
            self._memory.add(len(piece))
            self._kept.append(piece)
            if self._finder.feed(piece):
                raise EnvelopeFound("the body may contain reasoning of another model")
        try:
            checked = self._scan.feed(piece)
            if self._unread == 0 or not self._has_more:  # the upstream accepts a body with its last byte
                self._scan.close()
        except InvalidPiece as error:
            raise BodyRefused(f"the body is not valid JSON: {error}") from None
        except FieldFound as found:
            raise self._refusal_of(found.name) from None
        return checked

    def _refusal_of(self, name: str) -> ToolwireError:
        """Return the error for a field that the scan has found; its name is empty if it contains escaped letters."""
        if name == "model":
            message = "the model is named twice, or after other fields"
            return BodyRefused(message, pointer="/model", hint="send it once, as the first field")
        if name == "":
            message, limit = "the name of a field contains escaped letters", self._limits.stream_body
            hint = f"write the letters as they are; names are decoded in bodies of up to {limit} bytes only"
            return BodyRefused(message, hint=hint)
        if name in self._renamed or name in self._renamed.values():
            names = " or ".join(sorted({*self._renamed, *self._renamed.values()}))
            return BodyRefused(f"{name} is set twice, as {names}", pointer=join(name), hint="send it once")
        if name == "tools":
            message = (
                f"the request has more than {self._max_tools} tools, and its body is too large to select among them"
            )
            hint = "send fewer tools, or the tools before the messages; the gateway's operator can raise limits.stream_body"
            return BodyRefused(message, pointer="/tools", hint=hint)
        return RoutingRefused(name) if may_route(name) else forbidden_field_error(name)


def _decode_name(encoded: bytes) -> str | None:
    try:
        return msgspec.json.decode(encoded, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
