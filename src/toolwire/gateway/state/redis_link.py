"""A Redis (or Valkey) that several gateways share, and that may be unavailable for a while.

Commands that arrive while a reply is pending are sent together as the next batch: under load, many requests share a
round trip and its cost here. A request waits at most one second for Redis. After a failure Redis is not used for a
moment, so that an outage delays few requests. The log has a line for the start of an outage, and one for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import getLogger
from typing import Any, TypeAlias

from ..._extras import install_command
from ...ir.errors import MissingExtra, StoreError
from ...net.stores.address import display_name, invalid_address, redact

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError:
    raise MissingExtra("the package redis is not installed", hint=install_command("redis")) from None


Command: TypeAlias = tuple[str | bytes | int | float, ...]
_QueuedCommands: TypeAlias = tuple[tuple[Command, ...], asyncio.Future[list[Any]]]
_log = getLogger("toolwire.gateway")
_TIMEOUT = 1.0  # seconds, as in `StateRow.timeout`; a reply takes less than a millisecond in one network
_COOLDOWN = 1.0  # seconds after a failure; an outage delays the requests of one in two seconds at most
_BATCH = 100  # requests, so that the scripts of a batch end far within the timeout; not measured


class RedisLink:
    """A connection to Redis, opened on first use."""

    def __init__(
        self, url: str, clock: Callable[[], float], setting: str = "[state] url", *, timeout: float = _TIMEOUT
    ) -> None:
        """Prepare the connection. `timeout`: seconds for a batch.

        Raise ConfigError if the address is invalid; `setting` is its name, for the message.
        """
        self._url = url
        self._timeout = timeout
        self._clock = clock
        self._cooldown_until: float | None = None  # set during an outage
        self._queue: list[_QueuedCommands] = []  # commands for the next batch
        self._send_task: asyncio.Task[None] | None = None
        try:
            # retry once: the server may have closed an idle connection
            self.client: Any = Redis.from_url(url, socket_timeout=timeout, retry=Retry(NoBackoff(), 1))
        except (ValueError, RedisError):
            raise invalid_address("Redis", setting, url) from None

    async def execute(self, *commands: Command) -> list[Any]:
        """Send commands with the next batch, and return their replies.

        Raise StoreError, with a message fit for a client, if a command fails, and at once after a recent failure.
        """
        if self._cooldown_until is not None and self._clock() < self._cooldown_until:
            raise _unavailable_error()
        replies: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._queue.append((commands, replies))
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.ensure_future(self._send_queued())
        return await replies

    async def _send_queued(self) -> None:
        """Send the queue batch by batch. After a failure, everything in the queue fails at once."""
        while self._queue:
            batch, self._queue = self._queue[:_BATCH], self._queue[_BATCH:]
            outcome: list[Any] | Exception
            try:
                async with asyncio.timeout(self._timeout):
                    outcome = await self._exchange([command for commands, _ in batch for command in commands])
            except Exception as error:  # noqa: BLE001  # whatever the error is, no caller may wait forever
                outcome = error
                batch, self._queue = [*batch, *self._queue], []  # they would wait in vain
            self._deliver_replies(batch, outcome)

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies

    def _deliver_replies(self, batch: list[_QueuedCommands], outcome: list[Any] | Exception) -> None:
        """Give each caller its replies, or an error if one of them failed.

        Any failure starts the cooldown, and a success ends it.
        """
        for commands, replies in batch:
            own_replies = [outcome] if isinstance(outcome, Exception) else [outcome.pop(0) for _ in commands]
            fault = next((reply for reply in own_replies if isinstance(reply, Exception)), None)
            if fault is not None:
                self._start_cooldown(fault)
            elif self._cooldown_until is not None:
                self._cooldown_until = None
                _log.warning("the shared state at %s is available again", display_name(self._url))
            if replies.done():
                continue  # the caller was cancelled
            if fault is None:
                replies.set_result(own_replies)
            else:
                replies.set_exception(_unavailable_error())

    def _start_cooldown(self, fault: Exception) -> None:
        if self._cooldown_until is None:
            message = redact(str(fault), self._url) or type(fault).__name__
            _log.error("the shared state at %s is unavailable: %s", display_name(self._url), message)
        self._cooldown_until = self._clock() + _COOLDOWN

    async def aclose(self) -> None:
        if self._send_task is not None:
            await self._send_task
        await self.client.aclose()


def _unavailable_error() -> StoreError:
    return StoreError("the shared state of the gateways is unavailable", hint="try again in a moment")
