"""Scenario: processes make the same calls of tools that write, with one store, while they and the network fail.

Driven: `Runner`, `Dispatch`, `CallRun` with `run.calls.claims`, `StoreSteps`, and the store's rules.

    effects      a write with a key has its effect once, as long as its record lives: `ttl` of the runner or the tool
    results      all callers get the result of that effect, or are told that it is unknown or not run
    end          when nothing fails any more, every call is done or reported as unknown; done has one effect
    reservations no claim is `running` longer than its lease after its process has died
"""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

from sim.monitor import MonitoredStore, RemoteStore
from sim.world import Machine, Process, World, in_thread, present_process, present_world, sim_folder
from toolwire import Runner, ToolCall, tool
from toolwire.ir.parts import ToolResult
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.stores.sqlite import SqliteStore
from toolwire.run.calls.context import NotExecuted
from toolwire.run.values.records import DAY, MAX_LEASE
from toolwire.run.values.results import result_code

CHAOS = 400.0  # virtual seconds with faults


class Effects:
    """The effects of the tools, by name and number."""

    def __init__(self, world: World, longest: float) -> None:
        self._world = world
        self._longest = longest
        self.counts: dict[tuple[str, int], int] = defaultdict(int)
        self.life: dict[tuple[str, int], int] = defaultdict(int)  # how often its record was allowed to expire

    def perform(self, name: str, number: int) -> str:
        self.counts[name, number] += 1
        count = self.counts[name, number]
        self._world.note(f"effect {name}({number}), number {count}")
        if name != "put" and count > 1 + self.life[name, number]:
            self._world.fail(f"{name}({number}) had its effect {count} times")
        return f"{name} {number} was number {count}"

    def rest(self) -> float:
        return self._world.random.uniform(0.0, self._longest)


# The tools are made once, because their schemas take longer than a schedule. The world of a call is that of its process.


@tool(effect="write")
async def pay(number: int) -> str:
    """Pay: an async function."""
    effects = present_process().shared
    await asyncio.sleep(effects.rest())
    result = effects.perform("pay", number)
    await asyncio.sleep(effects.rest())
    return result


@tool(effect="write")
def ship(number: int) -> str:
    """Ship: a function in a thread."""
    effects = present_process().shared
    present_world().block(effects.rest())
    result = effects.perform("ship", number)
    present_world().block(effects.rest())
    return result


@tool(effect="idempotent")
async def put(number: int) -> str:
    """Put: it may be repeated if its outcome is unknown."""
    effects = present_process().shared
    await asyncio.sleep(effects.rest())
    effects.perform("put", number)
    await asyncio.sleep(effects.rest())
    return f"put {number}"


@tool(effect="write", retries=2)
async def book(number: int) -> str:
    """Book: it fails before its effect, or after it."""
    effects = present_process().shared
    await asyncio.sleep(effects.rest())
    draw = present_world().random.random()
    if draw < 0.15:
        raise NotExecuted("no connection")
    result = effects.perform("book", number)
    if draw < 0.3:
        raise TimeoutError("no reply")
    return result


