"""Decide which calls may start: in parallel where that is safe, otherwise in the model's order.

The rule: a call waits for every earlier write of its turn, unless both declare a resource and the resources differ. A
tool without a declared resource may use any resource. "Write" includes idempotent calls.

    pure     never waits
    read     waits for earlier writes
    write    waits for earlier writes, and for earlier reads that declare the same resource

Writes that conflict run one after the other. So a call waits for the latest conflicting writes only, and the number of
edges between calls is linear in the number of calls. Earlier writes on many resources are joined in one node (`_join`).
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

from ...ir.parts import ToolCall
from ...ir.pointer import Object
from ..tools.toolbox import Entry, Toolbox


class _ScheduledCall:
    """A call, or a join of several writes (`number` None). It is ready when `blockers` is 0.

    `is_suspended`: it, or a call that it waits for, is suspended: it does not end in this attempt at the turn.
    """

    __slots__ = ("blockers", "dependents", "is_done", "is_suspended", "number")

    def __init__(self, number: int | None) -> None:
        self.number = number
        self.blockers = 0
        self.dependents: list[_ScheduledCall] = []
        self.is_done = False
        self.is_suspended = False

    def wait_for(self, earlier: _ScheduledCall | None) -> None:
        if earlier is not None and not earlier.is_done:
            self.blockers += 1
            self.is_suspended = self.is_suspended or earlier.is_suspended
            earlier.dependents.append(self)


class Schedule:
    """A queue of calls: `add` a call, start the calls that `take_ready` returns, report each end with `mark_finished`.

    >>> schedule = Schedule(Toolbox(), max_running=8)
    >>> schedule.add(ToolCall("a", "unknown")), schedule.add(ToolCall("b", "unknown")), schedule.take_ready()
    (0, 1, [0, 1])
    """

    def __init__(self, box: Toolbox, *, max_running: int = 16) -> None:  # as `Runner(max_parallel=…)`
        self._box = box
        self._max_running = max_running
        self._calls: list[ToolCall] = []
        self._nodes: list[_ScheduledCall] = []  # by call number
        self._waiting: set[int] = set()  # calls that have not started
        self._ready: dict[str, list[int]] = {}  # calls that wait for no other call, as a heap per tool
        self._running: Counter[str] = Counter()  # by tool
        self._count = 0  # running calls
        self._writers: dict[str, _ScheduledCall] = {}  # the latest write on each declared resource
        self._readers: dict[str, list[_ScheduledCall]] = {}  # the reads since then that declare the resource
        self._any_writer: _ScheduledCall | None = None  # the latest write without a declared resource
        self._joined: _ScheduledCall | None = None  # the latest join, or a later write without a declared resource
        self._unjoined: list[_ScheduledCall] = []  # the writes since then

    def add(self, call: ToolCall) -> int:
        """Add a call and return its number in this turn.

        It waits for earlier calls that it conflicts with, and never starts if one of these is suspended.
        """
        number = len(self._calls)
        node = _ScheduledCall(number)
        self._calls.append(call)
        self._nodes.append(node)
        self._waiting.add(number)
        entry = self._box.find(call.name)
        if entry is not None and entry.tool.effect != "pure":
            resource = resource_of(entry, call.arguments or {})
            if entry.tool.effect == "read":
                self._order_read(node, resource)
            else:
                self._order_write(node, resource)
        if not node.blockers:
            heappush(self._ready.setdefault(call.name, []), number)
        elif node.is_suspended:
            self._waiting.discard(number)
        return number

    def is_suspended(self, number: int) -> bool:
        """Return True for a call that waits for a suspended one."""
        return self._nodes[number].is_suspended

    def would_wait(self, call: ToolCall) -> bool:
        """Return True if a call that is added now may have to wait. Its arguments need not be complete."""
        entry = self._box.find(call.name)
        if entry is None or entry.tool.effect == "pure":
            return False
        resource = entry.options.resource
        writes = [self._joined, *self._unjoined]
        if isinstance(resource, str):
            writes = [self._any_writer, self._writers.get(resource)]
        return any(write is not None and not write.is_done for write in writes)

    @property
    def has_ready(self) -> bool:
        """False if no call could start, however few calls run."""
        return bool(self._ready)

    def take_ready(self, *, writes: bool = True) -> list[int]:
        """Return the calls that may start now and count them as running. Skip writes unless `writes` is True."""
        started: list[int] = []
        while self._ready and self._count < self._max_running:
            heads = [heap[0] for name, heap in self._ready.items() if self._may_start(name, writes=writes)]
            if not heads:
                break
            number = min(heads)
            self._start(number)
            started.append(number)
        return started

    def mark_finished(self, number: int) -> None:
        """Release the slot of a finished call, and unblock the calls that wait for it."""
        self._count -= 1
        self._running[self._calls[number].name] -= 1
        self._complete(self._nodes[number])

    def mark_suspended(self, number: int) -> list[int]:
        """Free the place of a call that waits for a decision. Return the calls that must wait for it: they never start."""
        self._count -= 1
        self._running[self._calls[number].name] -= 1
        held: list[int] = []
        stack = [self._nodes[number]]
        while stack:
            node = stack.pop()
            node.is_suspended = True
            stack += [dependent for dependent in node.dependents if not dependent.is_suspended]
            if node.number is not None and node.number in self._waiting:
                self._waiting.discard(node.number)
                held.append(node.number)
        return sorted(held)

    def cancel_waiting(self) -> list[int]:
        """Remove all calls that have not started, and return their numbers."""
        cancelled = sorted(self._waiting)
        self._waiting.clear()
        self._ready.clear()
        for number in cancelled:
            if not (self._nodes[number].blockers or self._nodes[number].is_done):
                self._complete(self._nodes[number])
        return cancelled

    def _order_read(self, node: _ScheduledCall, resource: str | None) -> None:
        if resource is None:
            node.wait_for(self._join())
            return
        node.wait_for(self._any_writer)
        node.wait_for(self._writers.get(resource))
        self._readers.setdefault(resource, []).append(node)

    def _order_write(self, node: _ScheduledCall, resource: str | None) -> None:
        """Let a write wait for earlier calls on its resource; without a resource, for all earlier writes."""
        if resource is None:
            node.wait_for(self._join())
            self._any_writer = self._joined = node
            return
        node.wait_for(self._any_writer)
        node.wait_for(self._writers.get(resource))
        for reader in self._readers.pop(resource, ()):
            node.wait_for(reader)
        self._writers[resource] = node
        self._unjoined.append(node)

    def _join(self) -> _ScheduledCall | None:
        """Return a node that is done when all writes so far are."""
        if not self._unjoined:
            return self._joined
        unfinished = [write for write in self._unjoined if not write.is_done]
        self._unjoined.clear()
        if unfinished:
            joined = _ScheduledCall(None)
            for write in (self._joined, *unfinished):
                joined.wait_for(write)
            self._joined = joined
        return self._joined

    def _may_start(self, name: str, *, writes: bool) -> bool:
        """Check the effect and the limit of a tool that has ready calls."""
        entry = self._box.find(name)
        if entry is None:
            return True
        if not writes and entry.tool.effect not in ("pure", "read"):
            return False
        limit = entry.options.max_parallel
        return limit is None or self._running[name] < limit

    def _start(self, number: int) -> None:
        """Move a ready call to the running ones."""
        name = self._calls[number].name
        heap = self._ready[name]
        heappop(heap)
        if not heap:
            del self._ready[name]
        self._waiting.discard(number)
        self._count += 1
        self._running[name] += 1

    def _complete(self, node: _ScheduledCall) -> None:
        """Unblock the dependents of a node that is done. A join, or a cancelled call, is done when nothing blocks it."""
        stack = [node]
        while stack:
            done = stack.pop()
            done.is_done = True
            for dependent in done.dependents:
                dependent.blockers -= 1
                if dependent.blockers:
                    continue
                if dependent.number is not None and dependent.number in self._waiting:
                    heappush(self._ready.setdefault(self._calls[dependent.number].name, []), dependent.number)
                else:
                    stack.append(dependent)
            done.dependents.clear()


def resource_of(entry: Entry, arguments: Object) -> str | None:
    """Return the resource that the tool declares; None if it may use any resource."""
    resource = entry.options.resource
    if not callable(resource):
        return resource
    try:
        return str(resource(arguments))
    except Exception:  # noqa: BLE001  # a user-defined function, on arguments that have not been validated
        return None
