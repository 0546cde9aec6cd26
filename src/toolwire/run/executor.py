"""Map a function over independent items: in this process, in worker processes, or on a cluster.

    def count(text: str) -> bytes: ...                       # bytes, so that one encoder writes every result
    found = map_items(count, texts, executor=ProcessPool(4), results=open_results("runs/counts"), names=names)

`map_items` returns the results in the order of the items. An item is computed by the same function from the same value
wherever it runs, and its result is bytes, so the number of workers, their order and their failures change nothing.

A worker holds one item at a time. If the worker ends, exactly that item is tried again by another worker, and an item
that ends every worker is reported without stopping the others. A larger share for each worker would save round trips of
some 0.1 ms, but it would blame the wrong item. An item is tried `attempts` times in all, for an exception as for a lost
worker: neither is known to be permanent. Errors that every other item would have too (`_STOPPING`) stop the map.

Executors are in `toolwire.net` (`ProcessPool`) and `toolwire.durable` (`RayExecutor`); this module decides only.
"""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ..ir.errors import ConfigError, MissingExtra, ToolwireError
from ..ir.response import UpstreamError
from ..ir.value import Value

ItemFunction: TypeAlias = Callable[[Any], bytes]
"""A function of one item. Other processes need one that can be pickled: of a module, or an instance of its class."""

ATTEMPTS = 3
"""Tries of one item: a killed worker or a lost connection rarely meets the same item three times."""

# A model client has already retried transient faults; the other two are about the command, not about an item.
_STOPPING = (ConfigError, MissingExtra, UpstreamError)
_NAMED = 3  # failures in the message of an error; `failures` has all of them


class ItemFault(Value, frozen=True):
    """The reason why an item has no result. `stops`: every other item would fail in the same way."""

    reason: str
    hint: str = ""
    trace: str = ""
    stops: bool = False


class FailedItem(Value, frozen=True):
    """An item without a result after `attempts` tries."""

    number: int
    attempts: int
    fault: ItemFault


