"""Two workers under load: a worker is stopped, killed or frozen."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import pytest
from loaded import report, size
from provider import Provider
from questions import Load, outcome, question
from test_gateway_load import CALM

from hostile import read_answer, run
from waiting import SAFETY, until
from worker_gateway import settings_text, worker_gateway, worker_of

KEY = "ann"


def settings(folder, provider, server):
    return settings_text(provider.url, str(folder / "state.db"), more=f"{CALM}[server]\n{server}\n")


async def stream(gateway, number):
    """Read a stream on a connection of its own, and return its outcome and its worker."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=2**22)
    data, _ = question("openai_chat", "anthropic/m", "words", number, stream=True, key=KEY)
    writer.write(data)
    try:
        answer = await read_answer(reader)
        return outcome(answer, "openai_chat", stream=True), worker_of(answer)
    finally:
        writer.close()


@pytest.mark.finding("OP4")
@run
async def test_stopped_worker_finishes_its_streams_and_gets_no_connections(tmp_path):
    streams, connections = size(20, 100), size(40, 300)
    async with (
        Provider() as provider,
        worker_gateway(tmp_path, settings(tmp_path, provider, f"drain = {SAFETY}"), 2) as gateway,
    ):
        provider.release.clear()
        reading = [asyncio.ensure_future(stream(gateway, number)) for number in range(streams)]
        await until(lambda: provider.held == streams)
        before = gateway.workers
        os.kill(before[0], signal.SIGTERM)
        answers = [await gateway.get("/health") for _ in range(connections)]
        statuses = Counter(answer.status for answer in answers)
        assert gateway.workers == before, "the worker waits for its streams"
        provider.release.set()
        ends = await asyncio.gather(*reading)
        outcomes = Counter(found for found, _ in ends)
        by_worker = sorted(Counter(worker for _, worker in ends).values())
        report("SIGTERM", streams=dict(outcomes), of_each_worker=by_worker, new_connections=dict(statuses))
        assert outcomes == {"ok": streams} and len(by_worker) == 2
        assert statuses == {200: connections}
        await until(lambda: before[0] not in gateway.workers and len(gateway.workers) == 2)


@pytest.mark.finding("OP4")
@run
async def test_killed_and_frozen_workers_lose_only_their_own_requests(tmp_path):
    """Each client loses at most one request for each worker that dies; all others are answered, and once."""
    clients, rounds = size(20, 200), size(1, 3)
    async with (
        Provider() as provider,
        worker_gateway(tmp_path, settings(tmp_path, provider, "heartbeat = 4"), 2) as gateway,
    ):
        load = Load(gateway.port, KEY)
        is_done = False

        async def ask():
            while not is_done:
                await load.ask(clients, 3, "openai_chat/m")
                await asyncio.sleep(0.2)  # else a frozen worker's heartbeat is most of this test's CPU time

        asking = asyncio.ensure_future(ask())
        for count, number in enumerate((signal.SIGKILL, signal.SIGSTOP) * rounds, 1):
            os.kill(gateway.workers[0], number)
            await until(lambda count=count: (tmp_path / "log").read_text().count("runs again") == count)
        is_done = True
        await asking
        ends = ("IncompleteReadError", "ConnectionResetError", "cut off")  # of connections
        lost = [line for line in load.wrong if any(end in line for end in ends)]
        report(
            "SIGKILL and SIGSTOP",
            signals=2 * rounds,
            clients=clients,
            requests=load.asked,
            outcomes=dict(load.outcomes),
        )
        assert len(lost) == len(load.wrong), load.wrong
        assert len(lost) <= 2 * rounds * clients
        assert set(provider.tokens.values()) == {1}
        after = Load(gateway.port, KEY)
        await after.ask(clients, 2, "openai_chat/m")
        assert after.wrong == []
