"""Sanitise a recorded exchange: keep enough to replay it, remove personal data and credentials.

Headers that identify the client, keys, cookies, user ids, values under names such as `password`, and everything that
the redactor knows or recognises are replaced. A stream is checked as a whole, because a secret may span two pieces.

Secrets are recognised by the names of their fields: `password`, `dbPassword`, `x-auth-token`, `aws_secret_access_key`.
A name is judged by its end: `token_count` and `password_policy` are no secrets, nor are tokens that mark a page or the
limits of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

import msgspec

from ...ir.errors import ToolwireError
from ...ir.events import CallDelta, CallEnd, Event, PartStart, ReasoningDelta, TextDelta, WholePart
from ...ir.folding import fold, unfold
from ...ir.pointer import JSON
from ...ir.response import Response
from ...ir.text import dumps, to_bytes
from ...stream.event_stream import is_event_stream
from ...wire import get
from ...wire.models.chunks import readable_pieces
from .redact import REMOVED, Redactor

# Recognise secrets by the names of their fields: `password`, `dbPassword`, `x-auth-token`, `aws_secret_access_key` …
# A name is judged by its end: `token_count` and `password_policy` are no secrets, nor are tokens that mark a page or
# the limits of a text.


_MAX_NAME = 64  # characters at the end of a name that are read
_is_secret_end = re.compile(
    r".*(?:password|passwd|passphrase|pwd|secret|apikey|accesskey|secretkey|privatekey|signingkey|encryptionkey"
    r"|credential|authorization|cookie|token)s?(?:hash|value)?|auth"
).fullmatch
_is_harmless_token = re.compile(
    r".*(?:page|next|continuation|sync|eos|bos|pad|unk|sep|stop|special|start|end|max|min|per)tokens?"
).fullmatch
# Patterns for texts. The search for marks is cheap; the rest is tried only where a mark begins.
_find_marks = re.compile("passw|passphrase|pwd|secret|key|credential|authorization|cookie|token").finditer
_NAME_END = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret(?![_-]?(?:access[_-]?)?key)|credential|authorization|cookie"
    r"|(?<![pP]age)(?<![pP]age[_-])(?<![nN]ext[_-])token"
    + "".join(f"|(?<={word})key|(?<={word}[_-])key" for word in ("api", "access", "secret", "private", "signing"))
    + r")s?(?:[_-]?(?:hash|value))?"
)
_VALUES = (
    re.compile(rf"""(?i)({_NAME_END}\\?["']\s{{0,8}}:\s{{0,8}}\\?["'])[^"'\\]+"""),  # JSON that cannot be parsed
    re.compile(rf"""(?i)({_NAME_END}\s{{0,8}}=(?!=)\s{{0,8}}["']?)[^\s"'&,;]+"""),
)
_LINE = re.compile(rf"(?im)({_NAME_END}:[ \t]{{1,8}})[^\s\[\]{{}}]+$")  # YAML
_is_line_start = re.compile(r"[ \t-]*+[\w.-]*+").fullmatch
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


@lru_cache(4096)
def _normalise(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name[-_MAX_NAME:].lower())


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Return True for the name of a field that has a secret."""
    normal = _normalise(name)
    return _is_secret_end(normal) is not None and _is_harmless_token(normal) is None


def is_plural_name(name: str) -> bool:
    """Return True for names such as `tokens`: numbers under them are counts."""
    return _normalise(name).endswith("s")


def remove_named_secrets(text: str) -> str:
    """Remove the values after such names in a text: `"password": "…"`, `password=…`, and `password: …` as a line."""
    if "=" not in text and ":" not in text:
        return text
    pieces: list[str] = []
    start = 0
    for mark in _find_marks(text.translate(_ASCII_LOWER)):
        found = None if mark.start() < start else _match_value(text, mark.start())
        if found is not None:
            pieces += (text[start : found.end(1)], REMOVED)
            start = found.end()
    return "".join((*pieces, text[start:])) if pieces else text


def _match_value(text: str, position: int) -> re.Match[str] | None:
    """Match a name from here, and its value."""
    for pattern in _VALUES:
        found = pattern.match(text, position)
        if found is not None:
            return found
    found = _LINE.match(text, position)
    before = text[max(0, position - _MAX_NAME) : position]
    return found if found is not None and _is_line_start(before.rpartition("\n")[2]) else None


S = TypeVar("S", bound=msgspec.Struct)
TimedChunk: TypeAlias = tuple[float, bytes]  # seconds since the request, and the data

_SAFE_HEADERS = frozenset(
    "accept accept-encoding anthropic-beta anthropic-version cache-control content-encoding content-length content-type date "
    "openai-beta retry-after retry-after-ms traceparent transfer-encoding user-agent x-request-id x-should-retry".split()
)
_HEADER_FAMILIES = ("anthropic-ratelimit-", "x-ratelimit-", "x-toolwire-", "x-stainless-")
_PERSONAL_FIELDS = (
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "cache_key",
    "metadata",
    "labels",
)  # top-level fields of a request
_SECRET_QUERY_FIELDS = frozenset({"key", "api_key", "token", "access_token"})
_BASE64 = re.compile(r"(data:[\w.+/-]+;base64,)?([A-Za-z0-9+/_-]{512,}={0,2})").fullmatch
_DATA = re.compile(rb"data: ?+|").match
_SCHEMA_MAPS = frozenset(
    "properties patternProperties dependentRequired dependentSchemas dependencies $defs definitions".split()
)
_MAX_DEPTH = 100  # levels of a document; each takes several frames of the stack
_MIN_SECRET_NUMBER = 10**7  # no text of fewer digits is a known secret
_MAX_SECRET_NUMBER = 10**64  # no secret has more digits; `int` to text is quadratic, and refuses more than 4,300 digits
_MEDIA_PREFIX_LENGTH = 64  # characters of base64: whole groups of four


class Sanitiser:
    """Remove secrets and personal data from recorded data. `shorten_media` truncates long base64 strings."""

    def __init__(self, redactor: Redactor, *, shorten_media: bool = False) -> None:
        self._redact = redactor
        self._shorten = shorten_media

    def with_more_secrets(self, secrets: Sequence[str]) -> Sanitiser:
        return Sanitiser(self._redact.with_secrets(secrets), shorten_media=self._shorten)

    def sanitise_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Keep all names, but only values that do not identify the client."""
        return {
            name: self._redact(value) if name in _SAFE_HEADERS or name.startswith(_HEADER_FAMILIES) else REMOVED
            for name, value in headers.items()
        }

    def sanitise_query(self, query: Mapping[str, str]) -> dict[str, str]:
        return {
            self._redact(name): REMOVED if name in _SECRET_QUERY_FIELDS else self._redact(value)
            for name, value in query.items()
        }

    def sanitise_text(self, text: str) -> str:
        """Sanitise a text. Lone surrogates, which JSON cannot contain, become question marks."""
        if self._redact.can_skip(text):
            return text
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()
        return remove_named_secrets(self._redact(text))

    def sanitise_texts(self, value: S) -> S:
        """Sanitise the fields of a struct that are texts."""
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        texts = {name: self.sanitise_text(field) for name, field in fields if type(field) is str}
        return msgspec.structs.replace(value, **texts)

    def sanitise_non_json(self, data: bytes) -> str:
        """Sanitise a body that is not JSON."""
        return self.sanitise_text(data.decode("utf-8", "replace"))

    def sanitise_body(self, document: JSON) -> JSON:
        """Sanitise a request or an answer; some answers repeat their request."""
        cleaned = self.sanitise_document(document)
        if isinstance(cleaned, dict):
            _drop_personal_fields(cleaned)
            _drop_personal_fields(cleaned.get("response"))
        return cleaned

    def sanitise_request(self, document: JSON) -> JSON:
        """Sanitise a request in canonical form."""
        cleaned = self.sanitise_body(document)
        if isinstance(cleaned, dict):
            _drop_personal_fields(cleaned.get("params"))
        return cleaned

    def sanitise_document(self, value: JSON, depth: int = 0) -> JSON:
        """Sanitise any JSON. A part that is nested too deeply is removed. `depth`: the levels around the value."""
        if isinstance(value, str):
            return self._sanitise_string(value)
        if isinstance(value, (dict, list, tuple)) and depth >= _MAX_DEPTH:
            return REMOVED
        if isinstance(value, dict):
            return {self.sanitise_text(name): self._sanitise_field(name, value, depth) for name in value}
        if isinstance(value, (list, tuple)):
            return [self.sanitise_document(item, depth + 1) for item in value]
        if type(value) in (int, float) and _MIN_SECRET_NUMBER <= abs(value) <= _MAX_SECRET_NUMBER:
            text = dumps(value)
            return value if self._redact(text) == text else REMOVED
        return value

    def _sanitise_field(self, name: str, parent: Mapping[str, JSON], depth: int) -> JSON:
        """Sanitise one field. All texts under the name of a secret are removed, but not from a schema."""
        value = parent[name]
        if name in _SCHEMA_MAPS and isinstance(value, dict):
            return {
                self.sanitise_text(inner): self.sanitise_document(item, depth + 2)
                if isinstance(item, (dict, list))
                else self._sanitise_field(inner, value, depth + 1)
                for inner, item in value.items()
            }
        if _has_secret(name, parent):
            value = _remove_scalars(value, keep_numbers=is_plural_name(name), depth=depth)
        return self.sanitise_document(value, depth + 1)

    def _sanitise_string(self, text: str) -> str:
        """Sanitise a string.

        JSON inside it is parsed, so that fields such as `password` are found; if unchanged, its spelling is kept. Media as
        base64 are cut where texts are shortened.
        """
        if self._shorten and (media := _BASE64(text)):
            return (media[1] or "") + media[2][:_MEDIA_PREFIX_LENGTH]
        if text[:1] not in ("{", "["):
            return self.sanitise_text(text)
        try:  # JSON in a string: the arguments of a call, the result of a tool
            inner = msgspec.json.decode(text)
            cleaned = self.sanitise_document(inner)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return self.sanitise_text(text)
        return text if cleaned == inner else dumps(cleaned)

    def sanitise_pieces(self, pieces: Sequence[TimedChunk], wire: str | None) -> list[TimedChunk]:
        """Sanitise the pieces of a stream, with the original boundaries.

        If a value to remove spans several events, the stream is encoded again, one piece per event.
        """
        pieces = pieces if wire is None else readable_pieces(pieces, wire)
        data = b"".join(piece for _, piece in pieces)
        events, is_complete = ([], True) if wire is None else _decode_events(data, wire)
        if all(self.sanitise_document(streamed_value) == streamed_value for streamed_value in _stream_values(events)):
            sanitised = self._sanitise_lines(pieces, data)
            if not is_event_stream(data) or sanitised == list(pieces):
                return sanitised  # else the checksums of the messages would be wrong
        if wire is None or not is_complete:
            return [(pieces[-1][0], REMOVED.encode())]  # an incomplete stream cannot be encoded again
        response = msgspec.convert(self.sanitise_document(msgspec.to_builtins(fold(events))), Response)
        encoder = get(wire).stream_encoder()
        encoded = [encoder.feed(event) for event in unfold(response)]
        last_index = len(pieces) - 1
        return [(pieces[min(number, last_index)][0], item) for number, item in enumerate(encoded) if item]

    def _sanitise_lines(self, pieces: Sequence[TimedChunk], data: bytes) -> list[TimedChunk]:
        lines = [(line, self._sanitise_line(line)) for line in data.splitlines(keepends=True)]
        return list(pieces) if all(old == new for old, new in lines) else _resplit(pieces, lines)

    def _sanitise_line(self, line: bytes) -> bytes:
        """Sanitise a line of a stream. A line without JSON, or with truncated JSON, is sanitised as text."""
        content = line.rstrip(b"\r\n")
        start = _DATA(content).end()  # type: ignore[union-attr]  # matches every line
        head, payload, end = content[:start], content[start:], line[len(content) :]
        try:
            document = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            text = line.decode("utf-8", "surrogateescape")
            return remove_named_secrets(self._redact(text)).encode("utf-8", "surrogateescape")
        cleaned = self.sanitise_body(document)
        return line if cleaned == document else bytes(head + to_bytes(cleaned) + end)


def _has_secret(name: str, parent: Mapping[str, JSON]) -> bool:
    """Return True if a field has a secret: by its name, or by the name beside it, as in `{"name": …, "value": …}`.

    The tokens of log probabilities are no secrets.
    """
    if is_secret_name(name):
        return not ("logprob" in parent or "token_logprobs" in parent)
    beside = parent.get("name", parent.get("key")) if name == "value" else None
    return isinstance(beside, str) and is_secret_name(beside)


def _remove_scalars(value: JSON, *, keep_numbers: bool, depth: int) -> JSON:
    """Replace all texts and numbers in a value by the mark; `keep_numbers`: only the texts."""
    if isinstance(value, (dict, list, tuple)) and depth >= _MAX_DEPTH:
        return REMOVED
    if isinstance(value, dict):
        return {name: _remove_scalars(item, keep_numbers=keep_numbers, depth=depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_remove_scalars(item, keep_numbers=keep_numbers, depth=depth + 1) for item in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return REMOVED if isinstance(value, str) or (is_number and not keep_numbers) else value


def _drop_personal_fields(body: JSON) -> None:
    for name in _PERSONAL_FIELDS if isinstance(body, dict) else ():
        if body.get(name):
            body[name] = _anonymise(body[name])


def _anonymise(value: JSON) -> JSON:
    return dict.fromkeys(value, REMOVED) if isinstance(value, dict) else REMOVED


def _decode_events(data: bytes, wire: str) -> tuple[list[Event], bool]:
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
    """Yield the contents of a stream: arguments and whole parts, then each text joined from its pieces."""
    texts: dict[tuple[type[Event], int], list[str]] = {}
    for event in events:
        if isinstance(event, (TextDelta, ReasoningDelta, CallDelta)):
            texts.setdefault((type(event), event.key), []).append(event.text)
        elif isinstance(event, CallEnd):
            yield event.arguments
        elif isinstance(event, (PartStart, WholePart)):
            yield msgspec.to_builtins(event.part)
    for pieces in texts.values():
        yield "".join(pieces)


def _resplit(pieces: Sequence[TimedChunk], lines: Sequence[tuple[bytes, bytes]]) -> list[TimedChunk]:
    """Apply the boundaries of the old lines to the new ones; one inside a changed line moves to its end."""
    ends: list[tuple[int, float]] = []
    for seconds, piece in pieces:
        ends.append(((ends[-1][0] if ends else 0) + len(piece), seconds))
    boundaries: dict[int, float] = {}
    ends.reverse()
    old_offset = new_offset = 0
    for old, new in lines:
        while ends and ends[-1][0] <= old_offset + len(old):
            end, seconds = ends.pop()
            boundaries[new_offset + (end - old_offset if old == new else len(new))] = seconds
        old_offset, new_offset = old_offset + len(old), new_offset + len(new)
    data = b"".join(new for _, new in lines)
    starts = [0, *boundaries]
    return [(seconds, data[start:end]) for start, (end, seconds) in zip(starts, boundaries.items(), strict=False)]
