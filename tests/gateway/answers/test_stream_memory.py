"""The buffered part of a relayed stream counts as memory in use until the request has ended."""

from __future__ import annotations

import json

import pytest

from hostile import (
    REQUEST,
    WEATHER,
    ask,
    body_of,
    connect,
    decode_answer,
    expect_error,
    gateway_to,
    path_of,
    recorded,
    request_bytes,
    run,
)
from serving import WIRES
from toolwire import Request, Runner
from toolwire.ir.events import StreamFault
from toolwire.testing import RawReply, Recorded
from toolwire.wire import get
from waiting import until

MEGABYTE = 1024 * 1024
STREAM = {"content-type": "text/event-stream"}
LIMITS = {"limits": {"memory": 4 * MEGABYTE}}


def used(gateway):
    return gateway.gateway._memory_bound.used


def chat_chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "a", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def call_stream(size, *, character="x", ended=True):
    """A stream of OpenAI Chat with one call, its arguments in fragments of 4 KB; one that has not `ended` stalls."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": WEATHER.name, "arguments": '{"city":"'}}
    chunks = [chat_chunk({"role": "assistant", "tool_calls": [call]})]
    fragment = chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": "x" * 4095 + character}}]})
    chunks += [fragment] * (size // 4096)
    if ended:
        chunks.append(chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]}))
        chunks += [chat_chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
        return RawReply(b"".join(chunks), headers=STREAM)
    return Recorded(((0.0, b"".join(chunks)), (3600.0, b"")), headers=STREAM)


def text_stream(size):
    chunks = [chat_chunk({"role": "assistant", "content": ""}), *[chat_chunk({"content": "x" * 4096})] * (size // 4096)]
    chunks += [chat_chunk({}, "stop"), b"data: [DONE]\n\n"]
    return RawReply(b"".join(chunks), headers=STREAM)


def fault_in(answer, front):
    decoder = get(front).stream_decoder()
    faults = [event for event in decoder.feed(answer.body) if isinstance(event, StreamFault)]
    return faults[0].fault if faults else None


def status_or_event(answer, front):
    """The fault of an answer, as a status if nothing was sent before: a wire without fragments of calls."""
    return fault_in(answer, front) if answer.status == 200 else expect_error(answer, front, answer.status)


@pytest.mark.finding("Z10")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_growing_call_ends_in_an_error_event(front):
    """Its fragments are sent at once, and are kept for the end of the call."""
    async with gateway_to(call_stream(2 * MEGABYTE), document=LIMITS) as (gateway, _):
        answer = await ask(gateway, front, stream=True)
        assert answer.whole
        fault = status_or_event(answer, front)
        assert fault is not None and "4,194,304 bytes of memory" in fault.message
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@run
async def test_error_is_overloaded_for_a_client_of_responses():
    async with gateway_to(call_stream(2 * MEGABYTE), document=LIMITS) as (gateway, _):
        answer = await ask(gateway, "openai_responses", stream=True)
        assert b"response.function_call_arguments.delta" in answer.body and b"response.completed" not in answer.body
        await recorded(gateway)
        assert gateway.turns[0].error == "overloaded"


@pytest.mark.finding("Z10")
@run
async def test_text_for_responses_is_repeated_and_counts():
    """The last events repeat the whole answer, so that all of it is kept."""
    async with gateway_to(text_stream(600_000), text_stream(300_000), document=LIMITS) as (gateway, _):
        answer = await ask(gateway, "openai_responses", stream=True)
        assert fault_in(answer, "openai_responses") is not None
        await until(lambda: used(gateway) == 0)
        answer = await ask(gateway, "openai_responses", stream=True)
        assert len(decode_answer(answer, "openai_responses", stream=True).text) == 300_000 // 4096 * 4096
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@run
async def test_streams_in_progress_count_together_and_are_released():
    """The upstream sends half an answer and stops: its reservation stays, and ends with the client's connection."""
    limits = {"limits": {"memory": 16 * MEGABYTE}}
    size = 400_000
    async with gateway_to(*[call_stream(size, ended=False)] * 2, document=limits) as (gateway, _):
        body = body_of("openai_responses", stream=True)
        writers = []
        for number in (1, 2):
            _, writer = await connect(gateway)
            writer.write(request_bytes(path_of("openai_responses", stream=True), body))
            writers.append(writer)
            await until(lambda number=number: used(gateway) > number * 9 * size)
        for writer in writers:
            writer.close()
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("Z10")
@run
async def test_wide_characters_in_a_stream_count_more():
    size = 250_000
    replies = [call_stream(size), call_stream(size, character="\U0001f600")]
    async with gateway_to(*replies, document=LIMITS) as (gateway, _):
        assert fault_in(await ask(gateway, "openai_responses", stream=True), "openai_responses") is None
        assert fault_in(await ask(gateway, "openai_responses", stream=True), "openai_responses") is not None


