"""A bound on the memory of all requests in flight: their bodies, the values made of them, and buffered answers."""

from __future__ import annotations

from ..faults import RateLimited

__all__ = ["MemoryBound", "MemoryExhausted", "MemoryReservation", "parsed_size"]

_RETRY_AFTER = 1.0  # seconds
_COPIES = 3  # of the text: the body, its strings, the body for the upstream
_BYTES_PER_VALUE = 120  # measured: a request of 31,000 messages in 1 MB takes 14 MB


class MemoryExhausted(RateLimited):
    """The bound is reached. The request can be repeated when others have ended."""

    default_status = 503


class MemoryBound:
    """The bytes in use, of at most `limit`. A client with a key may use half of them, so that others are served."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._used_by: dict[str, int] = {}  # by the name of the key

    def reserve(self, client: str, size: int) -> None:
        """Add to the bytes in use. Raise MemoryExhausted if they would exceed the limit."""
        used = self._used_by.get(client, 0)
        if self.used + size > self.limit:
            raise _exhausted("all requests in flight", self.limit)
        if client and used + size > self.limit // 2:
            raise _exhausted("the requests of this key in flight", self.limit // 2)
        self.used += size
        self._used_by[client] = used + size

    def free(self, client: str, size: int) -> None:
        self.used -= size
        used = self._used_by[client] - size
        if used:
            self._used_by[client] = used
        else:
            del self._used_by[client]


class MemoryReservation:
    """The bytes of one request. `client` is set once its key is known."""

    __slots__ = ("_bound", "_size", "client")

    def __init__(self, bound: MemoryBound) -> None:
        self.client = ""
        self._bound = bound
        self._size = 0

    def add(self, size: int) -> None:
        """Reserve more bytes. Raise MemoryExhausted if there are too few."""
        self._bound.reserve(self.client, size)
        self._size += size

    def subtract(self, size: int) -> None:
        """Free some of the bytes."""
        if size:
            self._bound.free(self.client, size)
            self._size -= size

    def release(self) -> None:
        """Free all bytes. It may be called repeatedly."""
        self.subtract(self._size)


def parsed_size(size: int, values: int) -> int:
    """Estimate the bytes of everything that is made of a document of `size` bytes, besides the document itself."""
    return (_COPIES - 1) * size + _BYTES_PER_VALUE * values


def _exhausted(holder: str, limit: int) -> MemoryExhausted:
    return MemoryExhausted(
        f"{holder} need more than {limit:,} bytes of memory", retry_after=_RETRY_AFTER, hint="retry later"
    )
