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
_Asked: TypeAlias = tuple[tuple[Command, ...], asyncio.Future[list[Any]]]
_log = getLogger("toolwire.gateway")
_PATIENCE = 1.0  # seconds for a batch
_REST = 1.0  # seconds after a failure
_BATCH = 100  # requests


class RedisLink:
    """A connection to Redis, opened on first use."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url = url
        self._clock = clock
        self._resting_until: float | None = None
        self._waiting: list[_Asked] = []
        self._sending: asyncio.Task[None] | None = None
        try:
            # retry once: the server may have closed an idle connection
            self.client: Any = Redis.from_url(url, socket_timeout=_PATIENCE, retry=Retry(NoBackoff(), 1))
        except (ValueError, RedisError):
            hint = "use redis://user:password@host:6379/0, rediss:// with TLS, unix:// for a socket"
            raise ConfigError(f"invalid state.url: {name_of(url)}", hint=hint) from None

    async def ask(self, *commands: Command) -> list[Any]:
        """Return the replies; StoreError, with a message fit for a client, unless each command has one."""
        if self._resting_until is not None and self._clock() < self._resting_until:
            raise _away()
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
                async with asyncio.timeout(_PATIENCE):
                    found = await self._exchange([command for commands, _ in batch for command in commands])
            except Exception as error:  # noqa: BLE001  # whatever the error is, no caller may wait forever
                found = error
                batch, self._waiting = [*batch, *self._waiting], []  # they would wait in vain
            self._hand_out(batch, found)

    async def _exchange(self, commands: list[Command]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    def _hand_out(self, batch: list[_Asked], found: list[Any] | Exception) -> None:
        for commands, answers in batch:
            mine = [found] if isinstance(found, Exception) else [found.pop(0) for _ in commands]
            fault = next((one for one in mine if isinstance(one, Exception)), None)
            if fault is not None:
                self._rest(fault)
            elif self._resting_until is not None:
                self._resting_until = None
                _log.warning("the shared state at %s is available again", name_of(self._url))
            if answers.done():
                continue  # the caller was cancelled
            if fault is None:
                answers.set_result(mine)
            else:
                answers.set_exception(_away())

    def _rest(self, fault: Exception) -> None:
        if self._resting_until is None:
            words = redact(str(fault), self._url) or type(fault).__name__
            _log.error("the shared state at %s is unavailable: %s", name_of(self._url), words)
        self._resting_until = self._clock() + _REST

    async def aclose(self) -> None:
        if self._sending is not None:
            await self._sending
        await self.client.aclose()


def _away() -> StoreError:
    return StoreError("the shared state of the gateways is unavailable", hint="try again in a moment")
