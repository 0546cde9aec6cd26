"""Sanitise a recorded exchange: keep enough to replay it, remove personal data and credentials.

Headers that identify the client, keys, cookies, user ids, values under names such as `password`, and everything that
the redactor knows or recognises are replaced. A stream is checked as a whole, because a secret may span two pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from ..ir.errors import ToolwireError
from ..ir.events import CallDelta, CallEnd, Event, PartStart, ReasoningDelta, TextDelta, WholePart
from ..ir.fold import fold, unfold
from ..ir.pointer import JSON
from ..ir.response import Response
from ..ir.text import dumps, to_bytes
from ..wire import get
from .redact import REMOVED, Redactor

__all__ = ["Sanitiser", "TimedChunk"]

TimedChunk: TypeAlias = tuple[float, bytes]  # seconds since the request, and the data

_HEADERS = frozenset(
    "accept accept-encoding anthropic-beta anthropic-version cache-control content-encoding content-length content-type date "
    "openai-beta retry-after retry-after-ms traceparent transfer-encoding user-agent x-request-id x-should-retry".split()
)
_HEADER_FAMILIES = ("anthropic-ratelimit-", "x-ratelimit-", "x-toolwire-", "x-stainless-")
_PERSONAL_FIELDS = (
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "metadata",
    "labels",
)  # top-level fields of a request
_SECRETS = frozenset(
    "password passwd passphrase secret clientsecret apikey accesstoken refreshtoken idtoken authtoken bearertoken token "
    "sessiontoken privatekey secretkey authorization cookie setcookie credential credentials xapikey".split()
)
_QUERY = frozenset({"key", "api_key", "token", "access_token"})
_BASE64 = re.compile(r"(data:[\w.+/-]+;base64,)?([A-Za-z0-9+/_-]{512,}={0,2})").fullmatch
# the same names in JSON that cannot be parsed, because it was truncated
_NAMED = re.compile(
    r"""(?i)(\\?"(?:password|passphrase|(?:client_?)?secret|[a-z_]*api_?key|[a-z]+_token|private_?key)\\?"\s*:\s*\\?")[^"\\]*"""
)
_LINE = re.compile(rb"((?:data: ?)?)(.*?)([\r\n]*)", re.DOTALL).fullmatch
_KEPT_OF_MEDIA = 64  # characters of base64: whole groups of four


class Sanitiser:
    def __init__(self, redactor: Redactor, *, shorten_media: bool = False) -> None:
        self._redact = redactor
        self._shorten = shorten_media

    def with_more_secrets(self, secrets: Sequence[str]) -> Sanitiser:
        return Sanitiser(self._redact.with_secrets(secrets), shorten_media=self._shorten)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Keep all names, but only values that do not identify the client."""
        return {
            name: self._redact(value) if name in _HEADERS or name.startswith(_HEADER_FAMILIES) else REMOVED
            for name, value in headers.items()
        }

    def query(self, query: Mapping[str, str]) -> dict[str, str]:
        return {self._redact(name): REMOVED if name in _QUERY else self._redact(value) for name, value in query.items()}

    def text(self, text: str) -> str:
        return self._redact(text)

    def non_json(self, data: bytes) -> str:
        """Sanitise a body that is not JSON."""
        return _NAMED.sub(rf"\1{REMOVED}", self._redact(data.decode("utf-8", "replace")))

    def body(self, document: JSON) -> JSON:
        """Sanitise a request or an answer; some answers repeat their request."""
        cleaned = self.document(document)
        if isinstance(cleaned, dict):
            _drop_personal_fields(cleaned)
            _drop_personal_fields(cleaned.get("response"))
        return cleaned

    def document(self, value: JSON) -> JSON:
        """Sanitise any JSON."""
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, dict):
            return {self._redact(name): self._field(name, one, value) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.document(one) for one in value]
        return value

    def _field(self, name: str, value: JSON, around: Mapping[str, JSON]) -> JSON:
        told = isinstance(value, (str, int, float)) and not isinstance(value, bool) and "logprob" not in around
        if told and re.sub(r"[-_ ]", "", name).lower() in _SECRETS:
            return REMOVED
        return self.document(value)

    def _string(self, text: str) -> str:
        if self._shorten and (media := _BASE64(text)):
            return (media[1] or "") + media[2][:_KEPT_OF_MEDIA]
        if text[:1] not in ("{", "["):
            return self._redact(text)
        try:  # JSON in a string: the arguments of a call, the result of a tool
            inner = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return _NAMED.sub(rf"\1{REMOVED}", self._redact(text))
        cleaned = self.document(inner)
        return text if cleaned == inner else dumps(cleaned)

    def pieces(self, pieces: Sequence[TimedChunk], wire: str | None) -> list[TimedChunk]:
        """Sanitise the pieces of a stream, with the original boundaries.

        If a value to remove spans several events, the stream is encoded again, one piece per event.
        """
        data = b"".join(piece for _, piece in pieces)
        events, whole = ([], True) if wire is None else _events(data, wire)
        if all(self.document(said) == said for said in _stream_values(events)):
            return self._line_by_line(pieces, data)
        if wire is None or not whole:
            return [(pieces[-1][0], REMOVED.encode())]  # an incomplete stream cannot be encoded again
        response = msgspec.convert(self.document(msgspec.to_builtins(fold(events))), Response)
        encoder = get(wire).stream_encoder()
        written = [encoder.feed(event) for event in unfold(response)]
        last = len(pieces) - 1
        return [(pieces[min(number, last)][0], one) for number, one in enumerate(written) if one]

    def _line_by_line(self, pieces: Sequence[TimedChunk], data: bytes) -> list[TimedChunk]:
        lines = [(line, self._line(line)) for line in data.splitlines(keepends=True)]
        return list(pieces) if all(old == new for old, new in lines) else _resplit(pieces, lines)

    def _line(self, line: bytes) -> bytes:
        head, payload, end = _LINE(line).groups()  # type: ignore[union-attr]  # matches every line
        try:
            document = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            text = line.decode("utf-8", "surrogateescape")
            return _NAMED.sub(rf"\1{REMOVED}", self._redact(text)).encode("utf-8", "surrogateescape")
        cleaned = self.body(document)
        return line if cleaned == document else bytes(head + to_bytes(cleaned) + end)


