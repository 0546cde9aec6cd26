"""Scenario: gateways send requests to upstreams that fail, hang and recover, with cooldowns that they share.

Driven: `TargetHealth`, `RetryBudget`, `SharedHealthTable`. The gateway's choice of a target is that of its router: the
first target that admits the request, else the first one that admits it as a last resort.

    no lock-out  when every upstream works again, each gateway sends requests to each of them, and refuses none
    protection   an upstream that is down gets trials, not the load
    retries      are within the budget: a share of the requests, and a few a second
    no refusal   while a target is closed, no request is refused
"""

import asyncio
from random import Random
from typing import Any

from sim.world import Link, Machine, Process, World, in_thread
from toolwire.gateway.routing.health import SharedHealthTable
from toolwire.net.model.health import FAILURE_LIMIT, MAX_COOLDOWN

CHAOS = 300.0
SILENCE = 8.0  # seconds without a byte until a target may hang
HEALED = 2 * MAX_COOLDOWN + 60.0  # a demanded cooldown, a trial that was slow, and their spread


class RemoteCooldowns:
    """Cooldowns in a shared state, as a gateway sees them."""

    def __init__(self, ends: dict[str, float], process: Process) -> None:
        self._ends = ends
        self._world = process.world
        self._link = Link(process)

    async def load(self) -> dict[str, float]:
        def perform() -> dict[str, float]:
            now = self._world.loop.now
            return {label: end - now for label, end in self._ends.items() if end > now}

        return await in_thread(self._link.call, "load cooldowns", perform)

    async def save(self, changes: Any) -> None:
        def perform() -> None:
            self._ends.update({label: self._world.loop.now + seconds for label, seconds in changes.items()})

        await in_thread(self._link.call, "save cooldowns", perform)


