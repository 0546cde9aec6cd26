"""The memory of all requests in flight, and its bound.

A request reserves memory for its body, for the values that parsing makes of it, and for its answer while it is relayed.
"""

from __future__ import annotations

from msgspec import Struct

from ..asgi.offload import ClientOffload
from ..bridge.conversation.reading import RequestReading
from ..ir.errors import ProtocolError
from ..stream.strict import count_values, text_copies
from .faults import RateLimited

# A bound on the memory of all requests in flight: their bodies, the values made of them, and buffered answers.


_RETRY_AFTER = 1.0  # seconds; most requests end, and free their memory, within some seconds
_BYTES_PER_VALUE = 120  # measured: a request of 31,000 messages in 1 MB takes 14 MB


class MemoryExhausted(RateLimited):
    """The bound is reached. The request can be repeated when others have ended."""

    default_status = 503


class MemoryBound:
    """The bytes in use, of at most `limit`. A client with a key may use half of them, so that others are served.

    Only reservations change the numbers.
    """

    __slots__ = ("limit", "used", "used_by")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.used_by: dict[str, int] = {}  # by the name of the key

    def check(self, used: int, used_by_client: int) -> None:
        """Raise MemoryExhausted if all requests, or the requests of one key, would use more than they may."""
        if used > self.limit:
            raise _exhausted("all requests in flight", self.limit)
        if used_by_client > self.limit // 2:
            raise _exhausted("the requests of this key in flight", self.limit // 2)


class MemoryReservation(Struct, eq=False):
    """The bytes of one request. `client` is set once its key is known."""

    _bound: MemoryBound
    client: str = ""
    _size: int = 0

    def add(self, size: int) -> None:
        """Reserve more bytes. Raise MemoryExhausted if too few are left for all requests, or for this key's."""
        bound, client = self._bound, self.client
        used, used_by = bound.used + size, bound.used_by
        used_by_client = used_by.get(client, 0) + size
        if used > bound.limit // 2:  # a part of it cannot be more
            bound.check(used, used_by_client if client else 0)
        bound.used = used
        used_by[client] = used_by_client
        self._size += size

    def has_share(self, size: int, share: int) -> bool:
        """Return whether all requests would use at most one `share` of the memory with `size` bytes more: 4 is a quarter."""
        return self._bound.used + size <= self._bound.limit // share

    def subtract(self, size: int) -> None:
        """Free some of the bytes."""
        if not size:
            return
        bound, client = self._bound, self.client
        bound.used -= size
        self._size -= size
        used_by_client = bound.used_by[client] - size
        if used_by_client:
            bound.used_by[client] = used_by_client
        else:
            del bound.used_by[client]

    def release(self) -> None:
        """Free all bytes. It may be called repeatedly."""
        self.subtract(self._size)


def parsed_size(size: int, values: int, copies: int = 1) -> int:
    """Estimate the bytes of everything that is made of a document of `size` bytes, besides the document itself.

    That is its strings (`text_copies`), the body for the upstream, and the values.
    """
    return (copies + 1) * size + _BYTES_PER_VALUE * values


def _exhausted(holder: str, limit: int) -> MemoryExhausted:
    return MemoryExhausted(
        f"{holder} need more than {limit:,} bytes of memory", retry_after=_RETRY_AFTER, hint="retry later"
    )


# Limits on documents before they are parsed: their number of values, and the memory that these will need.


SMALL_DOCUMENT = 8 * 1024
"""Bytes; the values of smaller documents are not counted: a bound by the size is cheaper, and low enough."""
_SMALL_BYTES_PER_VALUE = 8  # of a small document, on average
_COUNTED_AT_ONCE = 256 * 1024  # bytes; the values of larger documents are counted in a thread
_WORK_PER_VALUE = 32  # bytes of text that take as long as a value, at least: up to 1,000 values stay on the event loop
_TEXT_PER_WORK = 8  # text without values is cheap: up to 256 KB of it stay on the event loop


async def admit_document(
    data: bytes, max_values: int, offload: ClientOffload, memory: MemoryReservation, *, status: int = 413
) -> int:
    """Reserve the memory for parsing a document, and return the size of the work that it makes, for `Offload.run`.

    Raise ProtocolError with `status` if it has too many values, and MemoryExhausted if memory is short. Text is cheap. Values are not: an interpreter that
    parses or writes millions of them runs nothing else meanwhile.
    """
    if len(data) <= SMALL_DOCUMENT:
        return admit_small_document(data, memory)
    if len(data) <= _COUNTED_AT_ONCE:
        values = count_values(data)
    else:
        values = await offload.run(len(data), count_values, data)
    _check_values(values, max_values, status)
    memory.add(parsed_size(len(data), values, text_copies(data)))
    return _work_size(values, len(data))


def admit_small_document(data: bytes, memory: MemoryReservation, *, received: int = 0) -> int:
    """Like `admit_document`, for a document of at most SMALL_DOCUMENT bytes.

    `received` is the size of the document if its own bytes are not reserved yet.
    """
    size = len(data)
    needed = parsed_size(size, size // _SMALL_BYTES_PER_VALUE, text_copies(data))
    try:
        memory.add(received + needed)
    except MemoryExhausted:  # raised again by the first of the two reservations that fails, as for larger documents
        memory.add(received)
        memory.add(needed)
    return size


async def admit_request(
    reading: RequestReading, max_values: int, offload: ClientOffload, memory: MemoryReservation
) -> int:
    """Like `admit_document`, for a large request whose first messages may be known: only the others make work."""
    body, new_text = reading.body, reading.new_text
    if len(new_text) <= _COUNTED_AT_ONCE:
        new_values, values = count_values(new_text), reading.values
    else:
        new_values = values = await offload.run(len(new_text), lambda: reading.values)
    _check_values(values, max_values, 413)
    memory.add(parsed_size(len(body), values, reading.text_copies))
    return _work_size(new_values, len(new_text))


def _check_values(values: int, max_values: int, status: int) -> None:
    """Raise ProtocolError if a document has more values than the limit."""
    if values > max_values:
        message = f"the document has {values:,} JSON values; the limit is {max_values:,}"
        raise ProtocolError(
            message, hint="send large data as text; the gateway's operator can raise limits.values", status=status
        )


def _work_size(values: int, size: int) -> int:
    return max(_WORK_PER_VALUE * values, size // _TEXT_PER_WORK)


# The memory that a stream needs while it is relayed: what decoders, recorders and encoders keep of the answer.


_COPIES = 5  # the fragments of a call, its text in the decoder and in the recorded turn, and its last event
_REPEATED_COPIES = 10  # also three events with the whole text, the last one with the whole answer, and its storage
_STRINGS = 2  # of these copies; see `text_copies`
_MAX_TEXT_COPIES = 5  # the largest result of `text_copies`: a further search would find nothing more
_FRAGMENT_SHARE = 4  # an event of about 160 bytes leaves a fragment, which needs 40 bytes besides its text
# Bytes of a text or a call besides its content, in each of the copies. Measured with 200,000 calls without arguments: 2.2 kB for each
# if the stream is passed through, 6 kB for a client of Responses.
_BYTES_PER_ITEM = 400
_FEW_ITEMS = 16  # are not counted, as nearly all answers have fewer
_ESCAPE_START = 2  # bytes of an escape at the end of a piece
UNCOUNTED = 8 * 1024
"""Bytes of an incomplete event for which no memory is reserved."""


class StreamMemory:
    """The reservation of one stream. It grows with the answer, because calls stay in memory until the answer ends."""

    __slots__ = ("_copies", "_received", "_repeats_answer", "_reservation", "_reserved", "_tail", "_text_copies")

    def __init__(self, reservation: MemoryReservation, *, repeats_answer: bool) -> None:
        """Create an empty one. `repeats_answer`: the client's wire repeats the whole answer at its end."""
        self._reservation = reservation
        self._repeats_answer = repeats_answer
        self._copies = _REPEATED_COPIES if repeats_answer else _COPIES
        self._text_copies = 1
        self._tail = b""
        self._received = 0
        self._reserved = 0

    def grow(self, piece: bytes, held: int, content: int, items: int) -> None:
        """Reserve memory for a piece, before it is decoded. Raise MemoryExhausted if there is too little.

        `held` is the number of bytes without output so far, `content` the bytes of the text and arguments before them,
        and `items` the number of texts and calls.
        """
        if items > _FEW_ITEMS:
            content += items * _BYTES_PER_ITEM
        self._received += len(piece)
        if self._text_copies < _MAX_TEXT_COPIES and (self._tail or b"\\" in piece or not piece.isascii()):
            self._count_text_copies(piece)
        size = content if held <= UNCOUNTED else content + held - UNCOUNTED
        needed = self._needed(size) if self._repeats_answer else self._copies * size
        if needed > self._reserved:
            self._reservation.add(needed - self._reserved)
            self._reserved = needed

    def _count_text_copies(self, piece: bytes) -> None:
        """Raise the number of copies for wide characters and escapes, also an escape split between two pieces."""
        text = self._tail + piece if self._tail else piece
        end = piece[-_ESCAPE_START:]
        self._tail = end if b"\\" in end else b""
        if b"\\u" not in text and text.isascii():
            return
        text_count = text_copies(text)
        if text_count > self._text_copies:
            self._copies += _STRINGS * (text_count - self._text_copies)
            self._text_copies = text_count

    def shrink(self, content: int, items: int) -> None:
        """Free the memory of events that are complete, and keep the memory of `items`, with `content` bytes of text and arguments."""
        needed = self._needed(content if items <= _FEW_ITEMS else content + items * _BYTES_PER_ITEM)
        if needed < self._reserved:
            self._reservation.subtract(self._reserved - needed)
            self._reserved = needed

    def _needed(self, size: int) -> int:
        return self._copies * size + (self._received // _FRAGMENT_SHARE if self._repeats_answer else 0)
