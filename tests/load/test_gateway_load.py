"""A gateway with many clients: disconnects, reloads, long conversations, full disks."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
from collections import Counter

import pytest
from loaded import MEMORY_GROWTH, loaded_gateway, report, size, upstream_row
from provider import Provider
from questions import Load, question

from hostile import request_bytes, run
from serving import WIRES
from waiting import until

# Other programs on the machine delay the event loop, too. In scenarios that are not about overload, it refuses no requests.
CALM = "[limits]\nloop_delay = 60\n"


def settings(provider, *, limits=CALM, more=""):
    """An upstream for every wire; `WIRE/m` asks for it."""
    return limits + more + "".join(upstream_row(wire, provider.url, wire, retries=0) for wire in WIRES)


@run
async def test_clients_that_leave_leave_nothing_behind(tmp_path):
    """In the middle of a request, before the answer, and after the first piece of a stream."""
    clients = size(60, 600)
    async with Provider() as provider, loaded_gateway(tmp_path, settings(provider)) as gateway:
        load = Load(gateway.port)
        await load.ask(20, 10, "anthropic/m")
        before = await gateway.tasks(), gateway.descriptors
        memory = gateway.memory
        provider.release.clear()
        writers = []
        for number in range(clients):
            data, _ = question(
                WIRES[number % 5], f"{WIRES[number // 5 % 5]}/m", "words", number, stream=number % 3 == 2
            )
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(data if number % 3 else data[: len(data) // 2])
            writers.append(writer)
        await until(lambda: provider.held == clients - clients // 3)
        most = provider.held
        for writer in writers:
            writer.transport.abort()
        await until(lambda: provider.in_flight == 0)
        await gateway.settle(*before)
        provider.release.set()
        await load.ask(20, 5, "anthropic/m")
        after = await gateway.tasks(), gateway.descriptors
        report(
            "disconnects",
            clients=clients,
            upstream_requests=most,
            tasks_and_descriptors=f"{before} before, {after} after",
        )
        assert load.wrong == []
        assert gateway.memory < MEMORY_GROWTH * memory


@run
async def test_reloads_fail_no_request(tmp_path):
    reloads, clients = size(5, 40), size(10, 100)
    async with Provider() as provider, loaded_gateway(tmp_path, settings(provider)) as gateway:
        load = Load(gateway.port)
        is_done = False

        async def ask():
            while not is_done:
                await load.ask(clients, 2, "gemini/m")

        asking = asyncio.ensure_future(ask())
        for number in range(1, reloads + 1):
            (tmp_path / "toolwire.toml").write_text(settings(provider, more=f"ping = {number}\n"), encoding="utf-8")
            gateway.running.send_signal(signal.SIGHUP)
            await until(lambda number=number: gateway.log.read_text().count("settings reloaded") == number)
        is_done = True
        await asking
        report("reloads", reloads=reloads, requests=load.asked, outcomes=dict(load.outcomes))
        assert load.wrong == []
        assert set(provider.tokens.values()) == {1} and len(provider.tokens) == load.asked


@run
async def test_long_conversations_keep_to_the_size_of_the_cache(tmp_path):
    """More conversations than the cache for translations holds: each continues with all of its messages."""
    conversations, turns, length = size(30, 300), size(5, 10), size(4_000, 10_000)
    cache = conversations * turns * length // 4
    async with (
        Provider() as provider,
        loaded_gateway(tmp_path, settings(provider, more=f"translations = {cache}\n")) as gateway,
    ):
        statuses, histories = Counter(), {}

        async def converse(number):
            history = [{"role": "user", "content": f"token-{number:09} brief {'x' * length}"}]
            for turn in range(turns):
                while (answer := await gateway.exchange(chat("anthropic/m", history))).status == 503:
                    statuses[503] += 1  # all requests at once may need more than `limits.memory`
                    await asyncio.sleep(int(answer.headers["retry-after"]))
                assert answer.status == 200, answer
                statuses[200] += 1
                content = answer.document["choices"][0]["message"]["content"]
                assert content.count(f"token-{number:09}") == 5
                history += [
                    {"role": "assistant", "content": content},
                    {"role": "user", "content": f"{turn} {'y' * length}"},
                ]
            histories[number] = history

        await Load(gateway.port).ask(50, 10, "anthropic/m")
        memory = gateway.memory
        provider.tokens.clear()
        await asyncio.gather(*(converse(number) for number in range(conversations)))
        report(
            "conversations",
            conversations=conversations,
            answers=dict(statuses),
            bytes_of_history=sum(len(json.dumps(history)) for history in histories.values()),
            bytes_of_cache=cache,
        )
        assert statuses[200] == conversations * turns
        assert {len(history) for history in histories.values()} == {2 * turns + 1}
        assert set(provider.tokens.values()) == {turns}
        # after a peak of hundreds of MB, Python's allocator keeps some arenas because of a few objects in them
        await until(lambda: gateway.memory < 2 * memory + 3 * cache / 2**20)


@pytest.mark.finding("OP8")
@run
async def test_full_disk_costs_no_request(tmp_path):
    """Files cannot grow, as on a full disk: the log, and the database with the usage. Then there is room again."""
    clients = size(10, 100)
    log_file, usage = tmp_path / "requests.log", tmp_path / "usage.db"
    log_file.write_text("x" * 2**16 + "\n")  # more than standard error has, which is a file here
    more = f"[log]\nfile = {json.dumps(str(log_file))}\n[state]\nusage = {json.dumps(str(usage))}\n"
    async with Provider() as provider, loaded_gateway(tmp_path, settings(provider, more=more)) as gateway:
        load = Load(gateway.port)
        await load.ask(clients, 2, "ollama/m")
        await until(lambda: count_requests(log_file) == load.asked)
        limits = resource.prlimit(gateway.running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(gateway.running.pid, resource.RLIMIT_FSIZE, (log_file.stat().st_size, limits[1]))
        await load.ask(clients, 10, "ollama/m")
        told = gateway.log.read_text().splitlines()
        lost = int(await gateway.metric("toolwire_log_lines_lost_total", kind="log line"))
        assert 10 * clients <= lost <= 10 * clients + 10  # with lines about the usage that cannot be stored
        resource.prlimit(gateway.running.pid, resource.RLIMIT_FSIZE, limits)
        await load.ask(clients, 2, "ollama/m")
        await until(lambda: count_requests(log_file) == 4 * clients)
        report(
            "full disk", requests=load.asked, lost_lines=lost, lines_on_stderr=len(told), outcomes=dict(load.outcomes)
        )
        assert load.wrong == []
        assert len(told) <= 10, told


def count_requests(log_file):
    return log_file.read_bytes().count(b'"event":"request"')


def chat(model, history):
    return request_bytes("/v1/chat/completions", json.dumps({"model": model, "messages": history}).encode())
