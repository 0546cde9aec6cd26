"""Limits on documents before they are parsed: their number of values, and the memory that these will need."""

from __future__ import annotations

from ...asgi.offload import LARGE, ClientOffload
from ...ir.errors import ProtocolError
from ...stream.values import count_values
from ..shared.memory_bound import MemoryReservation, parsed_size

__all__ = ["admit_document"]

_BYTES_PER_VALUE = 8  # of a small document, whose values are not counted


async def admit_document(
    data: bytes, max_values: int, offload: ClientOffload, memory: MemoryReservation, *, status: int = 413
) -> None:
    """Reserve the memory for parsing a document. Raise ProtocolError with `status` if it has too many values.

    Text is cheap. Values are not: an interpreter that parses or writes millions of them runs nothing else meanwhile.
    """
    if len(data) <= LARGE:
        memory.add(parsed_size(len(data), len(data) // _BYTES_PER_VALUE))
        return
    values = await offload.run(len(data), count_values, data)
    if values > max_values:
        message = f"the document has {values:,} JSON values; the limit is {max_values:,}"
        raise ProtocolError(message, hint="send large data as text, or raise limits.values", status=status)
    memory.add(parsed_size(len(data), values))
