"""Measure stored runs: bytes written and CPU per turn of runs with 200, 400 and 800 turns, on four stores.

    python bench/runs.py [--turns 200 400 800] [--stores memory sqlite postgres redis] [--size 50000]

A scripted model calls a tool in every turn, which returns `--size` characters. Bytes are the size of the appended rows,
counted in front of the store; CPU is the time of this process, with the threads of the store and without its server. Every
run uses a store of its own; PostgreSQL and Redis are started without root, as for the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import toolwire
from toolwire import Agent, ToolCall
from toolwire.net.stores import open_store
from toolwire.run import Budget
from toolwire.testing import ScriptedModel, says

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
STORES = ("none", "memory", "sqlite", "postgres", "redis")


class CountingRuns:
    """Counts the bytes and rows that are appended to the runs of a store."""

    def __init__(self, runs: Any) -> None:
        self._runs = runs
        self.bytes = self.rows_written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    def append(self, run: Any, rows: Any, *arguments: Any, **options: Any) -> Any:
        self.bytes += sum(map(len, rows))
        self.rows_written += len(rows)
        return self._runs.append(run, rows, *arguments, **options)


def make_agent(turns: int, size: int, store: Any, **options: Any) -> Agent[Any, Any]:
    """Make an agent whose model calls a tool `turns` times."""

    @toolwire.tool(effect="read", output_limit=2 * size + 1000)
    def read(number: int) -> str:
        """Read a large text."""
        return f"{number} " + "The quick brown fox jumps over the lazy dog. " * (size // 45)

    lines = [says(ToolCall(f"c{number}", "read", {"number": number})) for number in range(turns)]
    budget = Budget(iterations=turns + 1, calls=None)
    return Agent(ScriptedModel([*lines, says("Done.")]), [read], store=store, budget=budget, **options)


def measure(store: Any, turns: int, size: int, **options: Any) -> tuple[float, float]:
    """Return CPU milliseconds and written bytes, both per turn."""
    counted = None
    if store is not None:
        counted = store.runs = CountingRuns(store.runs)
    agent = make_agent(turns, size, store, **options)

    async def run() -> str:
        """Return only the id: `asyncio.run` of Python 3.11 makes a `repr` of a result."""
        answer = await agent.run("Read everything.")
        assert answer.finished, answer.reason
        return answer.run_id

    before = time.process_time()
    run_id = asyncio.run(run())
    cpu = time.process_time() - before
    if counted is not None:
        assert store.runs.get(run_id).status == "done"
    return cpu * 1000 / turns, 0 if counted is None else counted.bytes / turns


def make_servers(names: list[str]) -> dict[str, Any]:
    from stores import servers

    return {name: getattr(servers, name.capitalize())() for name in names if name in ("postgres", "redis")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[200, 400, 800])
    parser.add_argument("--stores", nargs="+", default=list(STORES), choices=STORES)
    parser.add_argument("--size", type=int, default=50_000, help="characters of each result")
    arguments = parser.parse_args()
    servers = make_servers(arguments.stores)
    rows = []
    try:
        for name in arguments.stores:
            for turns in arguments.turns:
                with tempfile.TemporaryDirectory() as folder:
                    address = servers[name].fresh(Path(folder)) if name in servers else f"{folder}/runs.db"
                    address = "memory:" if name == "memory" else address
                    store = None if name == "none" else open_store(address)
                    cpu, written = measure(store, turns, arguments.size)
                    if store is not None:
                        store.close()
                rows.append({"store": name, "turns": turns, "cpu_ms": cpu, "bytes": written})
    finally:
        for server in servers.values():
            server.stop()
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
