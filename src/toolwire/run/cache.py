"""Cache the results of pure and read tools, keyed by tool, arguments and tenant."""

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
        self._kept: OrderedDict[str, tuple[float, ToolResult]] = OrderedDict()

    def get(self, tool: str, arguments: Object, now: float, tenant: str = "") -> ToolResult | None:
        key = fingerprint(tool, arguments, tenant)
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= now:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return found[1]

    def put(self, tool: str, arguments: Object, result: ToolResult, until: float, tenant: str = "") -> None:
        self._kept[fingerprint(tool, arguments, tenant)] = (until, result)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
