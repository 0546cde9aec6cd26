"""Count the load on a store per operation, and of ten and a hundred gateways in the simulator.

    python bench/store_load.py            # both tables of docs/operations/scale.md

The first table runs each operation on real servers, which are started without root as for the tests. It counts the round
trips of the driver, the statements of SQLite, and the CPU of the server. The second table lets gateways of tests/sim send
requests of keys with limits to a shared state for some virtual seconds, and counts the messages.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolwire.gateway.config.settings import KeyRow
from toolwire.gateway.keys import Caller, InProcessLimiter
from toolwire.gateway.routing.health import SharedHealthTable
from toolwire.gateway.state.database import PostgresLink, SqliteLink, StateDatabase
from toolwire.gateway.state.redis_link import RedisLink
from toolwire.gateway.state.redis_stores import RedisLimiter
from toolwire.gateway.state.shared import SharedLimiter
from toolwire.gateway.state.sql_stores import LIMIT_TABLES, SqlLimiter
from toolwire.net.stores import open_store
from toolwire.run.values.records import Claim, StoredRun

sys.path[:0] = [str(Path(__file__).parent.parent / "tests"), str(Path(__file__).parent.parent / "tests" / "support")]
REPEATED = 500  # of each operation, for its CPU
ROW = b"x" * 1000  # an event of a short turn
KEY = Caller("alice", KeyRow("", requests_per_minute=10**9, tokens_per_minute=10**9))
SECONDS = 4.0  # virtual, of the simulation
REQUESTS = 10.0  # per second and gateway


class Counter:
    """The round trips of the drivers, and the statements of SQLite."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, *_: object) -> None:
        self.count += 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Count what psycopg and redis-py send."""
        import psycopg
        from redis.asyncio.connection import AbstractConnection as AsyncConnection
        from redis.connection import AbstractConnection

        wait, send, send_async = (
            psycopg.Connection.wait,
            AbstractConnection.send_packed_command,
            AsyncConnection.send_packed_command,
        )
        patches = [
            (psycopg.Connection, "wait", wait),
            (AbstractConnection, "send_packed_command", send),
            (AsyncConnection, "send_packed_command", send_async),
        ]
        for owner, name, original in patches:
            setattr(owner, name, self._counted(original))
        try:
            yield
        finally:
            for owner, name, original in patches:
                setattr(owner, name, original)

    def _counted(self, original: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.count += 1
            return original(*args, **options)

        return call


def operations(store: Any) -> dict[str, Callable[[int], Any]]:
    """Return the operations on a store, by name, as functions of a number that is different each time."""

    def claim(number: int) -> Claim:
        return Claim(f"key {number}", "pay", "f", f"token {number}")

    def append(number: int, version: int) -> Any:
        return store.runs.append(StoredRun(f"run {number}", token="t"), [ROW], version)

    return {
        "claim of a new call": lambda n: store.claim(claim(n)),
        "heartbeat or renewal of a call": lambda n: store.renew(f"key {n}", f"token {n}", 60.0),
        "complete": lambda n: store.complete(f"key {n}", f"token {n}", "x" * 200, 86_400.0),
        "claim of a recorded call": lambda n: store.claim(Claim(f"key {n}", "pay", "f", "another")),
        "append, first event of a run": lambda n: append(n, 0),
        "append, each further step": lambda n: append(n, 1),
        "renewal of a run's lease": lambda n: store.runs.renew(f"run {n}", "t", 60.0),
        "read a run, without its log": lambda n: store.runs.get(f"run {n}"),
        "read 8 rows of a log": lambda n: store.runs.rows(f"run {n}", 0, 8),
    }


def server_cpu(server: Any) -> float:
    """Return the CPU seconds of a server and of its children."""
    if server is None:
        return time.process_time()
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    root = server._process.pid
    ticks = sum(used for pid, (parent, used) in parents.items() if root in (pid, parent))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(work: Callable[[int], Any], counter: Counter, server: Any) -> tuple[float, float]:
    """Return the messages or statements of an operation, and the microseconds of the server's CPU."""
    before, cpu = counter.count, server_cpu(server)
    for number in range(REPEATED):
        work(number)
    return (counter.count - before) / REPEATED, (server_cpu(server) - cpu) / REPEATED * 1e6


def print_operations() -> None:
    """Print the load of each operation on SQLite, PostgreSQL and Redis."""
    from stores.servers import Postgres, Redis

    rows: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in (None, Postgres, Redis):
            server = kind and kind()
            counter = Counter()
            try:
                url = str(Path(name) / "runs.db") if server is None else server.fresh(Path(name))
                store = open_store(url)
                store.get("warm")
                store.runs.list()
                if server is None:
                    with store._file.use() as connection:
                        connection.set_trace_callback(counter.add)
                with counter.installed():
                    for label, work in operations(store).items():
                        count, micros = measure(work, counter, server)
                        rows.setdefault(label, []).append(f"{count:.0f} ({micros:.0f} µs)")
                    for label, counted, micros in limiter_load(server, url, counter, Path(name)):
                        rows.setdefault(label, []).append(f"{counted:.0f} ({micros:.0f} µs)")
                store.close()
            finally:
                if server is not None:
                    server.stop()
    print("| operation | SQLite: statements | PostgreSQL: round trips | Redis: round trips |\n|---|---|---|---|")
    for label, cells in rows.items():
        print(f"| {label} | {' | '.join(cells)} |")


