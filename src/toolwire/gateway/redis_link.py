"""A Redis (or Valkey) that several gateways share, and that may be away for a while.

What requests ask for while an answer is on its way goes out together, as the next batch: under load a round trip, and what it
costs here, is shared by many. A request waits a second for Redis at most. After a failure it is left alone for a moment, so
that an outage costs few requests their patience. The log has a line when it goes, and one when it is back.
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
    """Nothing is connected before the first use."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url = url
        self._clock = clock
        self._resting_until: float | None = None
        self._waiting: list[_Asked] = []
        self._sending: asyncio.Task[None] | None = None
        try:
            # a connection that the server has closed meanwhile is no reason to fail
            self.client: Any = Redis.from_url(url, socket_timeout=_PATIENCE, retry=Retry(NoBackoff(), 1))
        except (ValueError, RedisError):
            hint = "redis://user:password@host:6379/0, rediss:// with TLS, unix:// for a socket"
            raise ConfigError(f"state.url cannot be read: {name_of(url)}", hint=hint) from None

    async def ask(self, *commands: Command) -> list[Any]:
        """Their answers; StoreError, in words fit for a client, where Redis does not give one to each."""
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
            except Exception as error:  # noqa: BLE001  # whatever it is, nobody may wait for ever
                found = error
                batch, self._waiting = [*batch, *self._waiting], []  # they would wait for nothing
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
                _log.warning("the shared state at %s is back", name_of(self._url))
            if answers.done():
                continue  # whoever asked has gone away
            if fault is None:
                answers.set_result(mine)
            else:
                answers.set_exception(_away())

    def _rest(self, fault: Exception) -> None:
        if self._resting_until is None:
            words = redact(str(fault), self._url) or type(fault).__name__
            _log.error("the shared state at %s cannot be used: %s", name_of(self._url), words)
        self._resting_until = self._clock() + _REST

    async def aclose(self) -> None:
        if self._sending is not None:
            await self._sending
        await self.client.aclose()


def _away() -> StoreError:
    return StoreError("what the gateways share cannot be reached", hint="try again in a moment")
