"""Decide which calls may start: in parallel where that is safe, otherwise in the model's order.

Pure and read calls start as soon as the limit of parallel calls allows. Idempotent and write calls on one resource
run one after the other, in the order of the model's calls; calls on different resources do not wait for each other. A
read that names its resource keeps its position among the writes on it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from ..ir.parts import ToolCall
from .toolbox import Entry, Toolbox

__all__ = ["Schedule"]

_RUN = "\x00run"


class _ResourceQueue:
    """The queue of calls on one resource."""

    __slots__ = ("reading", "waiting", "writing")

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.reading = 0
        self.writing = False


class Schedule:
    """A queue of calls: `add` a call, start the calls that `ready` returns, report each end with `finished`.

    >>> schedule = Schedule(Toolbox(), most=8)
    >>> schedule.add(ToolCall("a", "unknown")), schedule.add(ToolCall("b", "unknown")), schedule.ready()
    (0, 1, [0, 1])
    """

    def __init__(self, box: Toolbox, *, most: int = 16) -> None:
        self._box = box
        self._most = most
        self._calls: list[ToolCall] = []
        self._writes: list[bool] = []
        self._lane_of: list[_ResourceQueue | None] = []
        self._lanes: dict[str, _ResourceQueue] = {}
        self._free: dict[str, deque[int]] = {}
        self._running: Counter[str] = Counter()
        self._count = 0
        self._waiting = 0

    def add(self, call: ToolCall) -> int:
        """Add a call and return its number in this turn."""
        number = len(self._calls)
        entry = self._box.find(call.name)
        writes = entry is not None and entry.tool.effect not in ("pure", "read")
        resource = None if entry is None else _resource(entry, call, writes=writes)
        lane = None if resource is None else self._lanes.setdefault(resource, _ResourceQueue())
        self._waiting += 1
        self._calls.append(call)
        self._writes.append(writes)
        self._lane_of.append(lane)
        (self._free.setdefault(call.name, deque()) if lane is None else lane.waiting).append(number)
        return number

    def ready(self, *, writes: bool = True) -> list[int]:
        """Return the calls that may start now and count them as running. Skip writes unless `writes` is True."""
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
        """Remove all calls that have not started, and return their numbers."""
        queues = [*(lane.waiting for lane in self._lanes.values()), *self._free.values()]
        cancelled = sorted(number for queue in queues for number in queue)
        for queue in queues:
            queue.clear()
        self._waiting = 0
        return cancelled

    def _heads(self) -> Iterator[int]:
        """Iterate over the first call of each queue: calls on a resource keep their order."""
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
    """Return the resource that the tool names. By default all writes of a run share one and reads have none."""
    resource = entry.options.resource
    if callable(resource):
        try:
            return str(resource(call.arguments or {}))
        except Exception:  # noqa: BLE001  # a user-defined function, on arguments that have not been validated
            return _RUN
    return resource or (_RUN if writes else None)
