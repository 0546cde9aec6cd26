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

from ..ir.errors import ConfigError, MissingExtra, StoreError
from ..net.stores.address import name_of, redact

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError:
    raise MissingExtra("the package redis is not installed", hint="pip install 'toolwire[redis]'") from None

__all__ = ["Command", "RedisLink"]

Command: TypeAlias = tuple[str | bytes | int | float, ...]
_QueuedCommands: TypeAlias = tuple[tuple[Command, ...], asyncio.Future[list[Any]]]
_log = getLogger("toolwire.gateway")
_TIMEOUT = 1.0  # seconds for a batch
_COOLDOWN = 1.0  # seconds after a failure
_BATCH = 100  # requests


class RedisLink:
    """A connection to Redis, opened on first use."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url = url
        self._clock = clock
        self._cooldown_until: float | None = None
        self._waiting: list[_QueuedCommands] = []
        self._sending: asyncio.Task[None] | None = None
        try:
            # retry once: the server may have closed an idle connection
            self.client: Any = Redis.from_url(url, socket_timeout=_TIMEOUT, retry=Retry(NoBackoff(), 1))
        except (ValueError, RedisError):
            hint = "use redis://user:password@host:6379/0, rediss:// with TLS, unix:// for a socket"
            raise ConfigError(f"invalid state.url: {name_of(url)}", hint=hint) from None

    async def ask(self, *commands: Command) -> list[Any]:
        """Return the replies; StoreError, with a message fit for a client, unless each command has one."""
        if self._cooldown_until is not None and self._clock() < self._cooldown_until:
            raise _unavailable_error()
        answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, answers))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())
        return await answers

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            found: list[Any] | Exception
            try:
                async with asyncio.timeout(_TIMEOUT):
                    found = await self._exchange([command for commands, _ in batch for command in commands])
            except Exception as error:  # noqa: BLE001  # whatever the error is, no caller may wait forever
                found = error
                batch, self._waiting = [*batch, *self._waiting], []  # they would wait in vain
            self._deliver_replies(batch, found)

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    def _deliver_replies(self, batch: list[_QueuedCommands], found: list[Any] | Exception) -> None:
        for commands, answers in batch:
            mine = [found] if isinstance(found, Exception) else [found.pop(0) for _ in commands]
            fault = next((one for one in mine if isinstance(one, Exception)), None)
            if fault is not None:
                self._start_cooldown(fault)
            elif self._cooldown_until is not None:
                self._cooldown_until = None
                _log.warning("the shared state at %s is available again", name_of(self._url))
            if answers.done():
                continue  # the caller was cancelled
            if fault is None:
                answers.set_result(mine)
            else:
                answers.set_exception(_unavailable_error())

    def _start_cooldown(self, fault: Exception) -> None:
        if self._cooldown_until is None:
            words = redact(str(fault), self._url) or type(fault).__name__
            _log.error("the shared state at %s is unavailable: %s", name_of(self._url), words)
        self._cooldown_until = self._clock() + _COOLDOWN

    async def aclose(self) -> None:
        if self._sending is not None:
            await self._sending
        await self.client.aclose()


def _unavailable_error() -> StoreError:
    return StoreError("the shared state of the gateways is unavailable", hint="try again in a moment")
