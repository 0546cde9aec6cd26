"""Where an upstream's stream ends, and whether that is the end of the answer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from hostile import CALL_ANSWER, REQUEST, TEXT_ANSWER, ask, decode_answer, path_of, post, run
from serving import WIRES, serving, upstream_rows
from toolwire.ir.folding import unfold
from toolwire.ir.request import Params
from toolwire.ir.text import to_bytes
from toolwire.wire import get

FINISH = b'"finish_reason":"tool_calls"}]}'


def stream_of(response):
    encoder = get("openai_chat").stream_encoder(REQUEST)
    return b"".join(encoder.feed(event) for event in unfold(response))


@asynccontextmanager
async def gateway_to_partial_stream(data, then):
    """A gateway to a server that says these bytes of a stream, and then breaks off."""

    async def say(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(0.05)
        if then == "reset":
            writer.transport.abort()
        elif then == "end":
            writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with serving({"upstreams": upstream_rows(url)}) as gateway:
        yield gateway
    server.close()
    await server.wait_closed()


@pytest.mark.one_in(7)
@pytest.mark.parametrize("front", WIRES)
@pytest.mark.parametrize("then", ["end", "cut", "reset"])
@pytest.mark.parametrize(
    "more", [b"", b"\n\n", b'\n\ndata: {"id":'], ids=["no blank line", "no last word", "torn usage"]
)
@run
async def test_stream_cut_after_the_finish_reason_is_complete(front, then, more):
    """All words and calls are there: who asked again would pay for it, and run the calls, a second time."""
    data = stream_of(CALL_ANSWER)
    async with gateway_to_partial_stream(data[: data.index(FINISH) + len(FINISH)] + more, then) as gateway:
        answer = await ask(gateway, front, stream=True)
        (call,) = decode_answer(answer, front, stream=True).calls
        assert (call.name, call.arguments, call.state) == ("get_weather", {"city": "Paris"}, "complete")
        assert answer.whole
        if front == "openai_chat":
            assert answer.body.endswith(FINISH + b"\n\ndata: [DONE]\n\n")
    assert gateway.turns[0].error is None
    assert gateway.turns[0].is_estimated  # the count of tokens is what was lost


@pytest.mark.parametrize("front", WIRES)
@pytest.mark.parametrize("then", ["end", "cut", "reset"])
@run
async def test_stream_cut_before_the_finish_reason_is_an_error(front, then):
    data = stream_of(CALL_ANSWER)
    async with gateway_to_partial_stream(data[: data.index(FINISH)], then) as gateway:
        answer = await ask(gateway, front, stream=True)
        assert b"stopped" in answer.body and b"[DONE]" not in answer.body
    assert gateway.turns[0].error == "server"


@pytest.mark.parametrize("front", ["openai_chat", "gemini"])
@run
async def test_missing_choice_of_several_is_reported(front):
    data = stream_of(TEXT_ANSWER).replace(b"data: [DONE]\n\n", b"")
    several = replace(REQUEST, model="openai_chat/m", tools=(), params=Params(n=2), stream=True)
    async with gateway_to_partial_stream(data, "reset") as gateway:
        body = to_bytes(get(front).encode_request(several).body)
        answer = await post(gateway, path_of(front, stream=True), body)
        assert b"1 of 2 answers" in answer.body
