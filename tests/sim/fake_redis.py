"""The scripts of `gateway.state.redis_stores` that limit requests, on hashes in memory; compared with Redis in `test_fake_stores`."""

import math
from collections.abc import Callable
from typing import Any

from sim.world import Link, Process, in_thread
from toolwire.gateway.keys import MAX_AHEAD, SLICES
from toolwire.gateway.state.redis_stores import _ADMIT, _SPEND


class FakeRedis:
    """The hashes of a Redis, each an amount by the number of its slice, with the clock of its server."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._hashes: dict[str, dict[int, int]] = {}
        self._ends: dict[str, float] = {}  # by the server's clock

    def execute(self, *command: Any) -> Any:
        name, script, count, *rest = command
        assert name == "EVAL"
        keys, (given, *numbers) = rest[:count], rest[count:]
        now = float(given) if given != "" else self._now()
        for key in keys:
            if self._ends.get(key, math.inf) <= self._now():
                self._hashes.pop(key, None)
        return {_ADMIT: self._admit, _SPEND: self._spend}[script](now, keys, numbers)

    def _admit(self, now: float, keys: list[str], numbers: list[Any]) -> list[Any]:
        rows = [(key, *numbers[3 * at : 3 * at + 3]) for at, key in enumerate(keys)]
        for at, (key, maximum, seconds, _) in enumerate(rows):
            wait = self._wait(now, key, float(maximum), float(seconds))
            if wait > 0:
                return [at + 1, f"{wait:.6f}".encode()]
        for key, _, seconds, counts in rows:
            if counts == 1:
                self._add(now, key, float(seconds), 1)
        return [0, b""]

    def _spend(self, now: float, keys: list[str], numbers: list[Any]) -> None:
        tokens, *slices = numbers
        for key, seconds in zip(keys, slices, strict=True):
            self._add(now, key, float(seconds), int(tokens))

    def _add(self, now: float, key: str, seconds: float, amount: int) -> None:
        amounts, number = self._hashes.setdefault(key, {}), math.floor(now / seconds)
        amounts[number] = amounts.get(number, 0) + amount
        self._ends[key] = self._now() + (SLICES + 2) * seconds

    def _wait(self, now: float, key: str, maximum: float, seconds: float) -> float:
        """Return the seconds until the amounts that count are below the maximum; drop those that do not count."""
        current, kept = math.floor(now / seconds), {}
        for number, amount in self._hashes.get(key, {}).items():
            if number >= current - SLICES:
                place = min(number, current + MAX_AHEAD)
                kept[place] = kept.get(place, 0) + amount
        if key in self._hashes:
            self._hashes[key] = kept
        left, free = sum(kept.values()), now
        for number in sorted(kept):
            if left < maximum:
                break
            left, free = left - kept[number], (number + SLICES + 1) * seconds
        return free - now


class _Pipeline:
    def __init__(self, server: FakeRedis, link: Link) -> None:
        self._server = server
        self._link = link
        self._commands: list[tuple[Any, ...]] = []

    async def __aenter__(self) -> "_Pipeline":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def execute_command(self, *command: Any) -> None:
        self._commands.append(command)

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        """Send all commands in one message."""

        def perform() -> list[Any]:
            return [self._server.execute(*command) for command in self._commands]

        return await in_thread(self._link.call, "redis pipeline", perform)


class RemoteRedis:
    """The client of `RedisLink` in a process."""

    def __init__(self, server: FakeRedis, process: Process) -> None:
        self._server = server
        self._link = Link(process)

    def pipeline(self, *, transaction: bool) -> _Pipeline:
        return _Pipeline(self._server, self._link)

    async def aclose(self) -> None: ...


class RemoteSql:
    """The link of a `StateDatabase` in a process to a SQL server, which is a SQLite file of its own."""

    def __init__(self, server: Any, process: Process, now: Callable[[], float]) -> None:
        self.name = "a simulated database"
        self._server = server
        self._link = Link(process, repeats=False)
        self._now = now

    def transact(self, work: Callable[[Any], Any], writes: bool = True, /) -> Any:
        return self._link.call("sql transaction", lambda: self._server.transact(work, writes))

    def execute(self, *statements: tuple[str, Any]) -> list[list[Any]]:
        return self._link.call("sql statements", lambda: self._server.execute(*statements))

    def now(self, _: Any) -> float:
        return self._now()

    def close(self) -> None: ...
