"""Limits on documents before they are parsed: their number of values, and the memory that these will need."""

from __future__ import annotations

from ...asgi.offload import ClientOffload
from ...bridge.conversation.reading import RequestReading
from ...ir.errors import ProtocolError
from ...stream.strict import count_values
from .memory_bound import MemoryExhausted, MemoryReservation, parsed_size, text_copies

__all__ = ["SMALL_DOCUMENT", "admit_document", "admit_request", "admit_small_document"]

SMALL_DOCUMENT = 8 * 1024
"""Bytes; the values of smaller documents are not counted."""
_BYTES_PER_VALUE = 8  # of a small document, on average
_COUNTED_AT_ONCE = 256 * 1024  # bytes; the values of larger documents are counted in a thread
_WORK_PER_VALUE = 32  # bytes of text that take as long as a value, at least: up to 1,000 values stay on the event loop
_TEXT_PER_WORK = 8  # text without values is cheap: up to 256 KB of it stay on the event loop


async def admit_document(
    data: bytes, max_values: int, offload: ClientOffload, memory: MemoryReservation, *, status: int = 413
) -> int:
    """Reserve the memory for parsing a document, and return the size of the work that it makes, for `Offload.run`.

    Raise ProtocolError with `status` if it has too many values. Text is cheap. Values are not: an interpreter that
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
    needed = parsed_size(size, size // _BYTES_PER_VALUE, text_copies(data))
    try:
        memory.add(received + needed)
    except MemoryExhausted:  # the error is that of the first reservation that fails
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
    if values > max_values:
        message = f"the document has {values:,} JSON values; the limit is {max_values:,}"
        raise ProtocolError(
            message, hint="send large data as text; the gateway's operator can raise limits.values", status=status
        )


def _work_size(values: int, size: int) -> int:
    return max(_WORK_PER_VALUE * values, size // _TEXT_PER_WORK)
