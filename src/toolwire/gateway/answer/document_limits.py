"""Limits on documents before they are parsed: their number of values, and the memory that these will need."""

from __future__ import annotations

from ...asgi.offload import ClientOffload
from ...ir.errors import ProtocolError
from ...stream.values import count_values
from ..shared.memory_bound import MemoryReservation, parsed_size, text_copies

__all__ = ["admit_document"]

_SMALL = 8 * 1024  # bytes; the values of smaller documents are not counted
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
    if len(data) <= _SMALL:
        memory.add(parsed_size(len(data), len(data) // _BYTES_PER_VALUE, text_copies(data)))
        return len(data)
    if len(data) <= _COUNTED_AT_ONCE:
        values = count_values(data)
    else:
        values = await offload.run(len(data), count_values, data)
    if values > max_values:
        message = f"the document has {values:,} JSON values; the limit is {max_values:,}"
        raise ProtocolError(message, hint="send large data as text, or raise limits.values", status=status)
    memory.add(parsed_size(len(data), values, text_copies(data)))
    return max(_WORK_PER_VALUE * values, len(data) // _TEXT_PER_WORK)
