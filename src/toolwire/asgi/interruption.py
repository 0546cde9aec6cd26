"""Interrupt the task that serves a request: the only place that cancels a task and continues it afterwards.

interruption = Interruption()
interruption.attach()                            # in the task
interruption.interrupt("upstream_idle")          # in a callback
try:
    …
except asyncio.CancelledError:
    if not interruption.caught("upstream_idle"):
        raise
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Reason: TypeAlias = Literal["client_gone", "upstream_idle", "server_stop"]


class Interruption(Struct, eq=False):
    """The interruption of one task. A client that is gone outweighs the other reasons, because the answer has no reader."""

    _task: asyncio.Task[Any] | None = None
    _pending: Reason | None = None  # the reason of a cancellation that was not caught yet

    def attach(self) -> None:
        """Interrupt the running task from now on. It may be called repeatedly in the same task."""
        if self._task is None:
            self._task = asyncio.current_task()

    def interrupt(self, reason: Reason) -> None:
        """Cancel the task. It is cancelled once, also for several reasons."""
        if self._task is None:
            return
        if self._pending is None:
            self._pending = reason
            self._task.cancel()
        elif reason == "client_gone":
            self._pending = reason

    def caught(self, reason: Reason) -> bool:
        """Return whether the CancelledError that was caught has this reason; the task then goes on.

        A cancellation from outside has the reason `server_stop`.
        """
        if (self._pending or "server_stop") != reason:
            return False
        self._pending = None
        if self._task is not None:
            self._task.uncancel()
        return True