def limiter_load(server: Any, url: str, counter: Counter, folder: Path) -> Iterator[tuple[str, float, float]]:
    """Measure the check of a limit, and the count of the tokens of an answer, one at a time."""
    loop = asyncio.new_event_loop()
    if server is None:
        link: Any = SqliteLink(str(folder / "limits.db"), LIMIT_TABLES)
        link.execute(("SELECT 1", ()))
        link._connection.set_trace_callback(counter.add)
        limiter: Any = SqlLimiter(StateDatabase(link))
    elif url.startswith("postgresql"):
        limiter = SqlLimiter(StateDatabase(PostgresLink(url, LIMIT_TABLES, "toolwire_limits", "url"), timeout=30.0))
    else:
        limiter = RedisLimiter(RedisLink(url, time.monotonic, timeout=30.0))
    limiter._next_sweep = float("inf")
    loop.run_until_complete(limiter.admit(KEY))
    for label, work in (("limit check of a request", limiter.admit), ("tokens of an answer", limiter.spend)):
        arguments = (KEY,) if work == limiter.admit else (KEY, 100)
        count, micros = measure(lambda _: loop.run_until_complete(work(*arguments)), counter, server)
        yield label, count, micros
    if not isinstance(limiter, RedisLimiter):
        loop.run_until_complete(limiter._database.aclose())
    else:
        loop.run_until_complete(limiter._link.aclose())
    loop.close()


def simulate(kind: str, gateways: int, seconds: float) -> dict[str, float]:
    """Count the messages per second of some gateways in virtual time."""
    from sim.failover import RemoteCooldowns
    from sim.fake_redis import FakeRedis, RemoteRedis, RemoteSql
    from sim.world import Machine, Process, World, sim_folder

    world, machine, sent = World(gateways, calm=True), None, [0]
    world.delay = 0.001  # one way, in one data centre
    with sim_folder() as folder:
        machine = Machine(world)
        sql, redis = SqliteLink(str(folder / "limits.db"), LIMIT_TABLES), FakeRedis(machine.wall)

        async def serve(process: Process, number: int) -> None:
            local, clock = InProcessLimiter(lambda: world.loop.now), world.loop.time
            if kind == "PostgreSQL":
                shared: Any = SqlLimiter(StateDatabase(RemoteSql(sql, process, machine.wall), clock))  # type: ignore[arg-type]
                shared._next_sweep = float("inf")
            else:
                link = RedisLink("redis://simulated", clock)
                link.client = RemoteRedis(redis, process)
                shared = RedisLimiter(link)
            limiter = SharedLimiter(shared, local, strict=False)
            table = SharedHealthTable(RemoteCooldowns({}, process), clock)
            caller = Caller(f"key {number % 50}", KEY.row)
            while True:
                await asyncio.sleep(world.random.expovariate(REQUESTS))
                table.refresh()
                sent[0] += 1
                process.start(answer(limiter, caller))

        async def answer(limiter: SharedLimiter, caller: Caller) -> None:
            await limiter.admit(caller)
            await asyncio.sleep(world.random.uniform(0.2, 2.0))
            await limiter.spend(caller, 100)

        async def main() -> None:
            for number in range(gateways):
                process = Process(world, f"gateway {number}", machine)
                process.start(serve(process, number))
            await asyncio.sleep(2.5)  # until answers end as often as requests begin
            world.load.clear()
            sent[0] = 0
            await asyncio.sleep(seconds)

        world.run(main())
        sql.close()
    found = {name: count / seconds for name, count in world.load.items()}
    return {"requests": sent[0] / seconds, **found}


def print_simulation(sizes: list[int]) -> None:
    """Print the messages of gateways to their shared state, per second."""
    print("| state | gateways | requests | limits and tokens | cooldowns | all messages |\n|---|---|---|---|---|---|")
    for kind in ("Redis", "PostgreSQL"):
        for gateways in sizes:
            found = simulate(kind, gateways, SECONDS)
            limits = found.get("redis pipeline", 0.0) + found.get("sql transaction", 0.0)
            cooldowns = found.get("load cooldowns", 0.0) + found.get("save cooldowns", 0.0)
            cells = [f"{value:,.0f}" for value in (found["requests"], limits, cooldowns, limits + cooldowns)]
            print(f"| {kind} | {gateways:,} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateways", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--only", choices=("operations", "simulation"))
    options = parser.parse_args()
    if options.only != "simulation":
        print_operations()
        print()
    if options.only != "operations":
        print_simulation(options.gateways)


if __name__ == "__main__":
    main()
