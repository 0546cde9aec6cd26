"""What a gateway does while an upstream is silent, and where it goes when one fails."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from hostile import (
    CALL_ANSWER,
    REQUEST,
    TEXT_ANSWER,
    ask,
    body_of,
    decode_answer,
    expect_error,
    gateway_to,
    path_of,
    post,
    run,
)
from serving import WIRES, serving, upstream_rows
from toolwire import Response, Text
from toolwire.ir.response import Fault, Stop
from toolwire.testing import PartialReply, RawReply, Upstream
from toolwire.wire import get
from virtual_time import in_virtual_time

every_front = pytest.mark.parametrize("front", WIRES)
PINGS = {
    "anthropic": b'event: ping\ndata: {"type":"ping"}\n\n',
    "cohere": b": ping\n\n",
    "gemini": b": ping\n\n",
    "gemini_interactions": b": ping\n\n",
    "ollama": None,
    "openai_chat": b": ping\n\n",
    "openai_responses": b": ping\n\n",
}
QUICK = {"limits": {"ping": 0.1, "cooldown": 0.5}}
RESTING = {"limits": {"ping": 0.1, "cooldown": 3600.0}}
LONG = Response(parts=(Text("It rains and rains. " * 20),), stop=Stop("stop"))
PLAIN = replace(REQUEST, tools=())


def delayed_upstream(seconds, line):
    """A line of a script that comes late."""

    class Late(Upstream):
        async def _answer(self, *args):
            await asyncio.sleep(seconds)
            return await super()._answer(*args)

    return Late(line)


@every_front
@in_virtual_time
async def test_pings_are_sent_before_and_between_events(front):
    async with delayed_upstream(0.45, LONG) as provider:
        provider._pace = 0.13
        provider._piece = 4000
        settings = {"upstreams": upstream_rows(provider.url), **QUICK}
        async with serving(settings) as gateway:
            answer = await ask(gateway, front, wire="anthropic", stream=True)
    ping = PINGS[front]
    if ping is None:
        assert b"ping" not in answer.body  # its clients would not skip it
    else:
        assert answer.body.startswith(ping)
        assert answer.body.count(ping) >= 3
    assert decode_answer(answer, front, stream=True).text == LONG.text


@in_virtual_time
async def test_a_ping_is_never_inside_of_an_event():
    """Bytes pass as they come, cut anywhere; what is put between them comes between two events."""
    for front in WIRES:
        async with gateway_to(
            CALL_ANSWER, document={"limits": {"ping": 0.01}}, upstream={"piece": 40, "pace": 0.012}
        ) as (
            gateway,
            _,
        ):
            answer = await ask(gateway, front, wire=front, stream=True)
            assert [call.arguments for call in decode_answer(answer, front, stream=True).calls] == [{"city": "Paris"}]
            ping = PINGS[front]
            assert ping is None or ping in answer.body


@every_front
@in_virtual_time
async def test_after_a_ping_an_error_is_an_event(front):
    """The head has gone out with the ping: there is no status to say it with any more."""
    fault = Fault("invalid_request", "too long", 400)
    async with (
        delayed_upstream(0.3, fault) as provider,
        serving({"upstreams": upstream_rows(provider.url), **QUICK}) as gateway,
    ):
        answer = await ask(gateway, front, wire="anthropic", stream=True)
    if PINGS[front] is None:
        expect_error(answer, front, 400)
        return
    assert answer.status == 200 and answer.whole
    decoder = get(front).stream_decoder()
    faults = [event.fault for event in [*decoder.feed(answer.body), *decoder.close()] if hasattr(event, "fault")]
    assert [one.message for one in faults] == ["too long"]


@in_virtual_time
async def test_json_array_stream_stays_valid_with_pings():
    import json

    for line, expected in ((LONG, "It rains"), (PartialReply(LONG, 900, "cut"), "error")):
        async with gateway_to(line, document=QUICK, upstream={"piece": 300, "pace": 0.15}) as (gateway, _):
            path = "/v1beta/models/anthropic/m:streamGenerateContent"
            answer = await post(gateway, path, body_of("gemini", model="anthropic/m"))
        assert answer.status == 200 and answer.headers["content-type"] == "application/json"
        items = json.loads(answer.body)
        assert isinstance(items, list) and expected in json.dumps(items)


@in_virtual_time
async def test_upstream_comments_reset_the_idle_timeout():
    """The limit on silence is for silence."""

    async def slowly(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for _ in range(6):
            writer.write(b": still there\n\n")
            await asyncio.sleep(0.1)
        writer.write(_stream("openai_chat", TEXT_ANSWER))
        writer.close()

    server = await asyncio.start_server(slowly, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with serving({"upstreams": upstream_rows(url, idle=0.3)}) as gateway:
        answer = await ask(gateway, "anthropic", stream=True)
        assert decode_answer(answer, "anthropic", stream=True).text == TEXT_ANSWER.text
    server.close()
    await server.wait_closed()


def _stream(wire, response):
    from toolwire.ir.folding import unfold

    encoder = get(wire).stream_encoder(REQUEST)
    return b"".join(encoder.feed(event) for event in unfold(response))


def two_upstreams(first, second, **model):
    return {
        "upstreams": {
            "a": {"base_url": first.url, "wire": "openai_chat", "retries": 0},
            "b": {"base_url": second.url, "wire": "anthropic", "retries": 0},
        },
        "models": {
            "m": {"upstream": "a", "model": "x", "fallbacks": ["n"], **model},
            "n": {"upstream": "b", "model": "y"},
        },
        **RESTING,
    }


async def ask_m(gateway, request=PLAIN, *, stream=False, headers=None, front="openai_chat"):
    return await post(gateway, path_of(front, "m", stream=stream), body_of(front, request, "m", stream=stream), headers)


FAILURES = [
    Fault("server", "oh", 500),
    Fault("overloaded", "busy", 529),
    Fault("rate_limit", "slow down", 429),
    Fault("authentication", "who?", 401),
    Fault("not_found", "no such model", 404),
    PartialReply(TEXT_ANSWER, None, "cut"),
    PartialReply(TEXT_ANSWER, None, "reset"),
    RawReply(b"<html>", headers={"content-type": "text/html"}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: getattr(one, "kind", type(one).__name__))
@run
async def test_failure_before_the_first_byte_falls_back(failure, stream):
    async with Upstream(failure) as first, Upstream(TEXT_ANSWER, TEXT_ANSWER) as second:
        async with serving(two_upstreams(first, second)) as gateway:
            for _ in range(2):  # the second time the first one rests
                answer = await ask_m(gateway, stream=stream)
                assert decode_answer(answer, "openai_chat", stream=stream).text == TEXT_ANSWER.text
        assert (len(first.requests), len(second.requests)) == (1, 2)
        assert gateway.turns[0].attempts == 2 and gateway.turns[1].attempts == 1
        assert gateway.turns[0].upstream == "b"


@run
async def test_invalid_request_is_not_sent_to_the_fallback():
    async with Upstream(Fault("invalid_request", "no", 400)) as first, Upstream(TEXT_ANSWER) as second:
        async with serving(two_upstreams(first, second)) as gateway:
            expect_error(await ask_m(gateway), "openai_chat", 400)
        assert not second.requests


@run
async def test_started_stream_is_not_retried():
    async with Upstream(PartialReply(LONG, 900, "cut")) as first, Upstream(TEXT_ANSWER) as second:
        async with serving(two_upstreams(first, second)) as gateway:
            answer = await ask_m(gateway, stream=True)
        assert b"error" in answer.body and answer.whole
        assert not second.requests
        assert gateway.turns[0].error == "server"


@run
async def test_target_is_used_again_after_its_cooldown():
    async with Upstream(Fault("server", "oh", 500), TEXT_ANSWER) as first, Upstream(TEXT_ANSWER) as second:
        async with serving(two_upstreams(first, second) | QUICK) as gateway:
            await ask_m(gateway)
            await asyncio.sleep(0.6)
            assert decode_answer(await ask_m(gateway), "openai_chat").text == TEXT_ANSWER.text
        assert (len(first.requests), len(second.requests)) == (2, 1)


@run
async def test_cooldown_lasts_for_retry_after():
    async with (
        Upstream(Fault("rate_limit", "no", 429, retry_after=60.0)) as first,
        Upstream(TEXT_ANSWER, TEXT_ANSWER) as second,
    ):
        async with serving(two_upstreams(first, second) | QUICK) as gateway:
            await ask_m(gateway)
            await asyncio.sleep(0.6)  # longer than is usual
            await ask_m(gateway)
        assert (len(first.requests), len(second.requests)) == (1, 2)


@run
async def test_retries_are_limited():
    rows = {"retries": 2}
    async with gateway_to(
        Fault("overloaded", "busy", 503), Fault("overloaded", "busy", 503), TEXT_ANSWER, rows=rows
    ) as (
        gateway,
        provider,
    ):
        assert decode_answer(await ask(gateway, "openai_chat"), "openai_chat").text == TEXT_ANSWER.text
        assert len(provider.requests) == 3
        provider.script = [Fault("overloaded", "busy", 503)] * 9
        expect_error(await ask(gateway, "openai_chat"), "openai_chat", 503)
        assert len(provider.requests) == 6


@run
async def test_request_with_tools_skips_models_without_tool_support():
    async with Upstream(TEXT_ANSWER, TEXT_ANSWER) as first, Upstream(CALL_ANSWER, CALL_ANSWER) as second:
        async with serving(two_upstreams(first, second, tools=False)) as gateway:
            assert decode_answer(await ask_m(gateway, REQUEST), "openai_chat").calls
            assert decode_answer(await ask_m(gateway), "openai_chat").text == TEXT_ANSWER.text
        assert not first.requests[0].request.tools
        assert (len(first.requests), len(second.requests)) == (1, 1)
        alone = two_upstreams(first, second, tools=False, fallbacks=[])
        async with serving(alone) as gateway:
            for front in WIRES:
                expect_error(await ask_m(gateway, REQUEST, front=front), front, 400)
        assert (len(first.requests), len(second.requests)) == (1, 1)


@run
async def test_strict_request_is_rejected_before_anything_is_sent():
    seeded = body_of("openai_chat", PLAIN, "anthropic/m")[:-1] + b',"seed":7}'
    async with gateway_to(TEXT_ANSWER) as (gateway, provider):
        answer = await post(gateway, path_of("openai_chat"), seeded, {"x-toolwire-strict": "1"})
        assert "seed" in expect_error(answer, "openai_chat", 400).message
        assert not provider.connections
        answer = await post(gateway, path_of("openai_chat"), seeded)
        assert answer.status == 200 and int(answer.headers["x-toolwire-losses"]) >= 1
        assert len(gateway.turns[1].losses) == int(answer.headers["x-toolwire-losses"])


@run
async def test_target_weights_are_respected():
    from random import Random

    async with Upstream(*[TEXT_ANSWER] * 200) as first, Upstream(*[TEXT_ANSWER] * 200) as second:
        document = two_upstreams(first, second)
        targets = [{"upstream": "a", "model": "x", "weight": 3}, {"upstream": "b", "model": "y", "weight": 1}]
        document["models"] = {"m": {"targets": targets}}
        async with serving(document) as gateway:
            gateway.gateway._router._random = Random(7)
            for _ in range(100):
                await ask_m(gateway)
        assert 60 <= len(first.requests) <= 90
        assert len(first.requests) + len(second.requests) == 100


@in_virtual_time
async def test_no_task_or_connection_is_leaked():
    before = len(asyncio.all_tasks())
    lines = [
        TEXT_ANSWER,
        Fault("server", "oh", 500),
        PartialReply(LONG, 100, "cut"),
        PartialReply(LONG, 100, "stall"),
    ] * 5
    async with gateway_to(*lines, rows={"timeout": 0.2, "idle": 0.1}, document={"limits": {"cooldown": 0.0}}) as (
        gateway,
        provider,
    ):
        for _ in lines:
            await ask(gateway, "anthropic", stream=True)
        await asyncio.sleep(0.1)
        # the server, the provider's idle connections and its own loop
        assert len(asyncio.all_tasks()) - before < 8
        assert len(provider._open) <= 2
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
