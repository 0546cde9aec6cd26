"""Many agents and many processes on one SQLite file: each effect happens once, and each run is stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing

import pytest
from loaded import report, size
from paying import pay_all, pay_in_process

from fan_out import WIDTH, agent_with
from stores.servers import PROCESSES
from stores.test_sweeping import fill
from stores.worker import executions
from toolwire.net.stores import open_store

PROCESS_COUNT = size(4, 8)


def stored_runs(store):
    return Counter(run.status for run in store.runs.list(limit=100_000))


def test_each_of_many_agents_pays_once(tmp_path):
    agents = size(100, 1000)
    names = [f"invoice-{number}" for number in range(agents)]
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        outputs = asyncio.run(pay_all(store, tmp_path / "effects", names))
        runs, records = stored_runs(store), len(store.records("done", limit=100_000))
    written = sum(file.stat().st_size for file in tmp_path.glob("runs.db*"))
    effects = executions(tmp_path / "effects")
    report(
        "agents",
        agents=agents,
        answers=dict(outputs),
        runs=dict(runs),
        records=records,
        effects=effects.total(),
        bytes=written,
    )
    assert outputs == {"Done.": agents}
    assert effects == dict.fromkeys(names, 1)
    assert (runs, records) == ({"done": agents}, agents)
    assert written < agents * 20_000


@pytest.mark.finding("RU3")
def test_usage_of_many_subagents_is_complete(tmp_path):
    leaves = size(300, 10_000)
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        answer = asyncio.run(agent_with(leaves, store=store).run("Go."))
        runs = stored_runs(store)
    report("subagents", leaves=leaves, model_requests=answer.usage.input, runs=dict(runs))
    assert (answer.text, answer.usage.input) == ("ok", leaves + 2 * (leaves // WIDTH) + 2)
    assert runs["running"] == runs["failed"] == 0


@pytest.mark.finding("RU5")
def test_processes_share_a_file(tmp_path):
    """While they run, expired runs of earlier days are swept."""
    count, expired = size(10, 100), size(500, 20_000)
    url, effects = str(tmp_path / "runs.db"), tmp_path / "effects"
    with closing(open_store(url)) as store:
        fill(store, expired)
        arguments = [(url, effects, number, count) for number in range(PROCESS_COUNT)]
        running = [PROCESSES.Process(target=pay_in_process, args=these) for these in arguments]
        for child in running:
            child.start()
        swept = store.sweep()
        for child in running:
            child.join()
        codes = Counter(child.exitcode for child in running)
        runs, left = stored_runs(store), store.sweep()
    paid = executions(effects)
    report(
        "processes",
        processes=PROCESS_COUNT,
        exit_codes=dict(codes),
        runs=dict(runs),
        effects=paid.total(),
        expired=expired,
        swept=swept,
        left=left,
    )
    assert codes == {0: PROCESS_COUNT}
    assert len(paid) == PROCESS_COUNT * count and set(paid.values()) == {1}
    assert (runs, left) == ({"done": PROCESS_COUNT * count}, 0)
