"""The messages of a client of Responses over a WebSocket, and the responses that its later messages may continue.

Values of fields stay JSON texts: a request is put together from them without being parsed, and its handler does that.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from ...ir.errors import ProtocolError
from ...ir.text import to_bytes
from ..memory import MemoryReservation

Fields: TypeAlias = dict[str, Raw]
"""The fields of a message; their values are JSON texts."""
_FieldValue = TypeVar("_FieldValue")

_MAX_KEPT = 1000  # responses of a connection, so that empty ones are bounded, too; an agent's turn has tens
# Of the memory for requests: idle connections may hold it for an hour, and requests in flight need the rest.
_KEPT_SHARE = 4
_REPLACED = ("type", "stream_id", "generate", "stream", "previous_response_id")
_is_stream_id = re.compile(r"[A-Za-z0-9_.-]{1,256}").fullmatch
decode_fields = msgspec.json.Decoder(Fields).decode


class CreateRequest(Struct):
    """A `response.create`, without the fields that only WebSockets have. Their values are JSON texts."""

    fields: Fields
    generates: bool
    stream_id: str | None
    previous_id: str | None

    @property
    def size(self) -> int:
        """The bytes of its fields."""
        return sum([len(name.encode()) + len(bytes(value)) for name, value in self.fields.items()])

    @property
    def items(self) -> bytes:
        """The items of `input`, without the brackets of their list."""
        given = bytes(self.fields.get("input", b"[]")).strip()
        if given.startswith(b'"'):
            return b'{"role":"user","content":%b}' % given
        return given[1:-1].strip() if given.startswith(b"[") else b""

    def encode(self, continued: Continued) -> bytes:
        """Return the body of the request over HTTP, with the items of the conversation before its own.

        The items of the conversation are copied twice, into `input` and into the body.
        """
        fields = {name: bytes(value) for name, value in self.fields.items() if name not in _REPLACED}
        fields["stream"] = b"true"
        if continued.previous_id is not None:
            fields["previous_response_id"] = to_bytes(continued.previous_id)
        if continued.number is not None:
            fields["input"] = b"".join(_list_pieces((*continued.pieces, self.items)))
        written = [piece for name, value in fields.items() for piece in (b",", to_bytes(name), b":", value)]
        return b"".join((b"{", *written[1:], b"}"))


class InvalidMessage(ProtocolError):
    """A message that no response answers."""

    def __init__(self, message: str, *, hint: str, pointer: str = "", code: str | None = None) -> None:
        super().__init__(message, pointer=pointer, hint=hint)
        self.code = code


def parse_message(text: str | None) -> tuple[str, Fields]:
    """Return the type and the fields of a message. Raise InvalidMessage if it is no object with a type.

    The values of the fields are not parsed: the handler of requests does that, and reports their mistakes.
    """
    if text is None:
        raise InvalidMessage("binary messages are not supported", hint="send JSON in text messages")
    try:
        # copies: the decoded values refer to the whole text, and would keep it in memory with its white space
        fields = {name: value.copy() for name, value in decode_fields(text).items()}
        return msgspec.json.decode(fields["type"], type=str), fields
    except (msgspec.MsgspecError, KeyError, UnicodeEncodeError, RecursionError):
        hint = 'send {"type":"response.create", …}'
        raise InvalidMessage("the message is not a JSON object with a type", hint=hint) from None


def _read_field(fields: Fields, name: str, kind: type[_FieldValue]) -> _FieldValue | None:
    """Return a field of a message, or None if it is absent or null. Raise InvalidMessage for another type."""
    try:
        return msgspec.json.decode(fields[name], type=kind | None) if name in fields else None
    except msgspec.MsgspecError:
        raise InvalidMessage(
            f"invalid {name}", pointer=f"/{name}", hint="see the reference of response.create"
        ) from None


def read_create(fields: Fields) -> CreateRequest:
    """Return the request of a `response.create`. Raise InvalidMessage if a field of the WebSocket's own is invalid."""
    stream_id = _read_field(fields, "stream_id", str)
    if stream_id is not None and not _is_stream_id(stream_id):
        hint = "use 1 to 256 letters, digits, underscores, hyphens or periods"
        raise InvalidMessage("invalid stream_id", pointer="/stream_id", hint=hint, code="invalid_stream_id")
    generates = _read_field(fields, "generate", bool) is not False
    return CreateRequest(fields, generates, stream_id, _read_field(fields, "previous_response_id", str))


