"""Clients that send the next request before they have the answer to the last one."""

from __future__ import annotations

import asyncio

from hostile import (
    TEXT_ANSWER,
    body_of,
    connect,
    decode_answer,
    gateway_to,
    path_of,
    read_answer,
    recorded,
    request_bytes,
    run,
)

STREAM = request_bytes(path_of("openai_chat"), body_of("openai_chat", stream=True))
SLOW = {"piece": 16, "pace": 0.02}


@run
async def test_disconnect_with_a_queued_request_cancels_the_upstream_request():
    async with gateway_to(TEXT_ANSWER, TEXT_ANSWER, upstream=SLOW) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(STREAM)
        await reader.readuntil(b"data: ")
        writer.write(STREAM)
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await provider.disconnected()
        await recorded(gateway)
    assert [(turn.status, turn.error) for turn in gateway.turns] == [(499, "client_gone")]
    assert len(provider.requests) == 1


@run
async def test_invalid_data_after_a_queued_request_does_not_corrupt_the_streams():
    async with gateway_to(TEXT_ANSWER, TEXT_ANSWER, upstream=SLOW) as (gateway, provider):
        reader, writer = await connect(gateway)
        writer.write(STREAM)
        await provider.wait_for_requests()
        writer.write(STREAM + b"NO SUCH THING\r\n\r\n")
        for _ in range(2):
            answer = await read_answer(reader)
            assert answer.whole
            assert decode_answer(answer, "openai_chat", stream=True).text == TEXT_ANSWER.text
        assert (await read_answer(reader)).status == 400
        assert await reader.read() == b""
        writer.close()
    assert len(provider.requests) == 2