class WorkFailed(ToolwireError):
    """Items have no result, or workers cannot start. The results of all other items are stored.

    `failures` has the failed items by number.
    """

    def __init__(self, message: str, failures: Sequence[FailedItem] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.failures = tuple(failures)


class Executor(Protocol):
    """Computes items, in any order."""

    def map(self, work: ItemFunction, items: Mapping[int, Any], /) -> Iterator[tuple[int, bytes | FailedItem]]:
        """Yield the number of each item with its result or its failure, as soon as it is known.

        Closing the iterator ends the workers.
        """
        ...


class Results(Protocol):
    """Named results that survive a restart. A result is complete, or it is not there."""

    def read(self, name: str, /) -> bytes | None: ...

    def write(self, name: str, content: bytes, /) -> None: ...


class InProcess:
    """Computes the items one after the other in this process."""

    def __init__(self, *, attempts: int = ATTEMPTS) -> None:
        self._attempts = require_positive("attempts", attempts)

    def map(self, work: ItemFunction, items: Mapping[int, Any]) -> Iterator[tuple[int, bytes | FailedItem]]:
        for number, item in items.items():
            for attempt in range(1, self._attempts + 1):
                outcome = attempt_item(work, item)
                if isinstance(outcome, bytes):
                    yield number, outcome
                    break
                _stop_if_general(outcome)
                if attempt == self._attempts:
                    yield number, FailedItem(number, attempt, outcome)


def map_items(
    work: ItemFunction,
    items: Sequence[Any],
    *,
    executor: Executor | None = None,
    results: Results | None = None,
    names: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[bytes]:
    """Return the result of each item, in the order of the items.

    `results` stores each result under the item's name in `names`, and stored results are not computed again; `names`
    identify the work and the item, such as by a hash. `progress` gets the numbers of finished items and of all. Raises
    `WorkFailed` after all other items are done, and `ConfigError` without a different name for each stored result.
    """
    if results is not None and len(set(names)) != len(items):
        raise ConfigError(f"stored results need a different name for each of {len(items)} items")
    found: dict[int, bytes] = {}
    for number, name in enumerate(names if results is not None else ()):
        content = None if results is None else results.read(name)
        if content is not None:
            found[number] = content
    if progress is not None:
        progress(len(found), len(items))
    missing = {number: item for number, item in enumerate(items) if number not in found}
    failures: list[FailedItem] = []
    for number, outcome in (executor or InProcess()).map(work, missing) if missing else ():
        if isinstance(outcome, FailedItem):
            failures.append(outcome)
            continue
        if results is not None:
            results.write(names[number], outcome)
        found[number] = outcome
        if progress is not None:
            progress(len(found), len(items))
    if failures:
        raise _describe(sorted(failures, key=lambda failed: failed.number), len(items), names)
    return [found[number] for number in range(len(items))]


def _describe(failures: Sequence[FailedItem], count: int, names: Sequence[str]) -> WorkFailed:
    """Return the error that names the first failed items and their reasons."""
    shown = [
        f"item {failed.number}{f' ({names[failed.number]})' if names else ''}: {failed.fault.reason}"
        for failed in failures[:_NAMED]
    ]
    more = f"; and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
    message = f"{len(failures)} of {count} items failed {failures[0].attempts} times: {'; '.join(shown)}{more}"
    return WorkFailed(message, failures, hint="the other results are kept; repeat the command after the correction")


def attempt_item(work: ItemFunction, item: Any) -> bytes | ItemFault:
    """Compute one item, or return why that failed."""
    try:
        result: Any = work(item)
    except _STOPPING as error:
        return ItemFault(error.message, error.hint, stops=True)
    except Exception as error:  # noqa: BLE001  # of any function; it is reported with its traceback
        return ItemFault(f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    if not isinstance(result, bytes):
        return ItemFault(f"the work must return bytes, got {type(result).__name__}", stops=True)
    return result


def require_positive(name: str, value: int) -> int:
    """Return the value. Raise ConfigError unless it is at least 1."""
    if value < 1:
        raise ConfigError(f"{name} must be positive, got {value}")
    return value


def _stop_if_general(fault: ItemFault) -> None:
    """Raise ConfigError for a fault that every other item would have too."""
    if fault.stops:
        raise ConfigError(fault.reason, hint=fault.hint)


# Distribute items among workers that may end at any time. The same decisions serve processes and clusters.
#
#     starting ──Ready──▶ busy with one item ──outcome──▶ busy with the next, or stopped without one
#         └────Lost────▶ ended ◀────Lost────┘
#
# A worker that is lost while it starts has no item; such losses in a row mean that no worker can start, as without a
# main guard in the user's program.

READY = "ready"
"""The event of a worker that can take its first item."""
LOST = "lost"
"""The event of a worker that ended."""
WorkerEvent: TypeAlias = str | bytes | ItemFault
"""READY, LOST, or the outcome of an item."""

WorkerType = TypeVar("WorkerType")


class ItemWorkers(Protocol[WorkerType]):
    """Starts and ends workers of one kind, and exchanges items with them."""

    def start(self) -> WorkerType: ...

    def send(self, worker: WorkerType, item: Any, /) -> None:
        """Give an item to a worker that is ready or has finished its last one."""
        ...

    def wait(self, workers: Collection[WorkerType], /) -> list[tuple[WorkerType, WorkerEvent]]:
        """Wait until at least one worker has an event."""
        ...

    def stop(self, worker: WorkerType, *, is_busy: bool) -> None:
        """End a worker. A busy one is interrupted."""
        ...

    def explain(self, worker: WorkerType, /) -> str:
        """Describe the end of a lost worker, such as "the worker was ended by signal 9"."""
        ...


def distribute(
    workers: ItemWorkers[WorkerType], count: int, items: Mapping[int, Any], attempts: int
) -> Iterator[tuple[int, bytes | FailedItem]]:
    """Compute items with up to `count` workers. Raise WorkFailed if workers end before they are ready."""
    distribution = _Distribution(workers, count, items, attempts)
    try:
        while distribution.is_unfinished():
            distribution.start_workers()
            for worker, event in workers.wait(distribution.held):
                done = distribution.handle(worker, event)
                if done is not None:
                    yield done
    finally:
        distribution.stop_workers()


class _Distribution(Generic[WorkerType]):
    """The items that wait, and the item that each worker holds."""

    def __init__(self, workers: ItemWorkers[WorkerType], count: int, items: Mapping[int, Any], attempts: int) -> None:
        self._workers = workers
        self._count = count
        self._items = items
        self._attempts = attempts
        self._waiting = deque(items)
        self._tries: Counter[int] = Counter()
        self._lost_starts = 0  # in a row
        self.held: dict[WorkerType, int | None] = {}
        """The item of each worker, None while it starts."""

    def is_unfinished(self) -> bool:
        """Return whether items wait or are being computed. A worker that still starts is not waited for."""
        return bool(self._waiting) or any(number is not None for number in self.held.values())

    def start_workers(self) -> None:
        """Start as many workers as there are items for them."""
        starting = sum(number is None for number in self.held.values())
        for _ in range(min(self._count - len(self.held), len(self._waiting) - starting)):
            self.held[self._workers.start()] = None

    def handle(self, worker: WorkerType, event: WorkerEvent) -> tuple[int, bytes | FailedItem] | None:
        """Return the item that this event finishes or fails for good, and give the worker its next item."""
        number = self.held[worker]
        if event == LOST:
            del self.held[worker]
            reason = self._workers.explain(worker)
            if number is None:
                self._count_lost_start(reason)
                return None
            return self._finish(number, ItemFault(reason))
        if isinstance(event, ItemFault):
            _stop_if_general(event)
        self._lost_starts = 0
        done = None if number is None else self._finish(number, event)
        self._send_next(worker)
        return done

    def stop_workers(self) -> None:
        for worker in self.held:
            self._workers.stop(worker, is_busy=True)  # also one that starts: its imports may take seconds
        self.held.clear()

    def _finish(self, number: int, outcome: WorkerEvent) -> tuple[int, bytes | FailedItem] | None:
        """Return the item's result or its last failure; None if it is tried again."""
        if isinstance(outcome, bytes):
            return number, outcome
        assert isinstance(outcome, ItemFault)
        if self._tries[number] == self._attempts:
            return number, FailedItem(number, self._attempts, outcome)
        self._waiting.append(number)
        return None

    def _send_next(self, worker: WorkerType) -> None:
        """Give a free worker the next item, or end it."""
        if not self._waiting:
            del self.held[worker]
            self._workers.stop(worker, is_busy=False)
            return
        number = self._waiting.popleft()
        self._tries[number] += 1
        self.held[worker] = number
        self._workers.send(worker, self._items[number])

    def _count_lost_start(self, reason: str) -> None:
        """Raise WorkFailed after more lost starts in a row than `attempts` of every worker."""
        self._lost_starts += 1
        if self._lost_starts >= self._attempts * self._count:
            hint = 'a program that starts workers needs `if __name__ == "__main__":`'
            raise WorkFailed(f"no worker can start: {reason}", hint=hint)
