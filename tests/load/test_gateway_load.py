"""A gateway with many clients: disconnects, reloads, long conversations, full disks."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter

from gateway.hostile import run
from gateway.serving import WIRES
from loaded import MEMORY_GROWTH, loaded_gateway, report, size, upstream_row
from provider import Provider
from questions import Load, question

from waiting import until

CALM = "[limits]\n"


def settings(provider, *, limits=CALM, more=""):
    """An upstream for every wire; `WIRE/m` asks for it."""
    return limits + more + "".join(upstream_row(wire, provider.url, wire, retries=0) for wire in WIRES)


@run
async def test_clients_that_leave_leave_nothing_behind(tmp_path):
    """In the middle of a request, before the answer, and after the first piece of a stream."""
    clients = size(60, 360)
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
    conversations, turns, length = size(30, 300), size(5, 12), size(4_000, 20_000)
    cache = conversations * turns * length // 4
    async with (
        Provider() as provider,
        loaded_gateway(tmp_path, settings(provider, more=f"translations = {cache}\n")) as gateway,
    ):
        statuses, histories = Counter(), {}

        async def converse(number):
            history = [{"role": "user", "content": f"token-{number:09} brief {'x' * length}"}]
            for turn in range(turns):
                answer = await gateway.exchange(chat("anthropic/m", history))
                statuses[answer.status] += 1
                content = answer.document["choices"][0]["message"]["content"]
                assert content.count(f"token-{number:09}") == 5
                history += [
                    {"role": "assistant", "content": content},
                    {"role": "user", "content": f"{turn} {'y' * length}"},
                ]
            histories[number] = history

        memory = gateway.memory
        await asyncio.gather(*(converse(number) for number in range(conversations)))
        report(
            "conversations",
            conversations=conversations,
            answers=dict(statuses),
            bytes_of_history=sum(len(json.dumps(history)) for history in histories.values()),
            bytes_of_cache=cache,
        )
        assert statuses == {200: conversations * turns}
        assert {len(history) for history in histories.values()} == {2 * turns + 1}
        assert set(provider.tokens.values()) == {turns}
        assert gateway.memory < MEMORY_GROWTH * memory + 3 * cache / 2**20


def chat(model, history):
    body = json.dumps({"model": model, "messages": history}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
