"""Which calls may run now: side by side where nothing can go wrong, in the model's order where it can.

Pure and read calls run as soon as there is room. Idempotent and write calls of one resource run one after the other, in the
order in which the model asked for them; those of different resources do not wait for each other. A read that names its
resource keeps its place among the writes on it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from ..ir.parts import ToolCall
from .toolbox import Entry, Toolbox

__all__ = ["Schedule"]

_RUN = "\x00run"


class _Lane:
    """The calls on one resource, in their order."""

    __slots__ = ("reading", "waiting", "writing")

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.reading = 0
        self.writing = False


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
        self._writes: list[bool] = []
        self._lane_of: list[_Lane | None] = []
        self._lanes: dict[str, _Lane] = {}
        self._free: dict[str, deque[int]] = {}
        self._running: Counter[str] = Counter()
        self._count = 0
        self._waiting = 0

    def add(self, call: ToolCall) -> int:
        """The number of the call in this turn."""
        number = len(self._calls)
        entry = self._box.find(call.name)
        writes = entry is not None and entry.tool.effect not in ("pure", "read")
        resource = None if entry is None else _resource(entry, call, writes=writes)
        lane = None if resource is None else self._lanes.setdefault(resource, _Lane())
        self._waiting += 1
        self._calls.append(call)
        self._writes.append(writes)
        self._lane_of.append(lane)
        (self._free.setdefault(call.name, deque()) if lane is None else lane.waiting).append(number)
        return number

    def ready(self, *, writes: bool = True) -> list[int]:
        """Calls that may start now, writes only if they may; they count as running from here on."""
        chosen: list[int] = []
        while self._waiting and self._count < self._most:
            number = min((head for head in self._heads() if self._may_start(head, writes=writes)), default=None)
            if number is None:
                break
            self._start(number)
            chosen.append(number)
        return chosen

    def finished(self, number: int) -> None:
        self._count -= 1
        self._running[self._calls[number].name] -= 1
        lane = self._lane_of[number]
        if lane is not None and self._writes[number]:
            lane.writing = False
        elif lane is not None:
            lane.reading -= 1

    def cancel_waiting(self) -> list[int]:
        """Nothing that has not started will start."""
        queues = [*(lane.waiting for lane in self._lanes.values()), *self._free.values()]
        cancelled = sorted(number for queue in queues for number in queue)
        for queue in queues:
            queue.clear()
        self._waiting = 0
        return cancelled

    def _heads(self) -> Iterator[int]:
        """The first call that waits in each queue: nothing overtakes on a resource."""
        for lane in self._lanes.values():
            if lane.waiting:
                yield lane.waiting[0]
        for queue in self._free.values():
            if queue:
                yield queue[0]

    def _may_start(self, number: int, *, writes: bool) -> bool:
        name, lane = self._calls[number].name, self._lane_of[number]
        entry = self._box.find(name)
        most = None if entry is None else entry.options.most_parallel
        if most is not None and self._running[name] >= most:
            return False
        if lane is None:
            return True
        return not lane.writing and (not self._writes[number] or (writes and not lane.reading))

    def _start(self, number: int) -> None:
        name, lane = self._calls[number].name, self._lane_of[number]
        (self._free[name] if lane is None else lane.waiting).popleft()
        self._count += 1
        self._waiting -= 1
        self._running[name] += 1
        if lane is not None and self._writes[number]:
            lane.writing = True
        elif lane is not None:
            lane.reading += 1


def _resource(entry: Entry, call: ToolCall, *, writes: bool) -> str | None:
    """What the call works on: as its tool says; else all writes of a run share one, and reads have none."""
    resource = entry.options.resource
    if callable(resource):
        try:
            return str(resource(call.arguments or {}))
        except Exception:  # noqa: BLE001  # the author's function, on arguments that nobody has checked yet
            return _RUN
    return resource or (_RUN if writes else None)