class Calls:
    """One run of the scenario."""

    def __init__(self, world: World, folder: Path) -> None:
        draw = world.random
        self.world = world
        self.kind = draw.choice(("server", "server", "machine", "sqlite"))
        self.machine = Machine(world)
        has_ticks = self.kind != "server"
        ticks = self.machine.ticks if has_ticks else self.machine.wall
        if self.kind == "sqlite":
            opened: Any = SqliteStore(str(folder / "records.db"), self.machine.wall, ticks)
        else:
            opened = MemoryStore(self.machine.wall, ticks)
        self.store = MonitoredStore(world, self.machine, opened, has_ticks=has_ticks)
        self.lease = draw.choice((5.0, 30.0))
        self.ttl = draw.choice((DAY / 6, DAY, 3 * DAY))
        self.effects = Effects(world, draw.choice((1.0, 20.0)))
        # Jumps past the time to live are harmless only with ticks; a server's clock is trusted (docs/stores.md).
        self.jumps = (-3600.0, -20.0, 20.0, 3600.0, 90 * DAY, -90 * DAY) if has_ticks else (-20.0, 5.0, 60.0)
        self.wanted = [(name, n) for name in ("pay", "ship", "put", "book") for n in range(draw.randint(1, 2))]
        self.processes: list[Process] = []
        self.results: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.names = 0
        self.jumped = False

    def start_process(self) -> Process:
        self.names += 1
        machine = Machine(self.world) if self.kind == "server" else self.machine
        process = Process(self.world, f"process {self.names}", machine)
        self.processes.append(process)
        process.start(self.work(process))
        return process

    def make_runner(self, process: Process) -> Runner:
        runner = Runner(
            pay,
            ship,
            put,
            book,
            store=RemoteStore(self.store, process),
            lease=self.lease,
            ttl=self.ttl,
            while_running=(waits := self.world.random.choice(("wait", "refuse"))),
        )
        process.waits = waits == "wait"
        process.shared = self.effects
        return runner

    async def work(self, process: Process) -> None:
        """Make calls, several at a time, some of them cancelled, until the faults end."""
        runner, draw = self.make_runner(process), self.world.random
        while self.world.loop.now < self.world.chaos_ends:
            wanted = draw.sample(self.wanted, draw.randint(1, len(self.wanted)))
            turn = asyncio.ensure_future(self.make_calls(runner, wanted))
            if not self.world.calm and draw.random() < 0.2:
                await asyncio.wait({turn}, timeout=draw.uniform(0.0, 5.0))
                turn.cancel()
            await asyncio.wait({turn})
            await asyncio.sleep(draw.expovariate(0.1))

    async def make_calls(self, runner: Runner, wanted: list[tuple[str, int]]) -> dict[tuple[str, int], ToolResult]:
        calls = [ToolCall(f"c{index}", name, {"number": number}) for index, (name, number) in enumerate(wanted)]
        results = await runner.run(calls, run_id="run")
        for call, result in zip(wanted, results, strict=True):
            self.note_result(call, result)
            if self.world.calm and present_process().waits and result_code(result) == "in_progress":
                self.world.fail(f"{call} did not wait for the execution in progress")
        return dict(zip(wanted, results, strict=True))

    def note_result(self, call: tuple[str, int], result: ToolResult) -> None:
        """All callers who get a result get the same one."""
        if not result.is_error:
            self.results[call].add(result.text)
            if len(self.results[call]) > 1 + self.effects.life[call]:
                self.world.fail(f"{call} has the results {sorted(self.results[call])}")
            if not self.effects.counts[call]:
                self.world.fail(f"{call} has a result without an effect")

    async def disturb(self) -> None:
        """Kill, pause and cut off processes, and set clocks, until the faults end."""
        world, draw = self.world, self.world.random
        while True:
            await asyncio.sleep(draw.expovariate(1 / 25.0))
            if not world.is_chaotic:
                break
            alive = [process for process in self.processes if process.is_alive]
            victim, event = draw.choice(alive), draw.random()
            if event < 0.4:
                victim.kill()
                self.start_process()
            elif event < 0.6:
                victim.pause(draw.choice((1.0, 2 * self.lease, 4 * self.lease)))
            elif event < 0.8:
                victim.cut_off(draw.choice((1.0, 2 * self.lease)))
            else:
                machine = draw.choice((self.machine, victim.machine))
                machine.offset += draw.choice(self.jumps)
                self.jumped = True
                world.note(f"a clock jumps to {machine.offset:+.0f} s")
        for process in self.processes:
            process.cut_off_until = 0.0

    async def run(self) -> None:
        world = self.world
        self.began = world.loop.now
        world.chaos_ends = world.loop.now + (CHAOS if not world.calm else CHAOS / 4)
        for _ in range(world.random.randint(2, 4)):
            self.start_process()
        if not world.calm:
            await self.disturb()
        await asyncio.sleep(max(0.0, world.chaos_ends - world.loop.now) + 4 * self.lease + 120.0)
        if not world.calm and world.random.random() < 0.5:
            for process in self.processes:
                process.kill()
            await asyncio.sleep(2 * self.lease + 120.0)
        if self.jumped and any(record.state == "running" for record in self.store.store.records()):
            await asyncio.sleep(MAX_LEASE)  # the longest time for which a lease lasts that was made by a wrong clock
        done = await self.check_end()
        if done:
            await self.check_time_to_live(done)

    async def check_end(self) -> list[tuple[str, int]]:
        """A process that is started when nothing fails any more finds every call done or unknown, or makes it."""
        process = Process(self.world, "the last process", self.machine)
        results = await process.start(self.make_calls(self.make_runner(process), self.wanted))
        records = await process.start(in_thread(RemoteStore(self.store, process).records))
        running = [record.key for record in records if record.state == "running"]
        if running:
            self.world.fail(f"claims without a process are still running: {running}")
        for call, result in results.items():
            code, count = result_code(result), self.effects.counts[call]
            if not result.is_error and call[0] != "put" and count != 1:
                self.world.fail(f"{call} is done, and had its effect {count} times")
            if result.is_error and code != "outcome_unknown" and call[0] != "book":
                self.world.fail(f"{call} is neither done nor unknown: {code}")
            if call[0] == "put" and result.is_error:
                self.world.fail(f"{call} may be repeated, and is {code}")
            if self.world.calm and result.is_error and call[0] != "book":
                self.world.fail(f"{call} is {code}, although nothing failed")
        return [call for call, result in results.items() if not result.is_error and call[0] in ("pay", "ship")]

    async def check_time_to_live(self, done: list[tuple[str, int]]) -> None:
        """A result is replayed until the end of its time to live, and the call is made again after it (X4)."""
        process = Process(self.world, "a later process", self.machine)
        runner = self.make_runner(process)
        elapsed = self.world.loop.now - self.began
        await asyncio.sleep(0.8 * self.ttl - elapsed)
        await process.start(self.make_calls(runner, done))
        await asyncio.sleep(0.3 * self.ttl + elapsed)
        if self.machine.offset:
            return  # a jump may lengthen the life of a record
        for call in done:
            self.effects.life[call] += 1
        before = {call: self.effects.counts[call] for call in done}
        await process.start(self.make_calls(runner, done))
        for call in done:
            if self.effects.counts[call] != before[call] + 1:
                self.world.fail(f"{call} was not made again after {self.ttl:.0f} s")


def simulate(seed: int) -> World:
    with sim_folder() as folder:
        world = World(seed, calm=seed % 5 == 0)
        calls = Calls(world, folder)
        try:
            world.run(calls.run())
        finally:
            calls.store.store.close()
    return world
