"""Reasoning that a client carries for us: signed by the gateway, recognised when it returns.

DeepSeek, Kimi and other servers want the reasoning of a tool turn back, and have no signature of their own for it
(musistudio/claude-code-router#1378, router-for-me/CLIProxyAPI#3451). Anthropic's `signature` and the `encrypted_content`
of OpenAI Responses are opaque to clients, which return them verbatim, also those that remove the visible text. So the
gateway writes the reasoning itself into this slot. It then needs no store, and any worker with the secret can read it.

    PREFIX base64url( MAC | version | key id | upstream | model | compressed contents )

Every field has its length before it, so no two lists of fields have the same bytes. The MAC is HMAC-SHA256 over all of
them. Invariants:

1. The MAC is compared, in constant time, before any byte of the contents is decompressed or parsed.
2. The contents are never more than the client sees: they are signed, not encrypted.
3. The upstream is a keyed digest, because the address of a server is not for clients.
4. Reasoning is restored only for the upstream and model that produced it, and only if the visible text is empty or
   unchanged. Everything else with the prefix is foreign: `_as_foreign` removes all that an encoder would send back.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest, digest

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...ir.events import Event, ReasoningDelta, ReasoningEnd, ReasoningStart, WholePart
from ...ir.folding import merge_extra
from ...ir.hosted import ISSUED_HERE
from ...ir.parts import Artefact, Extra, Part, Reasoning
from ...ir.pointer import JSON
from ...ir.request import Message
from ...ir.response import Response
from ...ir.text import escape
from ...wire.hosted import is_issued_here

PREFIX = ISSUED_HERE
ENVELOPE_WIRES = {"anthropic": ("anthropic", "signature"), "openai_responses": ("openai", "encrypted")}
"""The provider and kind of the artefact in which each wire has room for an envelope."""
MAX_CONTENTS = 1024 * 1024
"""Bytes of one piece of reasoning with its fields; as for a stored turn. 128,000 tokens are about half of it."""
MAX_OPENED = 8 * 1024 * 1024
"""Bytes of all reasoning restored in one request: a window of a million tokens is about 4 MB. Without a bound, a client
could repeat an envelope of 1 KB, which may contain 1 MB."""
_MAX_TEXT = len(PREFIX) + MAX_CONTENTS * 3 // 2  # base64 adds a third; text that does not shrink, and the other fields
_VERSION = b"\x01"
_FIELDS = 5  # version, key id, upstream, model, contents
_MAC_SIZE = 32  # bytes of SHA-256
_KEY_ID_SIZE = 4  # enough to choose between two secrets; a collision only fails the comparison of the MAC
_UPSTREAM_SIZE = 16  # bytes: no two servers of a gateway collide, and the MAC protects it
_BLOCK = 8 * 1024  # bytes that are compressed at once; for each delta, the call would cost more than its work
_WINDOW_BITS, _MEMORY_LEVEL = 12, 5  # 32 KB instead of 256 KB; the output is up to 14 % larger
_FEW_TILDES = 64  # of which each is examined; in a text with more, a search for the whole mark costs less
_MARK = PREFIX.encode()
_LONGEST_MARK = len(_MARK) * len(b"\\u0054")
_ESCAPED_LETTER = re.compile(rb"\\u00[457]").search  # each character of the mark is U+004x, U+005x or U+007x
_ESCAPED_MARK = re.compile(
    b"".join([rb"(?:%b|\\u00%x(?i:%x))" % (re.escape(b"%c" % byte), byte >> 4, byte & 15) for byte in _MARK])
).search
# `data` of Anthropic's redacted thinking; the others are of runs of hosted tools and of citations.
_SLOTS = frozenset({"signature", "data", "encrypted_content", "id", "tool_use_id", "encrypted_index"})
_PURPOSE = b"toolwire reasoning envelope"  # the secret may get other uses


class _EnvelopeContents(Struct):
    """The contents of an envelope: texts with the number of their summary section, in order, and fields of the wire."""

    runs: list[tuple[int | None, str]]
    extra: Extra


_decode_contents = msgspec.json.Decoder(_EnvelopeContents).decode


class ReasoningEnvelopes:
    """The envelopes of one gateway. The first secret signs; all of them verify, for a rotation."""

    __slots__ = ("_keys", "identity")

    def __init__(self, secrets: Sequence[str]) -> None:
        keys = [digest(secret.encode(), _PURPOSE, sha256) for secret in secrets]
        self._keys = {sha256(key).digest()[:_KEY_ID_SIZE]: key for key in keys}
        self.identity = b"".join(self._keys).hex()
        """Changes with the secrets, for caches of opened envelopes."""

    def for_model(self, wire: str, server: str, model: str) -> ModelEnvelopes:
        """Return the envelopes for the reasoning of one model, under the name that is sent to `server`."""
        return ModelEnvelopes(self, wire, server, model)

    def pack(self, wire: str, server: str, model: str, compressed: bytes) -> str:
        """Sign with the first secret."""
        key_id, key = next(iter(self._keys.items()))
        fields = (_VERSION, key_id, _upstream_digest(key, wire, server), _to_bytes(model), compressed)
        body = b"".join([len(field).to_bytes(4) + field for field in fields])
        return PREFIX + urlsafe_b64encode(digest(key, body, sha256) + body).decode()

    def unpack(self, text: str, wire: str, server: str, model: str) -> bytes | None:
        """Return the compressed contents if a secret signed them for this model, or None."""
        data = _decode_base64(text)
        fields = None if data is None else _split_fields(data)
        if data is None or fields is None or fields[0] != _VERSION:
            return None
        key = self._keys.get(fields[1])
        if key is None or not compare_digest(digest(key, data[_MAC_SIZE:], sha256), data[:_MAC_SIZE]):
            return None
        is_own = fields[2] == _upstream_digest(key, wire, server) and fields[3] == _to_bytes(model)
        return fields[4] if is_own else None


class ModelEnvelopes:
    """The envelopes for one model at one server of the wire `wire`."""

    __slots__ = ("_envelopes", "_model", "_server", "_wire", "identity")

    def __init__(self, envelopes: ReasoningEnvelopes, wire: str, server: str, model: str) -> None:
        self._envelopes = envelopes
        self._wire, self._server, self._model = wire, server, model
        self.identity = envelopes.identity

    def may_return(self, extra: Extra) -> bool:
        """Return whether reasoning with these fields could be sent back: its wire marks its own.

        Anthropic and OpenAI accept only reasoning with a signature of their own.
        """
        return self._wire not in ENVELOPE_WIRES and (self._wire in extra or f"{self._wire}~" in extra)

    def own_fields(self, extra: Extra) -> Extra:
        """Return the fields that only the wire of the model has."""
        wire = self._wire
        return {name: fields for name, fields in extra.items() if name.rstrip("~").partition("/")[0] == wire}

    def pack(self, compressed: bytes) -> str:
        return self._envelopes.pack(self._wire, self._server, self._model, compressed)

    def open(self, text: str) -> tuple[Reasoning, int] | None:
        """Return the reasoning of an envelope and its size in bytes, or None if it is invalid or of another model."""
        compressed = self._envelopes.unpack(text, self._wire, self._server, self._model)
        data = None if compressed is None else _decompress(compressed)
        if data is None:
            return None
        try:
            contents = _decode_contents(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        texts: dict[int | None, str] = {}
        for section, run in contents.runs:
            texts[section] = texts.get(section, "") + run
        whole = texts.pop(None, "")
        summary = tuple([run for _, run in sorted(texts.items())])
        return Reasoning(whole, summary, (), contents.extra), len(data)


class _Sealing:
    """The envelope of one piece of reasoning, compressed as it arrives, so that its end costs no more than a delta.

    It needs less memory than five times the text, with which a stream is counted.
    """

    __slots__ = ("_compressor", "_envelopes", "_extra", "_output", "_pending", "_section", "_size")

    def __init__(self, envelopes: ModelEnvelopes, extra: Extra) -> None:
        self._envelopes = envelopes
        self._extra = extra
        self._compressor: zlib._Compress | None = None  # from the first full block on
        self._output: list[bytes] = []
        self._pending = bytearray(b'{"runs":[')  # a list of small deltas would be ten times as large
        self._size = 0
        self._section: int | None = -1  # no run is open

    def add(self, section: int | None, escaped: bytes) -> None:
        """Add text of the reasoning, or of a section of its summary. Nothing is kept above the limit."""
        if section != self._section:
            closing = b"" if self._section == -1 else b'"],'
            escaped = closing + (b'[null,"' if section is None else b'[%d,"' % section) + escaped
            self._section = section
        self._pending += escaped
        if len(self._pending) >= _BLOCK:
            self._compress()

    def _compress(self) -> None:
        self._size += len(self._pending)
        if self._size <= MAX_CONTENTS:
            if self._compressor is None:
                self._compressor = zlib.compressobj(wbits=_WINDOW_BITS, memLevel=_MEMORY_LEVEL)
            self._output.append(self._compressor.compress(self._pending))
        self._pending.clear()

    def finish(self, extra: Extra) -> str | None:
        """Return the envelope, or None if there is no text or too much."""
        if self._section == -1:
            return None
        fields = msgspec.json.encode(self._envelopes.own_fields(merge_extra(self._extra, extra)))
        self._pending += b'"]],"extra":%b}' % fields
        self._compress()
        if self._compressor is None or self._size > MAX_CONTENTS:
            return None
        return self._envelopes.pack(b"".join([*self._output, self._compressor.flush()]))


class AnswerSealer:
    """Add envelopes to the reasoning of one answer, whole or streamed. `client_wire` is one of `ENVELOPE_WIRES`.

    Reasoning with a signature of its provider, or that the model's wire could not send back, gets none.
    """

    __slots__ = ("_envelopes", "_kind", "_open", "_provider")

    def __init__(self, envelopes: ModelEnvelopes, client_wire: str) -> None:
        self._envelopes = envelopes
        self._provider, self._kind = ENVELOPE_WIRES[client_wire]
        self._open: dict[int, _Sealing] = {}  # by key

    def seal_response(self, response: Response) -> Response:
        """Return a whole answer with envelopes; the same object if there is nothing to seal."""
        if Reasoning not in map(type, response.parts):
            return response
        return replace(response, parts=tuple(map(self._seal_part, response.parts)))

    def seal_event(self, event: Event) -> Event:
        """Return an event of a stream; the end of reasoning gets its envelope, for which its deltas are collected."""
        if isinstance(event, ReasoningDelta):
            sealing = self._open.get(event.key)
            if sealing is not None:
                sealing.add(event.section, event.escaped)
        elif isinstance(event, ReasoningStart):
            if event.choice == 0 and self._envelopes.may_return(event.extra):
                self._open[event.key] = _Sealing(self._envelopes, event.extra)
        elif isinstance(event, ReasoningEnd):
            sealing = self._open.pop(event.key, None)
            text = None if sealing is None or event.artefacts else sealing.finish(event.extra)
            return event if text is None else replace(event, artefacts=self._make_artefacts(text))
        elif isinstance(event, WholePart):
            sealed = self._seal_part(event.part)
            return event if sealed is event.part else replace(event, part=sealed)
        return event

    def _seal_part(self, part: Part) -> Part:
        """Return reasoning with its envelope; any other part, and reasoning that gets none, as it is."""
        if not isinstance(part, Reasoning) or part.artefacts or not self._envelopes.may_return(part.extra):
            return part
        sealing = _Sealing(self._envelopes, part.extra)
        for section, summary in enumerate(part.summary):
            sealing.add(section, escape(summary))
        if part.text:
            sealing.add(None, escape(part.text))
        text = sealing.finish({})
        return part if text is None else replace(part, artefacts=self._make_artefacts(text))

    def _make_artefacts(self, text: str) -> tuple[Artefact, ...]:
        return (Artefact(self._provider, self._kind, text),)


class EnvelopeReader:
    """Open the envelopes of one request for one model.

    `opened` is the number of bytes that were restored. `found` is True after an envelope, also of another model, and
    after a run of a hosted tool that the provider did not run.
    """

    __slots__ = ("_envelopes", "found", "opened")

    def __init__(self, envelopes: ModelEnvelopes, opened: int = 0) -> None:
        self._envelopes = envelopes
        self.found = False
        self.opened = opened

    def open_messages(self, messages: list[Message]) -> list[Message]:
        """Return messages of the model with the reasoning of their envelopes; the same list if there are none."""
        if not any(_find_envelope(part) or is_issued_here(part) for message in messages for part in message.parts):
            return messages
        self.found = True
        return [replace(message, parts=tuple(map(self._open_part, message.parts))) for message in messages]

    def _open_part(self, part: Part) -> Part:
        """Return the reasoning in an envelope and count it, or foreign reasoning if it may not be used."""
        envelope = _find_envelope(part)
        if not envelope or not isinstance(part, Reasoning):
            return part
        found = self._envelopes.open(envelope) if self.opened < MAX_OPENED else None
        if found is None or not _shows_the_same(part, found[0]) or self.opened + found[1] > MAX_OPENED:
            return _as_foreign(part)
        self.opened += found[1]
        return found[0]


def may_contain_envelope(body: bytes) -> bool:
    """Return whether a JSON text contains the prefix in any spelling: plain, or with escaped letters.

    To find a byte costs a tenth of finding several, and most texts have few tildes. The prefix ends with a tilde.
    """
    position = -1
    for _ in range(_FEW_TILDES):
        position = body.find(b"~", position + 1)
        if position < 0:
            break
        if body.startswith(_MARK, position + 1 - len(_MARK)):
            return True
    else:
        if body.find(_MARK, position) >= 0:
            return True
    return b"\\u00" in body and _ESCAPED_LETTER(body) is not None and _ESCAPED_MARK(body) is not None


def has_envelope(document: JSON) -> bool:
    """Return whether a field of a request that carries envelopes has one; a text may quote the prefix."""
    values = [document]
    while values:
        value = values.pop()
        if type(value) is dict:
            if any(type(value.get(name)) is str and PREFIX in value[name] for name in _SLOTS):
                return True
            values += value.values()
        elif type(value) is list:
            values += value
    return False


class EnvelopeFinder:
    """Searches a JSON text that arrives in pieces, like `may_contain_envelope`."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""  # the end of the last pieces, in which the prefix may begin

    def feed(self, piece: bytes) -> bool:
        """Return whether the prefix is in this piece, or begins before it."""
        overlap = _LONGEST_MARK - 1
        seam, self._tail = self._tail + piece[:overlap], (self._tail + piece[-overlap:])[-overlap:]
        return may_contain_envelope(piece) or may_contain_envelope(seam)


