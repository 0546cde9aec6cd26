"""A cache of whole answers for identical requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256

from ..ir.text import to_bytes

__all__ = ["AnswerCache"]

_MAX_BYTES = 64 * 1024 * 1024


class AnswerCache:
    """The newest answers, up to a total number of bytes. Callers do not share entries."""

    def __init__(self, clock: Callable[[], float], max_bytes: int = _MAX_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()  # (expiry, answer), oldest first

    @staticmethod
    def key(caller: str, front: str, model: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Hash a request. `headers` are those forwarded to the upstream."""
        identity = to_bytes([caller, front, model, *(part for header in sorted(headers.items()) for part in header)])
        return sha256(identity + b"\0" + body).digest()

    def get(self, key: bytes) -> bytes | None:
        expires_at, answer = self._entries.get(key, (0.0, b""))
        return answer if expires_at > self._clock() else None

    def put(self, key: bytes, answer: bytes, seconds: float) -> None:
        """Store an answer for `seconds`, and evict the oldest ones while the total exceeds the limit."""
        if len(answer) > self._max_bytes:
            return
        self._size -= len(self._entries.pop(key, (0.0, b""))[1])
        self._entries[key] = (self._clock() + seconds, answer)
        self._size += len(answer)
        while self._size > self._max_bytes:
            self._size -= len(self._entries.popitem(last=False)[1][1])
