"""Scenario: gateways count the requests and tokens of keys in a shared state that fails, and whose clock jumps.

Driven: `LimitWindow`, `admit_request`, `InProcessLimiter`, `FileLimiter`, `SqlLimiter` with `StateDatabase` (on SQLite),
`RedisLimiter` with `RedisLink` (on `fake_redis`), `SharedLimiter`.

    never more   no window has more than the maximum while the state can be reached, or always if it is strict
    never less   a refused request is one too many, if nothing failed; the time until there is room is right
    alone        without the state, each gateway holds the limit by itself
    no lock-out  a clock that was ahead refuses nobody once it is right again and a window is over (SE3)
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from sim.fake_redis import FakeRedis, RemoteRedis, RemoteSql
from sim.world import Machine, Process, World, sim_folder
from toolwire.gateway.config.settings import KeyRow
from toolwire.gateway.faults import RateLimited
from toolwire.gateway.keys import Caller, InProcessLimiter
from toolwire.gateway.state import file_limits
from toolwire.gateway.state.database import SqliteLink, StateDatabase
from toolwire.gateway.state.file_limits import FileLimiter
from toolwire.gateway.state.redis_link import RedisLink
from toolwire.gateway.state.redis_stores import RedisLimiter
from toolwire.gateway.state.shared import SharedLimiter
from toolwire.gateway.state.sql_stores import LIMIT_TABLES, SqlLimiter
from toolwire.ir.errors import StoreError

CHAOS = 240.0  # virtual seconds of load: four windows
WINDOW = 60.0
YEAR = 366 * 86_400.0


@dataclass
class Asked:
    """A request: when it was asked and answered, by whom, and whether it was admitted. `tokens`: of its answer."""

    gateway: str
    began: float
    ended: float
    is_admitted: bool
    retry_after: float = 0.0
    tokens: int = 0
    counted: float = 0.0  # when its tokens were counted


class Limits:
    """One run of the scenario."""

    def __init__(self, world: World, folder: Path) -> None:
        draw = world.random
        self.world = world
        self.folder = folder
        if world.calm:
            world.delay = 0.001  # with more, some replies miss the timeout of a second
        self.kind = draw.choice(("file", "sql", "redis"))
        self.is_strict = draw.random() < 0.5
        self.server = Machine(world)
        self.jumps = not world.calm and draw.random() < 0.4
        self.callers = [
            Caller("requests", KeyRow("", requests_per_minute=draw.randint(2, 8))),
            Caller("tokens", KeyRow("", tokens_per_minute=draw.randint(50, 200), tokens_per_day=100_000)),
            Caller("both", KeyRow("", requests_per_minute=draw.randint(4, 9), tokens_per_minute=300)),
        ]
        self.asked: dict[str, list[Asked]] = {caller.name: [] for caller in self.callers}
        self.redis = FakeRedis(self.server.wall)
        self.sql = SqliteLink(str(folder / "limits.db"), LIMIT_TABLES)
        self.gateways: list[tuple[Process, Any]] = []
        self.was_away = False

    def start_gateway(self) -> tuple[Process, Any]:
        number = len(self.gateways) + 1
        process = Process(self.world, f"gateway {number}", self.server if self.kind == "file" else Machine(self.world))
        self.gateways.append((process, self.make_limiter(process)))
        return self.gateways[-1]

    def make_limiter(self, process: Process) -> Any:
        local = InProcessLimiter(lambda: self.world.loop.now)
        if self.kind == "file":
            return FileLimiter(self.folder / "limits", None if self.is_strict else local, self.server.wall)
        if self.kind == "sql":
            link: Any = RemoteSql(self.sql, process, self.server.wall)
            shared: Any = SqlLimiter(StateDatabase(link, lambda: self.world.loop.now))
        else:
            redis = RedisLink("redis://simulated", lambda: self.world.loop.now)
            redis.client = RemoteRedis(self.redis, process)
            shared = RedisLimiter(redis)
        return SharedLimiter(shared, local, strict=self.is_strict)

    async def ask(self, process: Process, limiter: Any, caller: Caller) -> Asked:
        """Send a request, and count the tokens of its answer if it is admitted."""
        loop = self.world.loop
        entry = Asked(process.name, loop.now, 0.0, is_admitted=False)
        try:
            await limiter.admit(caller)
        except RateLimited as error:
            entry.retry_after = error.retry_after or 0.0
        except StoreError:
            entry.retry_after = -1.0  # unknown
            if not self.is_strict:
                self.world.fail(f"{caller.name}: refused because the state cannot be reached")
        else:
            entry.is_admitted = True
        entry.ended = loop.now
        self.asked[caller.name].append(entry)
        if entry.is_admitted and caller.row.tokens_per_minute is not None:
            await asyncio.sleep(self.world.random.uniform(0.0, 3.0))
            entry.tokens = self.world.random.randint(1, 40)
            await limiter.spend(caller, entry.tokens)
            entry.counted = loop.now
        return entry

    async def load(self, process: Process, limiter: Any) -> None:
        """Send requests, in bursts, until the end of the load."""
        draw, pending = self.world.random, set()
        while self.world.loop.now < self.world.chaos_ends:
            for _ in range(draw.choice((1, 1, 1, 6))):
                task = asyncio.ensure_future(self.ask(process, limiter, draw.choice(self.callers)))
                pending.add(task)
                task.add_done_callback(pending.discard)
            await asyncio.sleep(draw.expovariate(0.3))
        if pending:
            await asyncio.wait(pending)

    async def disturb(self) -> None:
        world, draw = self.world, self.world.random
        while True:
            await asyncio.sleep(draw.expovariate(1 / 30.0))
            if not world.is_chaotic:
                break
            process, _ = draw.choice([entry for entry in self.gateways if entry[0].is_alive])
            event = draw.random()
            if self.jumps and event < 0.4:
                before = self.server.offset
                self.server.offset += draw.choice((-30.0, 45.0, YEAR, 40 * YEAR))
                world.note(f"the clock jumps to {self.server.offset:+.0f} s")
                await asyncio.sleep(draw.uniform(0.1, 20.0))
                self.server.offset = before
                world.note(f"the clock is {self.server.offset:+.0f} s again")
            elif event < 0.6:
                process.kill()
                new = self.start_gateway()
                new[0].start(self.load(*new))
            elif event < 0.8:
                process.pause(draw.uniform(0.5, 10.0))
            elif self.kind != "file":
                process.cut_off(draw.uniform(0.5, 10.0))
            else:
                self.was_away = True
                world.cut_off_all(draw.uniform(0.5, 10.0))  # another program holds the lock of the file

    async def run(self) -> None:
        world = self.world
        began = world.loop.now
        world.chaos_ends = began + CHAOS
        for _ in range(world.random.randint(1, 3)):
            self.start_gateway()
        for entry in list(self.gateways):
            entry[0].start(self.load(*entry))
        if not world.calm:
            await self.disturb()
        await asyncio.sleep(world.chaos_ends - world.loop.now + 90.0)  # a message may be a minute late
        for process, _ in self.gateways:
            process.kill()
        for caller in self.callers:
            self.check(caller)
        await self.check_room()

    def check(self, caller: Caller) -> None:
        """Check each window of a key."""
        asked, row = self.asked[caller.name], caller.row
        # If the state can be unavailable, each gateway enforces its limit alone.
        admitted = [entry for entry in asked if entry.is_admitted]
        if self.kind != "file":
            for name in sorted({entry.gateway for entry in admitted}):
                own = [entry for entry in admitted if entry.gateway == name]
                self.check_windows(caller.name, row, own, has_all_tokens=True)
        # A window by a clock that jumps is as long as the jump says. Without the state, the limits are those of each gateway,
        # and tokens that cannot be counted in the state are not.
        if not self.jumps and (self.world.calm or self.is_strict or (self.kind == "file" and not self.was_away)):
            has_all_tokens = self.world.calm or (self.kind == "file" and not self.was_away)
            self.check_windows(caller.name, row, admitted, has_all_tokens=has_all_tokens)
        if self.world.calm:
            for entry in asked:
                if not entry.is_admitted:
                    self.check_refusal(caller.name, row, asked, entry)

    def check_windows(self, name: str, row: KeyRow, admitted: list[Asked], *, has_all_tokens: bool) -> None:
        """Check the requests that were surely within a minute of each one, and the tokens that were surely counted before."""
        for first in admitted:
            last = first.began + WINDOW
            within = sum(entry.began >= first.began and entry.ended <= last for entry in admitted)
            if row.requests_per_minute is not None and within > row.requests_per_minute:
                self.world.fail(f"{name}: {within} requests in a minute, allowed {row.requests_per_minute}")
            earliest = first.ended - WINDOW
            spent = sum(e.tokens for e in admitted if earliest <= e.ended and 0 < e.counted < first.began)
            if has_all_tokens and row.tokens_per_minute is not None and spent >= row.tokens_per_minute:
                self.world.fail(f"{name}: admitted after {spent} tokens in a minute")

    def check_refusal(self, name: str, row: KeyRow, asked: list[Asked], refused: Asked) -> None:
        """A refused request was one too many. Room returns at most a slice late."""
        slack = WINDOW + 2.0
        recent = [e for e in asked if e.is_admitted and e.ended > refused.began - slack and e.began <= refused.ended]
        tokens = sum(
            entry.tokens
            for entry in asked
            if entry.is_admitted and entry.counted > refused.began - slack and entry.began <= refused.ended
        )
        is_full = row.requests_per_minute is not None and len(recent) >= row.requests_per_minute
        is_spent = row.tokens_per_minute is not None and tokens >= row.tokens_per_minute
        if not (is_full or is_spent):
            self.world.fail(f"{name}: refused after {len(recent)} requests and {tokens} tokens")
        if not 0 < refused.retry_after <= slack:
            self.world.fail(f"{name}: room after {refused.retry_after} s")

    async def check_room(self) -> None:
        """Whatever happened, a window without requests later there is room for as many as are allowed."""
        self.world.delay = 0.001
        process, limiter = self.start_gateway()
        for caller in self.callers:
            # The first one may be refused: it lets a clock that was ahead be corrected.
            await process.start(self.ask(process, limiter, caller))
        await asyncio.sleep(WINDOW + 3.0)
        maximum = min(caller.row.requests_per_minute or 4 for caller in self.callers)
        for caller in self.callers:
            for number in range(min(maximum, 2)):
                entry = await process.start(self.ask(process, limiter, caller))
                if not entry.is_admitted:
                    self.world.fail(f"{caller.name}: request {number} refused after a minute without any")
        refused = None
        while refused is None or refused.is_admitted:
            refused = await process.start(self.ask(process, limiter, self.callers[0]))
        await asyncio.sleep(refused.retry_after + 0.01)
        again = await process.start(self.ask(process, limiter, self.callers[0]))
        if not again.is_admitted:
            self.world.fail(f"refused again after the {refused.retry_after} s that were named")


def simulate(seed: int) -> World:
    world = World(seed, calm=seed % 4 == 0)
    try_lock = file_limits._try_lock

    def try_file(descriptor: int) -> bool:
        return world.loop.now >= world.away_until and try_lock(descriptor)

    with sim_folder() as folder, mock.patch.object(file_limits, "_try_lock", try_file):
        scenario = Limits(world, folder)
        try:
            world.run(scenario.run())
        finally:
            scenario.sql.close()
            for _, limiter in scenario.gateways:
                if isinstance(limiter, FileLimiter) and limiter._descriptor is not None:
                    os.close(limiter._descriptor)
    return world
