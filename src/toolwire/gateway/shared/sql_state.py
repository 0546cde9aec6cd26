"""A database that several gateways share, and that may be unavailable for a while.

It has a thread of its own, so the event loop never waits for it. Only SQLite is read on the event loop, because that
costs less than the switch to a thread. A request waits a second at most. After a failure the database is not used for a
moment, so that an outage delays few requests. The log has a line for the start of an outage, and one for its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from logging import getLogger
from typing import Any, TypeVar

from ...ir.errors import StoreError
from .sql_link import Execute, SqliteLink, SqlLink

__all__ = ["StateDatabase"]

R = TypeVar("R")
_log = getLogger("toolwire.gateway")
_TIMEOUT = 1.0  # seconds
_COOLDOWN = 1.0  # seconds after a failure


class StateDatabase:
    """A database for limits, turns and cooldowns. `clock` measures the time since a failure.

    `timeout` is the number of seconds for a transaction. `now` returns the time in a transaction.
    """

    def __init__(
        self, link: SqlLink, clock: Callable[[], float] = time.monotonic, *, timeout: float = _TIMEOUT
    ) -> None:
        self._link = link
        self._timeout = timeout
        self._clock = clock
        self.now = link.now
        self._cooldown_until: float | None = None  # set during an outage
        self._executor = ThreadPoolExecutor(1, "toolwire-state")

    async def transact(self, work: Callable[[Execute], R], *, writes: bool = True) -> R:
        """Run `work` in one transaction of the thread; StoreError, with a message fit for a client, on failure."""
        if not writes and isinstance(self._link, SqliteLink):
            try:
                return self._link.read(work)
            except StoreError:
                pass  # the file may be new; the other connection creates the tables
        if self._cooldown_until is not None and self._clock() < self._cooldown_until:
            raise _unavailable_error()
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._link.transact, work, writes)
        done, _ = await asyncio.wait({running}, timeout=self._timeout)
        fault = running.exception() if done else TimeoutError("no reply in time")
        if fault is not None:
            if not done:
                running.add_done_callback(_ignore_result)
            elif not isinstance(fault, StoreError):
                raise fault
            self._start_cooldown(fault)
            raise _unavailable_error()
        if self._cooldown_until is not None:
            self._cooldown_until = None
            _log.warning("the shared state is available again: %s", self._link.name)
        return running.result()

    async def open(self) -> None:
        """Connect and create the tables. A failure is logged, and has no other effect."""
        try:
            await self.transact(lambda execute: execute("SELECT 1", ()))
        except StoreError:
            pass  # an outage at the start is one like any other

    def _start_cooldown(self, fault: BaseException) -> None:
        if self._cooldown_until is None:
            message = fault if isinstance(fault, StoreError) else f"{self._link.name}: {fault}"
            _log.error("the shared state is unavailable: %s", message)
        self._cooldown_until = self._clock() + _COOLDOWN

    async def aclose(self) -> None:
        """Close the connection after the transaction in progress, or not at all if the database does not respond."""
        closing = asyncio.get_running_loop().run_in_executor(self._executor, self._link.close)
        await asyncio.wait({closing}, timeout=self._timeout)
        self._executor.shutdown(wait=False, cancel_futures=True)


def _ignore_result(running: asyncio.Future[Any]) -> None:
    """Retrieve the error of a late transaction, so that it is not reported as unhandled."""
    if not running.cancelled():
        running.exception()


def _unavailable_error() -> StoreError:
    return StoreError("the shared state of the gateways is unavailable", hint="try again in a moment")
