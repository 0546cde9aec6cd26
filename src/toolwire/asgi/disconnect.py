"""Cancel work for a client that has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from .types import Receive

__all__ = ["DisconnectWatch"]


class DisconnectWatch:
    """Run work for as long as the client is connected."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    async def run_while_connected(self, work: Awaitable[Any]) -> Any:
        """Return the result of the work, or cancel it and return None if the client disconnects."""
        task = asyncio.current_task()
        assert task is not None
        initial_cancels, is_running, stopped = task.cancelling(), True, False

        def stop(watched: asyncio.Future[None]) -> None:
            nonlocal stopped
            if is_running and not watched.cancelled():
                stopped = task.cancel()

        watch_task = asyncio.ensure_future(self._wait_for_disconnect())
        watch_task.add_done_callback(stop)
        try:
            return await work
        except asyncio.CancelledError:
            if not stopped or task.cancelling() - 1 > initial_cancels:
                raise  # the task was cancelled from outside, too
            return None
        finally:
            is_running = False
            watch_task.cancel()
            if stopped:
                task.uncancel()

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