@pytest.mark.finding("Z10")
@run
async def test_call_of_a_gateway_tool_counts_although_the_client_does_not_get_it():
    """Text after it is sent to the client; the call is kept until the turn ends."""

    def get_weather(city: str) -> str:
        """The weather."""
        return "rain"

    calls = call_stream(MEGABYTE, ended=True).body
    end = calls.index(chat_chunk({}, "tool_calls"))
    body = calls[:end].replace(b"\n\n", b"\n\n" + chat_chunk({"content": "."})) + calls[end:]
    reply = RawReply(body, headers=STREAM)
    async with gateway_to(reply, document=LIMITS, runners={"*": Runner(get_weather)}) as (gateway, provider):
        answer = await ask(gateway, "anthropic", Request(messages=REQUEST.messages), stream=True)
        assert fault_in(answer, "anthropic") is not None and len(provider.requests) == 1
        await until(lambda: used(gateway) == 0)


def stream_of_calls(count):
    """A stream of OpenAI Chat with calls that have no arguments, and nearly no bytes."""
    chunks = [chat_chunk({"role": "assistant", "content": ""})]
    for number in range(count):
        call = {"index": number, "id": f"c{number}", "type": "function"}
        chunks.append(chat_chunk({"tool_calls": [{**call, "function": {"name": WEATHER.name, "arguments": "{}"}}]}))
    chunks += [chat_chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
    return RawReply(b"".join(chunks), headers=STREAM)


@pytest.mark.finding("SE2")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_calls_without_arguments_count_as_memory(front):
    """210,000 of them once took 440 MB, of which nothing was counted if the stream was passed through."""
    async with gateway_to(stream_of_calls(1000), stream_of_calls(3000), document=LIMITS) as (gateway, _):
        answer = await ask(gateway, front, stream=True)
        if front != "openai_responses":  # whose events repeat the calls
            assert len(decode_answer(answer, front, stream=True).calls) == 1000
        await until(lambda: used(gateway) == 0)
        fault = status_or_event(await ask(gateway, front, stream=True), front)
        assert "4,194,304 bytes of memory" in fault.message
        await until(lambda: used(gateway) == 0)


@pytest.mark.finding("SE2")
@pytest.mark.parametrize("front", ["openai_chat", "anthropic"])
@run
async def test_calls_of_a_stream_are_bounded_as_the_values_of_a_whole_answer(front):
    """Each leaves objects until the answer ends, and a garbage collection visits all of them without a pause."""
    limits = {"limits": {"values": 32_000}}
    async with gateway_to(stream_of_calls(900), stream_of_calls(2000), document=limits) as (gateway, _):
        assert len(decode_answer(await ask(gateway, front, stream=True), front, stream=True).calls) == 900
        fault = status_or_event(await ask(gateway, front, stream=True), front)
        assert "more than 1000 texts and calls" in fault.message and "limits.values" in fault.message
