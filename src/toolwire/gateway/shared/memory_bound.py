"""A bound on the memory of all requests in flight: their bodies, the values made of them, and buffered answers."""

from __future__ import annotations

from msgspec import Struct

from ...stream.strict import text_copies
from ..faults import RateLimited

__all__ = ["MemoryBound", "MemoryExhausted", "MemoryReservation", "parsed_size", "text_copies"]

_RETRY_AFTER = 1.0  # seconds
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


class MemoryReservation(Struct, eq=False):
    """The bytes of one request. `client` is set once its key is known."""

    _bound: MemoryBound
    client: str = ""
    _size: int = 0

    def add(self, size: int) -> None:
        """Reserve more bytes. Raise MemoryExhausted if there are too few."""
        bound, client = self._bound, self.client
        limit, used, used_by_client = bound.limit, bound.used + size, bound.used_by.get(client, 0) + size
        if used > limit:
            raise _exhausted("all requests in flight", limit)
        if used_by_client > limit // 2 and client:
            raise _exhausted("the requests of this key in flight", limit // 2)
        bound.used = used
        bound.used_by[client] = used_by_client
        self._size += size

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