def _drop_personal_fields(body: JSON) -> None:
    for name in _PERSONAL_FIELDS if isinstance(body, dict) else ():
        if body.get(name):
            body[name] = _anonymous(body[name])


def _anonymous(value: JSON) -> JSON:
    return dict.fromkeys(value, REMOVED) if isinstance(value, dict) else REMOVED


def _events(data: bytes, wire: str) -> tuple[list[Event], bool]:
    """Decode a stream as far as possible. Return the events, and whether they are complete."""
    decoder = get(wire).stream_decoder()
    events: list[Event] = []
    try:
        for line in data.splitlines(keepends=True):
            events += decoder.feed(line)
        events += decoder.close()
    except ToolwireError:
        return events, False
    return events, True


def _stream_values(events: list[Event]) -> Iterator[JSON]:
    """Collect the contents of a stream from its pieces."""
    words: dict[tuple[type[Event], int], list[str]] = {}
    for event in events:
        if isinstance(event, (TextDelta, ReasoningDelta, CallDelta)):
            words.setdefault((type(event), event.key), []).append(event.text)
        elif isinstance(event, CallEnd):
            yield event.arguments
        elif isinstance(event, (PartStart, WholePart)):
            yield msgspec.to_builtins(event.part)
    for pieces in words.values():
        yield "".join(pieces)


def _resplit(pieces: Sequence[TimedChunk], lines: Sequence[tuple[bytes, bytes]]) -> list[TimedChunk]:
    """Apply the boundaries of the old lines to the new ones; one inside a changed line moves to its end."""
    ends: list[tuple[int, float]] = []
    for seconds, piece in pieces:
        ends.append(((ends[-1][0] if ends else 0) + len(piece), seconds))
    places: dict[int, float] = {}
    ends.reverse()
    before = after = 0
    for old, new in lines:
        while ends and ends[-1][0] <= before + len(old):
            end, seconds = ends.pop()
            places[after + (end - before if old == new else len(new))] = seconds
        before, after = before + len(old), after + len(new)
    data = b"".join(new for _, new in lines)
    starts = [0, *places]
    return [(seconds, data[start:end]) for start, (end, seconds) in zip(starts, places.items(), strict=False)]
