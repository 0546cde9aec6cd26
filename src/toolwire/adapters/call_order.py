"""Keep the order of calls that a framework starts at once: a call waits for the earlier writes of its run.

The rule is that of `run.schedule`, for calls that arrive one by one and from several threads or event loops.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager

from ..ir.pointer import Object
from ..run.calls.schedule import resource_of
from ..run.tools.toolbox import Entry

__all__ = ["CallOrder"]


class _StartedCall:
    """A call that has arrived and has not ended. `resource` None: any resource."""

    __slots__ = ("done", "is_write", "resource")

    def __init__(self, entry: Entry, arguments: Object) -> None:
        self.is_write = entry.tool.effect in ("idempotent", "write")
        self.resource = resource_of(entry, arguments)
        self.done: Future[None] = Future()

    def waits_for(self, earlier: _StartedCall) -> bool:
        is_same = self.resource == earlier.resource
        if earlier.is_write:
            return is_same or self.resource is None or earlier.resource is None
        return self.is_write and is_same and self.resource is not None


class CallOrder:
    """The calls of each run that have not ended, in the order of their arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[str, list[_StartedCall]] = {}

    @asynccontextmanager
    async def wait_turn(self, run_id: str, entry: Entry | None, arguments: Object) -> AsyncIterator[None]:
        """Wait for the earlier calls that must end first. Calls without a run id have no order."""
        if entry is None or not run_id or entry.tool.effect == "pure":
            yield
            return
        call = _StartedCall(entry, arguments)
        with self._lock:
            started = self._started.setdefault(run_id, [])
            earlier = [one.done for one in started if call.waits_for(one)]
            started.append(call)
        try:
            for done in earlier:
                await asyncio.shield(asyncio.wrap_future(done))  # a cancelled call must not cancel the earlier one
            yield
        finally:
            self._end(run_id, call)

    def _end(self, run_id: str, call: _StartedCall) -> None:
        with self._lock:
            started = self._started[run_id]
            started.remove(call)
            if not started:
                del self._started[run_id]
        call.done.set_result(None)
