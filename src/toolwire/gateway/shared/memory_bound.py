"""A bound on the memory of all requests in flight: their bodies, the values made of them, and buffered answers."""

from __future__ import annotations

from ..faults import RateLimited

__all__ = ["MemoryBound", "MemoryExhausted", "MemoryReservation", "parsed_size", "text_copies"]

_RETRY_AFTER = 1.0  # seconds
_ASTRAL_LEADS = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")  # first bytes of characters above U+FFFF in UTF-8
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


def text_copies(data: bytes) -> int:
    """Return the bytes that strings made of `data` may take for each of its bytes.

    A Python string has as many bytes for each character as its widest character needs, so one emoji makes a string of
    ASCII four times as large. A string that is not ASCII also keeps its UTF-8 once it was encoded.
    """
    if b"\\ud" in data or b"\\uD" in data:  # an escaped surrogate
        return 5
    if data.isascii():
        return 3 if b"\\u" in data else 1
    return 5 if any(lead in data for lead in _ASTRAL_LEADS) else 3


def parsed_size(size: int, values: int, copies: int = 1) -> int:
    """Estimate the bytes of everything that is made of a document of `size` bytes, besides the document itself.

    That is its strings (`text_copies`), the body for the upstream, and the values.
    """
    return (copies + 1) * size + _BYTES_PER_VALUE * values


def _exhausted(holder: str, limit: int) -> MemoryExhausted:
    return MemoryExhausted(
        f"{holder} need more than {limit:,} bytes of memory", retry_after=_RETRY_AFTER, hint="retry later"
    )
