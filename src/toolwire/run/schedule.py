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

_RUN_RESOURCE = "\x00run"


class _ResourceQueue:
    """The queue of calls on one resource."""

    __slots__ = ("has_writer", "readers", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.readers = 0
        self.has_writer = False


class Schedule:
    """A queue of calls: `add` a call, start the calls that `take_ready` returns, report each end with `mark_finished`.

    >>> schedule = Schedule(Toolbox(), max_running=8)
    >>> schedule.add(ToolCall("a", "unknown")), schedule.add(ToolCall("b", "unknown")), schedule.take_ready()
    (0, 1, [0, 1])
    """

    def __init__(self, box: Toolbox, *, max_running: int = 16) -> None:
        self._box = box
        self._max_running = max_running
        self._calls: list[ToolCall] = []
        self._writes: list[bool] = []  # by call number, like the next list
        self._queue_of: list[_ResourceQueue | None] = []  # None: the call names no resource
        self._queues: dict[str, _ResourceQueue] = {}
        self._unordered: dict[str, deque[int]] = {}  # waiting calls without a resource, by tool
        self._running: Counter[str] = Counter()  # by tool
        self._count = 0  # running calls
        self._waiting = 0

    def add(self, call: ToolCall) -> int:
        """Add a call and return its number in this turn."""
        number = len(self._calls)
        entry = self._box.find(call.name)
        writes = entry is not None and entry.tool.effect not in ("pure", "read")
        resource = None if entry is None else _resource_of(entry, call, writes=writes)
        resource_queue = None if resource is None else self._queues.setdefault(resource, _ResourceQueue())
        self._waiting += 1
        self._calls.append(call)
        self._writes.append(writes)
        self._queue_of.append(resource_queue)
        (self._unordered.setdefault(call.name, deque()) if resource_queue is None else resource_queue.waiting).append(
            number
        )
        return number

    def take_ready(self, *, writes: bool = True) -> list[int]:
        """Return the calls that may start now and count them as running. Skip writes unless `writes` is True."""
        started: list[int] = []
        while self._waiting and self._count < self._max_running:
            number = min((head for head in self._queue_heads() if self._may_start(head, writes=writes)), default=None)
            if number is None:
                break
            self._start(number)
            started.append(number)
        return started

    def mark_finished(self, number: int) -> None:
        """Free the place of a call that ended, so that the next call on its resource may start."""
        self._count -= 1
        self._running[self._calls[number].name] -= 1
        resource_queue = self._queue_of[number]
        if resource_queue is not None and self._writes[number]:
            resource_queue.has_writer = False
        elif resource_queue is not None:
            resource_queue.readers -= 1

    def cancel_waiting(self) -> list[int]:
        """Remove all calls that have not started, and return their numbers."""
        queues = [*(resource_queue.waiting for resource_queue in self._queues.values()), *self._unordered.values()]
        cancelled = sorted(number for queue in queues for number in queue)
        for queue in queues:
            queue.clear()
        self._waiting = 0
        return cancelled

    def _queue_heads(self) -> Iterator[int]:
        """Iterate over the first call of each queue: calls on a resource keep their order."""
        for resource_queue in self._queues.values():
            if resource_queue.waiting:
                yield resource_queue.waiting[0]
        for queue in self._unordered.values():
            if queue:
                yield queue[0]

    def _may_start(self, number: int, *, writes: bool) -> bool:
        """Check the limit of the tool, and that a write has its resource to itself."""
        name, resource_queue = self._calls[number].name, self._queue_of[number]
        entry = self._box.find(name)
        max_running = None if entry is None else entry.options.max_parallel
        if max_running is not None and self._running[name] >= max_running:
            return False
        if resource_queue is None:
            return True
        return not resource_queue.has_writer and (not self._writes[number] or (writes and not resource_queue.readers))

    def _start(self, number: int) -> None:
        """Move the first call of its queue from waiting to running."""
        name, resource_queue = self._calls[number].name, self._queue_of[number]
        (self._unordered[name] if resource_queue is None else resource_queue.waiting).popleft()
        self._count += 1
        self._waiting -= 1
        self._running[name] += 1
        if resource_queue is not None and self._writes[number]:
            resource_queue.has_writer = True
        elif resource_queue is not None:
            resource_queue.readers += 1


def _resource_of(entry: Entry, call: ToolCall, *, writes: bool) -> str | None:
    """Return the resource that the tool names. By default all writes of a run share one and reads have none."""
    resource = entry.options.resource
    if callable(resource):
        try:
            return str(resource(call.arguments or {}))
        except Exception:  # noqa: BLE001  # a user-defined function, on arguments that have not been validated
            return _RUN_RESOURCE
    return resource or (_RUN_RESOURCE if writes else None)