class Failover:
    """One run of the scenario."""

    def __init__(self, world: World) -> None:
        draw = world.random
        self.world = world
        self.targets = [f"target {number}" for number in range(draw.randint(1, 3))]
        self.state = dict.fromkeys(self.targets, "up")
        self.ends: dict[str, float] = {}
        self.sent: dict[str, list[float]] = {target: [] for target in self.targets}
        self.down_since: dict[str, float] = {}
        self.gateways: list[Process] = []
        self.served: dict[str, set[str]] = {}

    async def work(self, process: Process) -> None:
        clock = self.world.loop.time
        table: Any = SharedHealthTable(RemoteCooldowns(self.ends, process), clock)
        table._random = Random(self.world.random.random())
        can_probe = self.world.random.random() < 0.7
        health = {t: table.health_of(t, t, 0.2, can_probe=can_probe) for t in self.targets}
        process.start(self.watch(process, table, health))
        began, retries, requests = clock(), 0, 0
        while True:
            await asyncio.sleep(self.world.random.expovariate(1.0))
            table.refresh()
            order = self.targets[:]
            if self.world.random.random() < 0.5:
                self.world.random.shuffle(order)
            target = self.choose(order, health)
            if target is None:
                if any(each.state == "closed" for each in health.values()):
                    self.world.fail("a request was refused while a target is closed")
                if self.world.loop.now > self.healed_at:
                    self.world.fail(f"refused although all work: {[each.state for each in health.values()]}")
                continue
            requests += 1
            process.start(self.send(process, table, target, health[target]))
            if self.state[target] != "up" and health[target].budget.take(clock()):
                retries += 1
            if retries > 0.2 * requests + 3.0 * (clock() - began) + 31 * len(self.targets):
                self.world.fail(f"{retries} retries of {requests} requests")

    def choose(self, order: list[str], health: dict[str, Any]) -> str | None:
        now = self.world.loop.now
        for is_last_resort in (False, True):
            for target in order:
                if health[target].admit(now, is_last_resort=is_last_resort):
                    return target
        return None

    async def send(self, process: Process, table: Any, target: str, health: Any) -> None:
        """Send a request, and report its outcome."""
        world, began, handle = self.world, self.world.loop.now, object()
        health.budget.requests += 1
        state = self.state[target]
        if state != "up":
            self.sent[target].append(began)
        health.begin_wait(handle, began)
        await asyncio.sleep(world.random.uniform(0.05, 2.0) if state != "hanging" else 20.0)
        health.end_wait(handle)
        before, now = health.state, world.loop.now
        if state == "up":
            health.is_heard = True
            health.succeed(now, began)
            if now > self.healed_at - HEALED:
                self.served[process.name].add(target)
        elif state == "failing":
            health.is_heard = True
            wait = world.random.choice((None, None, 5.0, 3600.0))
            health.fail(now, began, retry_after=wait)
        elif world.random.random() < 0.5:
            health.depart(now, began, is_stream=True)
        else:
            health.fail(now, began, is_silent=True)
        if health.state != before:
            table.note_change(target, health)

    async def watch(self, process: Process, table: Any, health: dict[str, Any]) -> None:
        """Send the probes that are due."""
        while True:
            await asyncio.sleep(1.0)
            for target, each in health.items():
                if each.begin_probe(self.world.loop.now, SILENCE):
                    process.start(self.probe(table, target, each))

    async def probe(self, table: Any, target: str, health: Any) -> None:
        await asyncio.sleep(0.1 if self.state[target] != "hanging" else 5.0)
        before = health.state
        health.report_probe(self.world.loop.now, is_answered=self.state[target] != "hanging")
        if health.state != before:
            table.note_change(target, health)

    def start_gateway(self) -> None:
        process = Process(self.world, f"gateway {len(self.gateways) + 1}", Machine(self.world))
        self.gateways.append(process)
        self.served[process.name] = set()
        process.start(self.work(process))

    def set_state(self, target: str, state: str) -> None:
        """Change an upstream, and check what it got while it did not work."""
        now = self.world.loop.now
        self.world.note(f"{target} is {state}")
        if self.state[target] != "up" and state == "up":
            seconds = now - self.down_since[target]
            # Before it is known, the requests of the longest silence; then trials: two a second without another target.
            gateways = len(self.gateways)
            most = gateways * (25 * 1.6 + FAILURE_LIMIT + 2.0 * seconds)
            if len(self.sent[target]) > most:
                self.world.fail(f"{target} got {len(self.sent[target])} requests in {seconds:.0f} s while it was down")
            self.sent[target].clear()
        if self.state[target] == "up" and state != "up":
            self.down_since[target] = now
        self.state[target] = state

    async def run(self) -> None:
        world, draw = self.world, self.world.random
        world.chaos_ends = world.loop.now + CHAOS
        self.healed_at = world.chaos_ends + HEALED
        for _ in range(draw.randint(1, 3)):
            self.start_gateway()
        while not world.calm:
            await asyncio.sleep(draw.expovariate(1 / 15.0))
            if not world.is_chaotic:
                break
            process, event = draw.choice([each for each in self.gateways if each.is_alive]), draw.random()
            if event < 0.7:
                self.set_state(draw.choice(self.targets), draw.choice(("up", "failing", "hanging")))
            elif event < 0.8:
                process.kill()
                self.start_gateway()
            elif event < 0.9:
                process.cut_off(draw.uniform(1.0, 20.0))
            else:
                process.pause(draw.uniform(1.0, 20.0))
        await asyncio.sleep(max(0.0, world.chaos_ends - world.loop.now))
        for target in self.targets:
            self.set_state(target, "up")
        await asyncio.sleep(self.healed_at - world.loop.now + 60.0)
        for process in self.gateways:
            if process.is_alive and self.served[process.name] != set(self.targets):
                self.world.fail(f"{process.name} uses only {sorted(self.served[process.name])} of {self.targets}")


def simulate(seed: int) -> World:
    world = World(seed, calm=seed % 5 == 0)
    world.run(Failover(world).run())
    return world
