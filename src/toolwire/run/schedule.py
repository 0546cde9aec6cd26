"""Which calls may run now: side by side where nothing can go wrong, in the model's order where it can.

Pure and read calls run as soon as there is room. Idempotent and write calls of one resource run one after the other, in the
order in which the model asked for them; those of different resources do not wait for each other.
"""

from __future__ import annotations

from collections import Counter, deque

from ..ir.parts import ToolCall
from .toolbox import Toolbox

__all__ = ["Schedule"]

_RUN = "\x00run"


class Schedule:
    """`add` calls as they come, `ready` gives what may start now, `finished` makes room.

    >>> schedule = Schedule(Toolbox(), most=8)
    >>> schedule.add(ToolCall("a", "unknown")), schedule.add(ToolCall("b", "unknown")), schedule.ready()
    (0, 1, [0, 1])
    """

    def __init__(self, box: Toolbox, *, most: int = 16) -> None:
        self._box = box
        self._most = most
        self._calls: list[ToolCall] = []
        self._lanes: list[str | None] = []
        self._waiting: deque[int] = deque()
        self._busy_lanes: set[str] = set()
        self._running: Counter[str] = Counter()

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(self._waiting)

    def add(self, call: ToolCall) -> int:
        """The number of the call in this turn."""
        self._calls.append(call)
        self._lanes.append(self._lane(call))
        self._waiting.append(len(self._calls) - 1)
        return len(self._calls) - 1

    def ready(self, *, writes: bool = True) -> list[int]:
        """Calls that may start now, writes only if they may; they count as running from here on."""
        chosen: list[int] = []
        blocked: set[str] = set()
        for number in tuple(self._waiting):
            if self.running >= self._most:
                break
            lane, name = self._lanes[number], self._calls[number].name
            if lane is not None and (not writes or lane in self._busy_lanes or lane in blocked):
                continue
            if self._is_full(name):
                if lane is not None:
                    blocked.add(lane)  # who comes behind it on the same resource must not overtake
                continue
            self._waiting.remove(number)
            self._running[name] += 1
            if lane is not None:
                self._busy_lanes.add(lane)
            chosen.append(number)
        return chosen

    def finished(self, number: int) -> None:
        self._running[self._calls[number].name] -= 1
        lane = self._lanes[number]
        if lane is not None:
            self._busy_lanes.discard(lane)

    def cancel_waiting(self) -> list[int]:
        """Nothing that has not started will start."""
        cancelled = list(self._waiting)
        self._waiting.clear()
        return cancelled

    def _is_full(self, name: str) -> bool:
        entry = self._box.find(name)
        most = None if entry is None else entry.options.most_parallel
        return most is not None and self._running[name] >= most

    def _lane(self, call: ToolCall) -> str | None:
        entry = self._box.find(call.name)
        if entry is None or entry.tool.effect in ("pure", "read"):
            return None
        resource = entry.options.resource
        if callable(resource):
            try:
                return resource(call.arguments or {})
            except Exception:  # noqa: BLE001  # the author's function, on arguments that nobody has checked yet
                return _RUN
        return resource or _RUN
