"""Cache the results of pure and read tools, keyed by tool, arguments and scope: a tenant, or a run with dependencies."""

from __future__ import annotations

from collections import OrderedDict

from ..ir.parts import ToolResult
from ..ir.pointer import Object
from .keys import fingerprint

__all__ = ["ResultCache"]


class ResultCache:
    """A bounded cache that evicts the least recently used result. The caller passes the current time."""

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._entries: OrderedDict[str, tuple[float, ToolResult]] = OrderedDict()

    def get(self, tool: str, arguments: Object, now: float, scope: str = "") -> ToolResult | None:
        """Return the result unless it has expired, and mark it as recently used."""
        key = fingerprint(tool, arguments, scope)
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[0] <= now:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, tool: str, arguments: Object, result: ToolResult, expires_at: float, scope: str = "") -> None:
        self._entries[fingerprint(tool, arguments, scope)] = (expires_at, result)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