class _FinalResponse(Struct):
    id: str
    output: Raw = Raw(b"[]")
    store: bool | None = None


class _FinalEvent(Struct):
    """The last event of a response, as far as it is read here."""

    response: _FinalResponse


_final_events = msgspec.json.Decoder(_FinalEvent)


class Continued(Struct, frozen=True):
    """The conversation that a request continues: its kept items, and the id of a response before them that is not kept."""

    number: int | None = None  # of the last kept response
    previous_id: str | None = None
    pieces: tuple[bytes, ...] = ()  # the items of each response, the oldest first; not copied

    @property
    def size(self) -> int:
        """The bytes of its items, with commas between the pieces."""
        return sum(map(len, self.pieces)) + len(self.pieces)


class _KeptItems(Struct, frozen=True):
    """The items of a response, its input and output, after those of the response `before`, or of an id that is not kept."""

    response_id: str
    before: int | None
    previous_id: str | None
    items: bytes

    @property
    def size(self) -> int:
        """The bytes of its items and ids. A client chooses the id before them."""
        return len(self.items) + len(self.response_id) + len(self.previous_id or "")


class KeptResponses:
    """The responses of a connection that are stored nowhere else; the least recently used ones are dropped.

    At most `max_bytes` are kept, and nothing while requests and other connections need much memory. A client that
    continues a dropped response gets an error, and sends the whole conversation again. Responses have numbers, because an
    upstream may use an id twice.
    """

    def __init__(self, memory: MemoryReservation, max_bytes: int) -> None:
        self._entries: OrderedDict[int, _KeptItems] = OrderedDict()  # by number
        self._numbers: dict[str, int] = {}  # of the newest response with an id
        self._next_number = 0
        self._memory = memory
        self._max_bytes = max_bytes
        self._size = 0

    def find(self, response_id: str | None) -> Continued:
        """Return the conversation up to a response; only the id, if a part of it is not kept."""
        number = newest = None if response_id is None else self._numbers.get(response_id)
        pieces: list[bytes] = []
        previous_id = response_id
        while number is not None:
            entry = self._entries.get(number)
            if entry is None:
                return Continued(previous_id=response_id)
            self._entries.move_to_end(number)
            pieces.append(entry.items)
            number, previous_id = entry.before, entry.previous_id
        return Continued(newest, previous_id, tuple(reversed(pieces)))

    def keep(self, create: CreateRequest, continued: Continued, payload: bytes) -> None:
        """Keep the items of a complete response, whose last event is `payload`, unless it is stored elsewhere."""
        try:
            response = _final_events.decode(payload).response
        except msgspec.MsgspecError:  # an upstream may send anything
            return
        output = bytes(response.output).strip()
        items = join_items((create.items, output[1:-1].strip() if output.startswith(b"[") else b""))
        previous_id = continued.previous_id if continued.number is None else None
        entry = _KeptItems(response.id, continued.number, previous_id, items)
        if response.store or entry.size > self._max_bytes or not self._memory.has_share(entry.size, _KEPT_SHARE):
            return
        self._memory.add(entry.size)
        self._size += entry.size
        self._entries[self._next_number] = entry
        self._numbers[response.id] = self._next_number
        self._next_number += 1
        while self._size > self._max_bytes or len(self._entries) > _MAX_KEPT:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        number, oldest = self._entries.popitem(last=False)
        if self._numbers.get(oldest.response_id) == number:
            del self._numbers[oldest.response_id]
        self._size -= oldest.size
        self._memory.subtract(oldest.size)


def join_items(pieces: Iterable[bytes]) -> bytes:
    """Join lists of items, which are JSON texts without brackets."""
    return b",".join([piece for piece in pieces if piece])


def _list_pieces(pieces: Iterable[bytes]) -> list[bytes]:
    """Return the texts of a list of items, to be joined once."""
    commas = [text for piece in pieces if piece for text in (b",", piece)]
    return [b"[", *commas[1:], b"]"]
