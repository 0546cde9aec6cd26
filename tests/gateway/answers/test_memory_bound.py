"""The memory of all requests in flight is bounded: senders that stall, buffered answers, parsed documents."""

from __future__ import annotations

import asyncio
import json

import pytest

from hostile import (
    TEXT_ANSWER,
    ask,
    body_of,
    connect,
    decode_answer,
    expect_error,
    gateway_to,
    head_of,
    path_of,
    post,
    read_answer,
    run,
)
from serving import WIRES
from toolwire import Message, Request, Response, Text
from toolwire.gateway.keys import hash_key
from toolwire.ir.response import Stop, Usage
from toolwire.ir.text import to_bytes
from toolwire.testing import RawReply
from toolwire.wire import get
from waiting import until

MEGABYTE = 1024 * 1024
LIMITS = {"limits": {"memory": 4 * MEGABYTE}}
OVERLOADED = {"anthropic": 529}  # its own status for what is 503 elsewhere


def used(gateway):
    return gateway.gateway._memory_bound.used


def text_request(size):
    return Request(messages=(Message("user", (Text("x" * size),)),))


async def stall(gateway, size, headers=None):
    """Send `size` bytes of a body that has one more."""
    before = used(gateway)
    reader, writer = await connect(gateway)
    given = {
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(size + 1),
        **(headers or {}),
    }
    writer.write(head_of(path_of("openai_chat"), given) + b"x" * size)
    await writer.drain()
    await until(lambda: used(gateway) == before + size)
    return reader, writer


@pytest.mark.finding("Z10")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_stalled_senders_count_and_others_are_refused(front):
    async with gateway_to(TEXT_ANSWER, document=LIMITS) as (gateway, provider):
        stalled = [await stall(gateway, MEGABYTE) for _ in range(4)]
        answer = await ask(gateway, front)
        fault = expect_error(answer, front, OVERLOADED.get(front, 503))
        assert answer.headers["retry-after"] == "1" and "4,194,304 bytes" in fault.message
        assert not provider.requests
        for _, writer in stalled:
            writer.close()
        await until(lambda: used(gateway) == 0)
        assert decode_answer(await ask(gateway, front), front).text == TEXT_ANSWER.text
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@run
async def test_refused_sender_is_told_before_its_body_ends():
    async with gateway_to(document=LIMITS) as (gateway, _):
        reader, writer = await connect(gateway)
        head = {"host": "localhost", "content-length": str(30 * MEGABYTE)}
        writer.write(head_of(path_of("anthropic"), head) + b"x" * 5 * MEGABYTE)
        expect_error(await read_answer(reader), "anthropic", 529)
        writer.close()
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@run
async def test_values_of_a_body_count():
    """A document of small values takes many times the memory of its text."""
    body = b'{"model":"openai_chat/m","messages":[],"x":[' + b"1," * 100_000 + b"1]}"
    async with gateway_to(document=LIMITS) as (gateway, _):
        expect_error(await post(gateway, path_of("openai_chat"), body), "openai_chat", 503)
        assert used(gateway) == 0


@pytest.mark.finding("Z10")
@run
async def test_text_of_a_body_counts_as_text():
    """Commas in text are no values."""
    request = Request(messages=(Message("user", (Text("1," * 100_000),)),))
    async with gateway_to(TEXT_ANSWER, document=LIMITS) as (gateway, _):
        assert (await ask(gateway, "openai_chat", request)).status == 200


@pytest.mark.finding("Z10")
@pytest.mark.parametrize("escaped", [False, True])
@run
async def test_one_wide_character_makes_the_text_count_more(escaped):
    """A Python string with one emoji has four bytes for each of its characters."""

    def body(text):
        messages = [{"role": "user", "content": "x" * 900_000 + text}]
        return json.dumps({"model": "openai_chat/m", "messages": messages}, ensure_ascii=escaped).encode()

    async with gateway_to(TEXT_ANSWER, document=LIMITS) as (gateway, _):
        assert (await post(gateway, path_of("openai_chat"), body("y"))).status == 200
        expect_error(await post(gateway, path_of("openai_chat"), body("\U0001f600")), "openai_chat", 503)
        expect_error(await post(gateway, path_of("openai_chat"), body("\u4e2d")), "openai_chat", 503)
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_buffered_answers_count(stream):
    """Also the whole answer of an upstream that was asked for a stream."""
    large = Response(parts=(Text("x" * 2 * MEGABYTE),), stop=Stop("stop"), usage=Usage(1, 1))
    reply = RawReply(to_bytes(get("openai_chat").encode_response(large).body))
    async with gateway_to(reply, document=LIMITS, upstream={"piece": 2**16}) as (gateway, _):
        expect_error(await ask(gateway, "anthropic", stream=stream), "anthropic", 529)
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@run
async def test_one_key_leaves_memory_for_others():
    keys = {name: {"hash": hash_key(f"sk-tw-{name}")} for name in ("one", "other")}
    one, other = ({"authorization": f"Bearer sk-tw-{name}"} for name in keys)
    async with gateway_to(TEXT_ANSWER, document={**LIMITS, "keys": keys}) as (gateway, _):
        stalled = [await stall(gateway, MEGABYTE, one) for _ in range(2)]
        assert (await ask(gateway, "openai_chat", headers=one)).status == 503
        assert (await ask(gateway, "openai_chat", headers=other)).status == 200
        for _, writer in stalled:
            writer.close()
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@run
async def test_memory_is_released_after_errors_and_disconnects():
    async with gateway_to(*[TEXT_ANSWER] * 3, document=LIMITS) as (gateway, _):
        for body in (b"[]", b"{", b'{"model":"unknown"}', b'{"model":"anthropic/m","messages":[{"role":1}]}'):
            assert (await post(gateway, path_of("openai_chat"), body)).status in (200, 400, 404)
        await ask(gateway, "anthropic", text_request(400_000))
        await ask(gateway, "anthropic", text_request(400_000), stream=True)
        _, writer = await connect(gateway)
        body = body_of("openai_chat", text_request(400_000), "anthropic/m")
        writer.write(head_of(path_of("openai_chat"), {"host": "localhost", "content-length": str(len(body))}) + body)
        await writer.drain()
        writer.close()
        await asyncio.sleep(0)
        await until(lambda: used(gateway) == 0)
        assert gateway.gateway._memory_bound.used_by == {}


@pytest.mark.finding("Z10")
@run
async def test_reload_changes_the_bound():
    async with gateway_to(TEXT_ANSWER, document=LIMITS) as (gateway, _):
        settings = gateway.gateway._settings
        from msgspec.structs import replace

        gateway.gateway.apply(replace(settings, limits=replace(settings.limits, memory=10)))
        expect_error(await ask(gateway, "openai_chat"), "openai_chat", 503)
        gateway.gateway.apply(settings)
        assert (await ask(gateway, "openai_chat")).status == 200
