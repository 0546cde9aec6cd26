"""The memory that a stream needs while it is relayed: what decoders, recorders and encoders keep of the answer."""

from __future__ import annotations

from .memory_bound import MemoryReservation, text_copies

__all__ = ["UNCOUNTED", "StreamMemory"]

_COPIES = 5  # the fragments of a call, its text in the decoder and in the recorded turn, and its last event
_REPEATED_COPIES = 10  # also three events with the whole text, the last one with the whole answer, and its storage
_STRINGS = 2  # of these copies; see `text_copies`
_MAX_TEXT_COPIES = 5
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
        """Note wide characters and escapes, also an escape that is split between two pieces."""
        text = self._tail + piece if self._tail else piece
        end = piece[-_ESCAPE_START:]
        self._tail = end if b"\\" in end else b""
        if b"\\u" not in text and text.isascii():
            return
        found = text_copies(text)
        if found > self._text_copies:
            self._copies += _STRINGS * (found - self._text_copies)
            self._text_copies = found

    def shrink(self, content: int, items: int) -> None:
        """Free the memory of events that are complete, and keep the memory of `items`, with `content` bytes of text and arguments."""
        needed = self._needed(content if items <= _FEW_ITEMS else content + items * _BYTES_PER_ITEM)
        if needed < self._reserved:
            self._reservation.subtract(self._reserved - needed)
            self._reserved = needed

    def _needed(self, size: int) -> int:
        return self._copies * size + (self._received // _FRAGMENT_SHARE if self._repeats_answer else 0)
