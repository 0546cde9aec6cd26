"""More requests than the gateway can answer, in closed and open loops, and many slow streams."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter

import pytest
from loaded import MEMORY_GROWTH, loaded_gateway, report, size, upstream_row
from open_loop import OpenLoop
from provider import Provider
from questions import OVERLOADED, Load, question
from test_gateway_load import CALM, chat, settings

from hostile import run
from toolwire import Response, Text
from toolwire.ir.response import Stop
from toolwire.ir.text import to_bytes
from toolwire.wire import get
from waiting import until

LEVELS = (1, 2, 4)  # times the capacity
# Messages of 200 bytes in a request, by the bound that they exceed: threads translate large requests.
LENGTHS = {"CPU": 1, "threads": 600}
ANSWER = to_bytes(get("gemini").encode_response(Response(parts=(Text("Rain."),), stop=Stop("stop"))).body)


@pytest.mark.finding("OP3")
@run
async def test_closed_loop_above_the_limit_is_refused(tmp_path):
    """The upstream holds every answer, so exactly as many requests as the limit allows are in flight."""
    limit = size(20, 250)
    text = f"{CALM}requests = {limit}\n"
    async with Provider() as provider, loaded_gateway(tmp_path, settings(provider, limits=text)) as gateway:
        await Load(gateway.port).ask(limit, 2, "gemini/m")
        before = await gateway.tasks(), gateway.memory
        for level in LEVELS:
            load = Load(gateway.port)
            load.expected["words"] = {"ok", *OVERLOADED}
            provider.release.clear()
            provider.most = 0
            asking = asyncio.ensure_future(load.ask(level * limit, 1, "gemini/m"))
            await until(lambda: provider.held == limit and load.outcomes.total() == (level - 1) * limit)
            probes = Counter([(await gateway.get(path)).status for path in ("/health", "/ready", "/metrics") * 5])
            provider.release.set()
            await asking
            counts = {"outcomes": dict(load.outcomes), "without_retry_after": load.without_retry_after}
            report(f"closed loop, {level} times", limit=limit, clients=level * limit, probes=dict(probes), **counts)
            assert (load.wrong, load.without_retry_after) == ([], 0)
            assert load.outcomes["words: ok"] == provider.most == limit
            assert probes == {200: 15}
        await gateway.settle(before[0], gateway.descriptors)
        assert gateway.memory < MEMORY_GROWTH * before[1]


@pytest.mark.finding("OP1")
@pytest.mark.finding("OP3")
@pytest.mark.parametrize("bound", ["requests", *(pytest.param(bound, marks=pytest.mark.full) for bound in LENGTHS)])
@run
async def test_open_loop_above_the_capacity_is_refused(tmp_path, bound):
    """The capacity is the number of requests in flight by the duration of an answer, or as many as the CPU can translate.

    A queue without a bound would have most of the requests at four times the capacity.
    """
    # few enough requests that each could have a connection of its own: the number of connections is another limit
    limit, delay, seconds = size(10, 20), 0.1, size(2, 6)
    limits = "" if bound in LENGTHS else f"{CALM}requests = {limit}\n"
    async with (
        Provider(raw=ANSWER) if bound in LENGTHS else Provider(delay=delay) as provider,
        loaded_gateway(tmp_path, settings(provider, limits=limits)) as gateway,
    ):
        numbers = iter(range(1, 10**9))
        contents = ["token-000000000 brief"] + ["x" * 200] * LENGTHS.get(bound, 1)
        data = chat("gemini/m", [{"role": "user", "content": content} for content in contents])

        def message():
            return data.replace(b"token-000000000", b"token-%09d" % next(numbers))

        capacity = limit / delay if bound == "requests" else await closed_loop_rate(gateway, message)
        tasks, memory = await gateway.tasks(), gateway.memory
        for level in LEVELS:
            provider.tokens.clear()
            probes, most = Counter(), 0
            loop = OpenLoop(gateway.port, message)
            running = asyncio.ensure_future(loop.run(level * capacity, seconds))
            while not running.done():
                probes[(await gateway.get("/health")).status] += 1
                most = max(most, loop.unanswered)
                await asyncio.sleep(0.1)
            found = running.result()
            sent = provider.tokens.total()
            report(
                f"open loop by {bound}, {level} times",
                sent=found.sent,
                statuses=dict(found.statuses),
                errors=+found.errors,
                without_retry_after=found.without_retry_after,
                upstream_requests=sent,
                most_unanswered=most,
                probes=dict(probes),
            )
            assert set(found.statuses) <= {"200", "503"}
            assert (+found.errors, found.without_retry_after) == ({}, 0)
            assert found.statuses.total() == found.sent
            assert sent == found.statuses["200"] and set(provider.tokens.values()) == {1}
            assert set(probes) == {200}
            assert most < found.sent / 2
        assert found.statuses["503"] > 0 or bound in LENGTHS, (
            "on a busy machine the load is less than four times the capacity"
        )
        await gateway.settle(tasks, gateway.descriptors)
        await until(lambda: gateway.memory < MEMORY_GROWTH * memory)
        report(f"open loop by {bound}, afterwards", memory_growth=f"{gateway.memory / memory:.2f}")


async def closed_loop_rate(gateway, message):
    """Return the answers per second to 16 clients, each of which sends its next request after an answer."""
    requests, statuses, started_at = iter(range(1000)), Counter(), time.monotonic()

    async def ask():
        for _ in requests:
            statuses[(await gateway.exchange(message())).status] += 1

    await asyncio.gather(*(ask() for _ in range(16)))
    return statuses[200] / (time.monotonic() - started_at)


@pytest.mark.finding("SE14")
@run
async def test_no_slow_stream_waits_with_the_default_settings(tmp_path):
    streams, at_once = size(300, 4000), 16
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with Provider() as provider, loaded_gateway(tmp_path, upstream_row("u", provider.url)) as gateway:
        memory = gateway.memory
        provider.release.clear()
        refused = 0
        openers = asyncio.Semaphore(at_once)

        async def open_stream(number):
            """Return a stream after its head. A refused request is repeated, as by the SDKs."""
            nonlocal refused
            data, _ = question("openai_chat", "u/m", "words", number, stream=True)
            async with openers:
                while True:
                    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=2**20)
                    writer.write(data.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
                    head = await reader.readuntil(b"\r\n\r\n")
                    if head.startswith(b"HTTP/1.1 200 "):
                        return reader, writer
                    assert head.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1\r\n" in head.lower(), head
                    refused += 1
                    writer.close()
                    await asyncio.sleep(1)

        opened = await asyncio.gather(*(open_stream(number) for number in range(streams)))
        await until(lambda: provider.held == streams)
        waiting, held, grown = await gateway.metric("toolwire_upstream_waiting"), provider.held, gateway.memory - memory
        provider.release.set()
        bodies = await asyncio.gather(*(reader.read() for reader, _ in opened))
        for _, writer in opened:
            writer.close()
        complete = sum(
            body.count(b"[DONE]") == 1 and b"token-%09d" % number in body for number, body in enumerate(bodies)
        )
        report(
            "slow streams",
            streams=streams,
            at_once=held,
            waiting=waiting,
            complete=complete,
            refused_and_repeated=refused,
            kB_each=round(grown * 1024 / streams),
        )
        assert (held, waiting, complete) == (streams, 0, streams)
        assert set(provider.tokens.values()) == {1} and len(provider.tokens) == streams


@run
async def test_clients_that_repeat_refused_requests_get_their_answers(tmp_path):
    """As in the scripts that run for long; any other failure is one for them, too."""
    text = f"{CALM}requests = 4\n"
    async with Provider(delay=0.05) as provider, loaded_gateway(tmp_path, settings(provider, limits=text)) as gateway:
        load = Load(gateway.port, repeats=True)
        await load.ask(8, 2, "gemini/m")
        assert load.wrong == [] and load.outcomes["words: ok"] == 16
        assert load.outcomes["refused, and asked again"] > 0
        await load.ask(1, 1, "gemini/m", "failing")
        load.expected.pop("failing")
        await load.ask(1, 1, "gemini/m", "failing")
        assert len(load.wrong) == 1
