"""Cache the results of pure and read tools, keyed by tool, arguments and scope."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256

from ..ir.parts import ToolResult
from ..ir.pointer import Object
from .keys import canonical_json

__all__ = ["ResultCache", "cache_key"]


def cache_key(tool: str, arguments: Object, *scope: str) -> str:
    """Hash a call with the scope in which its result may be reused: the source of the tool, the tenant, the run."""
    return sha256(canonical_json([tool, arguments, *scope])).hexdigest()


class ResultCache:
    """A bounded cache that evicts the least recently used result. The caller passes the current time."""

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._entries: OrderedDict[str, tuple[float, ToolResult]] = OrderedDict()

    def get(self, key: str, now: float) -> ToolResult | None:
        """Return the result unless it has expired, and mark it as recently used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[0] <= now:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: str, result: ToolResult, expires_at: float) -> None:
        self._entries[key] = (expires_at, result)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
