"""Scenario: gateways end, cancel and delete background responses under locks, while they and the store fail.

Driven: `StateAccess.lock_status`, `LockReleases`, `SqlResponses` (on SQLite) and `InMemoryResponses`. The gateways' clocks
differ, so a lock may be taken too early; only the holder's write is accepted then.

    one end      a response that has ended is not changed any more, except that it is deleted
    ends         a lock is over at most its lease and the longest pause of its holder later
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sim.fake_redis import RemoteSql
from sim.world import Machine, Process, World, sim_folder
from toolwire.gateway.responses.records import ResponseStateError
from toolwire.gateway.responses.store import InMemoryResponses, OwnerBounds, StateAccess
from toolwire.gateway.state.database import SqliteLink
from toolwire.gateway.state.sql_responses import TABLES, SqlResponses
from toolwire.ir.errors import StoreError

CHAOS = 100.0
BOUNDS = OwnerBounds(1_000_000, 1_000)
LIFE = 86_400.0
RUNNING = b"running"


class Locks:
    """One run of the scenario."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.is_shared = world.random.random() < 0.8
        self.sql = SqliteLink(str(folder / "responses.db"), TABLES)
        self.memory = InMemoryResponses(BOUNDS, lambda: world.loop.now)
        self.ids = [f"resp{number}" for number in range(4)]
        self.ended: dict[str, bytes] = {}
        self.gateways: list[Process] = []

    def open_store(self, process: Process) -> Any:
        if not self.is_shared:
            return self.memory
        link: Any = RemoteSql(self.sql, process, process.machine.wall)
        return SqlResponses(link, BOUNDS, process.machine.wall)

    async def change(self, store: Any, response_id: str, end: bytes | None) -> None:
        """End a response if it is running, or delete it (None), as `ResponsesState` does."""
        access: Any = SimpleNamespace(store=store, owner="alice")
        async with StateAccess.lock_status(access, response_id) as lock:
            current = (await store.load("alice", [response_id])).get(response_id)
            await asyncio.sleep(self.world.random.choice((0.0, 0.5, 5.0)))
            if current is None:
                return
            if end is None:
                await store.delete("alice", [response_id], lock)
            elif current == RUNNING:
                await store.save("alice", response_id, end, LIFE, lock)

    async def work(self, process: Process) -> None:
        store, draw = self.open_store(process), self.world.random
        while True:
            response_id = draw.choice(self.ids)
            end = None if draw.random() < 0.05 else f"{draw.choice(('done', 'cancelled'))} by {process.name}".encode()
            try:
                await self.change(store, response_id, end)
            except (StoreError, ResponseStateError):
                pass
            await asyncio.sleep(draw.expovariate(0.2))

    def start_gateway(self) -> None:
        process = Process(self.world, f"gateway {len(self.gateways) + 1}", Machine(self.world))
        process.machine.offset = self.world.random.choice((0.0, 0.0, -40.0, 40.0))
        self.gateways.append(process)
        process.start(self.work(process))

    async def watch(self) -> None:
        """Read what is stored, often, without the network."""
        observer = Machine(self.world)
        process = Process(self.world, "observer", observer)
        store = self.memory if not self.is_shared else SqlResponses(self.sql, BOUNDS, observer.wall)
        while True:
            await asyncio.sleep(1.0)
            stored = await process.start(store.load("alice", self.ids))
            for response_id, data in stored.items():
                if data != RUNNING and self.ended.setdefault(response_id, data) != data:
                    self.world.fail(f"{response_id} is {data!r} after it was {self.ended[response_id]!r}")

    async def run(self) -> None:
        world, draw = self.world, self.world.random
        world.chaos_ends = world.loop.now + CHAOS
        first = Process(world, "client", Machine(world))
        store = self.memory if not self.is_shared else SqlResponses(self.sql, BOUNDS, first.machine.wall)
        for response_id in self.ids:
            await first.start(store.save("alice", response_id, RUNNING, LIFE))
        watching = Process(world, "watcher", Machine(world)).start(self.watch())
        for _ in range(3):
            self.start_gateway()
        while world.is_chaotic:
            await asyncio.sleep(draw.expovariate(1 / 15.0))
            process = draw.choice([gateway for gateway in self.gateways if gateway.is_alive])
            event = draw.random()
            if event < 0.3 and self.is_shared:
                process.kill()
                self.start_gateway()
            elif event < 0.7:
                process.pause(draw.choice((1.0, 20.0, 50.0)))
            elif self.is_shared:
                process.cut_off(draw.choice((1.0, 20.0)))
        await asyncio.sleep(max(0.0, world.chaos_ends - world.loop.now))
        for process in self.gateways:
            process.kill()
        # the longest lease, by a clock that was 40 seconds ahead, and a message that is a minute late
        await asyncio.sleep(150.0)
        world.delay = 0.001
        last = Process(world, "the last gateway", Machine(world))
        for response_id in self.ids:
            await last.start(self.change(self.open_store(last), response_id, b"done at last"))
        watching.cancel()
        await self.check_end(last)

    async def check_end(self, process: Process) -> None:
        stored = await process.start(self.open_store(process).load("alice", self.ids))
        for response_id, data in stored.items():
            if data == RUNNING:
                self.world.fail(f"{response_id} has not ended")
            if self.ended.get(response_id, data) != data:
                self.world.fail(f"{response_id} is {data!r} after it was {self.ended[response_id]!r}")


def simulate(seed: int) -> World:
    world = World(seed, calm=seed % 5 == 0)
    with sim_folder() as folder:
        scenario = Locks(world, folder)
        try:
            world.run(scenario.run())
        finally:
            scenario.sql.close()
    return world