def without_envelopes(part: Part) -> Part:
    """Return a part of an answer as the model made it."""
    return replace(part, artefacts=()) if isinstance(part, Reasoning) and _find_envelope(part) else part


def _as_foreign(part: Reasoning) -> Reasoning:
    """Return reasoning that belongs to no provider: it is dropped as a loss on every wire, also on the client's own."""
    return Reasoning(part.text, part.summary)


def _shows_the_same(part: Reasoning, sealed: Reasoning) -> bool:
    """Return whether the client's copy has no text, or the text that we sent; Codex keeps only the summary."""
    if part.text in ("", sealed.text) and part.summary in ((), sealed.summary):
        return True
    return part.joined_text == sealed.joined_text


def _find_envelope(part: Part) -> str:
    artefacts = part.artefacts if type(part) is Reasoning else ()
    return next((item.data for item in artefacts if PREFIX in item.data), "")  # also with something before it


def _upstream_digest(key: bytes, wire: str, server: str) -> bytes:
    return digest(key, _to_bytes(f"{wire} {server}"), sha256)[:_UPSTREAM_SIZE]


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode_base64(text: str) -> bytes | None:
    """Decode the canonical form only, so that no other text has the same MAC. Return None for any other text."""
    encoded = text[len(PREFIX) :]
    if not text.startswith(PREFIX) or len(text) > _MAX_TEXT or not encoded.isascii():
        return None
    try:
        data = b64decode(encoded, b"-_", validate=True)
    except (Base64Error, ValueError):
        return None
    return data if urlsafe_b64encode(data).decode() == encoded else None


def _split_fields(data: bytes) -> list[bytes] | None:
    fields, start = [], _MAC_SIZE
    for _ in range(_FIELDS):
        size = int.from_bytes(data[start : start + 4])
        start += 4 + size
        fields.append(data[start - size : start])
    return fields if start == len(data) else None


def _decompress(compressed: bytes) -> bytes | None:
    """Decompress at most MAX_CONTENTS bytes; None if there are more."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(compressed, MAX_CONTENTS + 1)
    except zlib.error:
        return None
    return data if len(data) <= MAX_CONTENTS and decompressor.eof else None
