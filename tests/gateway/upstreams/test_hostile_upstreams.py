"""Upstreams that misbehave, behind a gateway on a real socket: the client gets its answer, or an error in its own words."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc

import pytest
from msgspec.structs import replace

from hostile import (
    CALL_ANSWER,
    REQUEST,
    SECRET,
    TEXT_ANSWER,
    WEATHER,
    ask,
    body_of,
    connect,
    decode_answer,
    expect_error,
    gateway_to,
    path_of,
    post,
    read_answer,
    recorded,
    request_bytes,
    run,
)
from serving import WIRES
from toolwire import Response, Text, ToolCall
from toolwire.ir.errors import ToolwireError
from toolwire.ir.events import StreamFault
from toolwire.ir.response import Fault, Stop
from toolwire.ir.text import to_bytes
from toolwire.testing import PartialReply, RawReply
from toolwire.wire import get
from virtual_time import in_virtual_time
from waiting import cpu_guard, until

every_front = pytest.mark.parametrize("front", WIRES)
STREAM = {"content-type": "text/event-stream"}


def stream_of(wire, response=CALL_ANSWER):
    """The bytes of a sound stream."""
    from toolwire.ir.folding import unfold

    encoder = get(wire).stream_encoder(REQUEST)
    return b"".join(encoder.feed(event) for event in unfold(response))


def fault_in(answer, front):
    """The error event that ends a stream."""
    assert answer.status == 200 and answer.whole, answer
    decoder = get(front).stream_decoder()
    try:
        events = [*decoder.feed(answer.body), *decoder.close()]
    except ToolwireError as error:
        pytest.fail(f"{front}: a stream without an end: {error}\n{answer.body[-500:]!r}")
    (fault,) = [event.fault for event in events if isinstance(event, StreamFault)]
    assert SECRET not in str(fault)
    return fault


def chat_call(arguments):
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def chat_call_stream(arguments):
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    deltas = [({"role": "assistant", "tool_calls": [call]}, None), ({}, "tool_calls")]
    chunks = [{"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
    return b"".join(b"data: " + to_bytes(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


NEEDS_CITY = replace(REQUEST, tools=(replace(WEATHER, input_schema={**WEATHER.input_schema, "required": ["city"]}),))
BAD_ARGUMENTS = (
    "[]",
    '"{\\"a\\": 1}"',
    '{"a":1}<|call|>',
    '{"a":1}{"a":1}',
    "{'a': 1}",
    "{a: 1}",
    '{"a": [1, 2',
)


@pytest.mark.gateway_bad_input(19, 20, 21, 22, 23, 24)
@every_front
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_arguments_that_are_not_an_object_are_never_runnable(front, stream):
    """A wire that carries text carries them as they are; for the others the answer is an error, or a stop that is none of "run it"."""
    lines = [
        RawReply(chat_call_stream(text), headers=STREAM) if stream else RawReply(to_bytes(chat_call(text)))
        for text in BAD_ARGUMENTS
    ]
    async with gateway_to(*lines) as (gateway, _):
        for text in BAD_ARGUMENTS:
            answer = await ask(gateway, front, NEEDS_CITY, stream=stream)
            if answer.status == 200 and not stream:
                came = decode_answer(answer, front)
                assert not [call for call in came.calls if call.state == "complete"] or came.stop.reason == "length"
            elif answer.status == 200:
                _assert_nothing_to_run(answer.body, front, text)
            else:
                expect_error(answer, front, 502)


REPAIRED = {"models": {"mended": {"upstream": "openai_chat", "model": "m", "repair": "safe"}}}


@pytest.mark.finding("G3a")
@every_front
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_calls_are_repaired_before_they_are_checked_for_the_client(front, stream):
    """A repair that comes after the check is too late for clients that get an object: the check ends in an error."""
    text = '{"city": "Berlin",}'
    reply = RawReply(chat_call_stream(text), headers=STREAM) if stream else RawReply(to_bytes(chat_call(text)))
    async with gateway_to(reply, document=REPAIRED) as (gateway, _):
        body = body_of(front, NEEDS_CITY, "mended", stream=stream)
        answer = await post(gateway, path_of(front, "mended", stream=stream), body)
        came = decode_answer(answer, front, stream=stream)
    assert [(call.arguments, call.state) for call in came.calls] == [({"city": "Berlin"}, "complete")]


@pytest.mark.finding("G13", "GA17")
@pytest.mark.gateway_bad_input(17)
@every_front
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("request_of", [REQUEST, NEEDS_CITY], ids=["nothing required", "city required"])
@run
async def test_null_is_no_arguments(front, stream, request_of):
    """As empty text is. A call without a required argument is then checked by the client, like any other call."""
    reply = RawReply(chat_call_stream("null"), headers=STREAM) if stream else RawReply(to_bytes(chat_call("null")))
    async with gateway_to(reply) as (gateway, _):
        answer = await ask(gateway, front, request_of, stream=stream)
        (call,) = decode_answer(answer, front, stream=stream).calls
        assert (call.arguments, call.state) == ({}, "complete")


def _assert_nothing_to_run(body, front, text):
    decoder = get(front).stream_decoder()
    events = [*decoder.feed(body), *decoder.close()]
    if not [event for event in events if isinstance(event, StreamFault)]:
        from toolwire import fold

        came = fold(events)
        assert not [call for call in came.calls if call.state == "complete"] or came.stop.reason == "length", text


@pytest.mark.gateway_bad_input(18)
@every_front
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_empty_arguments_become_an_empty_object(front, stream):
    line = RawReply(chat_call_stream(""), headers=STREAM) if stream else RawReply(to_bytes(chat_call("")))
    async with gateway_to(line) as (gateway, _):
        came = decode_answer(await ask(gateway, front, stream=stream), front, stream=stream)
    assert came.calls[0].arguments == {}


@pytest.mark.one_in(5)
@pytest.mark.gateway_bad_input(59, 60)
@every_front
@run
async def test_stream_split_anywhere_arrives_complete(front):
    words = Response(
        parts=(Text("Zürich 😀 \u2028 日本"), ToolCall("c", "get_weather", {"city": "Köln 😀"})),
        stop=Stop("tool_calls"),
    )
    async with gateway_to(*[words] * len(WIRES), upstream={"piece": 3}) as (gateway, _):
        for wire in WIRES:
            came = decode_answer(await ask(gateway, front, wire=wire, stream=True), front, stream=True)
            assert came.text == words.text
            assert [call.arguments for call in came.calls] == [{"city": "Köln 😀"}]


def _line_ends(data):
    return [data.replace(b"\n", b"\r\n"), data.replace(b"\n", b"\r"), data.replace(b"\n\n", b"\r\n\n")]


def _multi_line(data):
    """Each object over two lines of data."""
    return data.replace(b'data: {"id":', b'data: {\ndata: "id":')


SSE = [wire for wire in WIRES if wire != "ollama"]


@pytest.mark.gateway_bad_input(61, 62, 63)
@every_front
@run
async def test_server_sent_events_are_read_in_every_valid_form(front):
    for wire in SSE:
        await _every_spelling(front, wire)


async def _every_spelling(front, wire):
    sound = stream_of(wire, TEXT_ANSWER)
    spellings = [*_line_ends(sound), sound.replace(b"data: ", b"data:"), _multi_line(sound), b"\xef\xbb\xbf" + sound]
    async with gateway_to(*(RawReply(one, headers=STREAM) for one in spellings)) as (gateway, _):
        for _ in spellings:
            came = decode_answer(await ask(gateway, front, wire=wire, stream=True), front, stream=True)
            assert came.text == TEXT_ANSWER.text


@pytest.mark.gateway_bad_input(64)
@pytest.mark.parametrize("front", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
@run
async def test_comment_flood_is_bounded_by_the_answer_limit(front, wire):
    """Passed on where bytes pass, left out elsewhere, and bounded by the limit on an answer."""
    flood = b": ping\n\n" * 100_000
    lines = [
        RawReply(flood + stream_of(wire, TEXT_ANSWER), headers=STREAM),
        RawReply(flood * 3 + stream_of(wire, TEXT_ANSWER), headers=STREAM),
    ]
    async with gateway_to(*lines, document={"limits": {"answer": 1_000_000}}) as (gateway, _):
        with cpu_guard():
            came = decode_answer(await ask(gateway, front, wire=wire, stream=True), front, stream=True)
            answer = await ask(gateway, front, wire=wire, stream=True)
        assert came.text == TEXT_ANSWER.text
        if answer.status == 200:
            assert "bytes" in fault_in(answer, front).message
        else:
            expect_error(answer, front, 502)


@pytest.mark.gateway_bad_input(65, 66)
@pytest.mark.parametrize("front", WIRES)
@run
async def test_missing_done_marker_and_trailing_data_are_tolerated(front):
    sound = stream_of("openai_chat", TEXT_ANSWER)
    for data in (
        sound.replace(b"data: [DONE]\n\n", b""),
        sound + b'data: {"choices":[{"index":0,"delta":{"content":"more"}}]}\n\n',
        sound + b"\xff\xff",
    ):
        async with gateway_to(RawReply(data, headers=STREAM)) as (gateway, _):
            came = decode_answer(await ask(gateway, front, stream=True), front, stream=True)
            assert came.text == TEXT_ANSWER.text


OUT_OF_ORDER = [
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":7}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":-1,"content_block":{"type":"text","text":""}}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":1000000000,"content_block":{"type":"text","text":""}}\n\n',
    b"data: {not json}\n\n",
    b"data: []\n\n",
    b'data: {"type":"nobody knows"}\n\n',
    b"<html>502 Bad Gateway</html>",
    bytes(range(256)) * 4,
    b"",
]


@pytest.mark.one_in(5)
@pytest.mark.gateway_bad_input(67, 68)
@every_front
@run
async def test_malformed_events_end_in_an_error_or_an_answer(front):
    """In a stream and instead of one, over the same wire and another: an error in the client's words, or an answer."""
    for wire in ("anthropic", "openai_chat"):
        lines = [RawReply(noise, headers=STREAM) for noise in OUT_OF_ORDER]
        lines += [
            RawReply(stream_of(wire, TEXT_ANSWER)[:300] + b"\n\n" + noise, headers=STREAM) for noise in OUT_OF_ORDER
        ]
        async with gateway_to(*lines, document={"limits": {"cooldown": 0.0}}) as (gateway, _):
            for _ in lines:
                answer = await ask(gateway, front, wire=wire, stream=True)
                if answer.status == 200:
                    decoder = get(front).stream_decoder()
                    [*decoder.feed(answer.body), *decoder.close()]  # it has its end
                else:
                    expect_error(answer, front, 502)


@pytest.mark.gateway_bad_input(68, 69)
@every_front
@run
async def test_interleaved_calls_with_index_gaps_are_separated(front):
    def delta(index, **call):
        return {"tool_calls": [{"index": index, **call}]}

    chunks = [
        delta(0, id="a", type="function", function={"name": "get_weather", "arguments": ""}),
        delta(7, id="b", type="function", function={"name": "get_weather", "arguments": ""}),
        delta(0, function={"arguments": '{"city":'}),
        delta(7, function={"arguments": '{"city":"R'}),
        delta(0, function={"arguments": '"Paris"}'}),
        delta(7, function={"arguments": 'ome"}'}),
    ]
    events = [{"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in chunks]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    data = b"".join(b"data: " + to_bytes({"id": "x", **one}) + b"\n\n" for one in events) + b"data: [DONE]\n\n"
    async with gateway_to(RawReply(data, headers=STREAM)) as (gateway, _):
        came = decode_answer(await ask(gateway, front, stream=True), front, stream=True)
    assert [call.arguments["city"] for call in came.calls] == ["Paris", "Rome"]


@pytest.mark.gateway_bad_input(70)
@every_front
@run
async def test_text_that_looks_like_events_stays_text(front):
    text = 'x\n\ndata: {"choices":[]}\n\nevent: error\ndata: [DONE]\n\n\r\n\r\n{"done":true}\n'
    said = Response(parts=(Text(text),), stop=Stop("stop"))
    async with gateway_to(*[said] * len(WIRES)) as (gateway, _):
        for wire in WIRES:
            came = decode_answer(await ask(gateway, front, wire=wire, stream=True), front, stream=True)
            assert came.text == text


@pytest.mark.one_in(3)
@pytest.mark.gateway_bad_input(71)
@every_front
@pytest.mark.parametrize("then", ["cut", "reset"])
@run
async def test_upstream_failure_during_a_streamed_call_is_an_error(front, then):
    long = Response(parts=(ToolCall("c1", "get_weather", {"city": "Paris " * 100}),), stop=Stop("tool_calls"))
    for wire in WIRES:
        size = len(stream_of(wire, long)) * 2 // 3
        async with gateway_to(PartialReply(long, size, then), CALL_ANSWER) as (gateway, _):
            answer = await ask(gateway, front, wire=wire, stream=True)
            if answer.status == 200:
                assert fault_in(answer, front).kind == "server"
            else:
                expect_error(answer, front, 502)  # it had not said a word that could be passed on
            # the next request is not hurt by it
            assert decode_answer(await ask(gateway, front, wire=wire), front).calls


@pytest.mark.gateway_bad_input(71)
@every_front
@run
async def test_upstream_failure_during_an_unstreamed_answer_is_a_502(front):
    ways = [PartialReply(CALL_ANSWER, size, then) for size in (None, 0, 20) for then in ("cut", "reset")]
    async with gateway_to(*ways) as (gateway, _):
        for _ in ways:
            expect_error(await ask(gateway, front), front, 502)


@pytest.mark.gateway_bad_input(72)
@every_front
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_html_page_instead_of_an_answer_is_a_502(front, stream):
    page = b"<!doctype html><html><body>Sign in to continue</body></html>"
    types = ["text/html", "application/json", "text/event-stream", ""]
    lines = [RawReply(page, headers={"content-type": kind}) for kind in types]
    for wire in ("anthropic", "gemini", "openai_chat"):
        async with gateway_to(*lines) as (gateway, _):
            for _ in types:
                expect_error(await ask(gateway, front, wire=wire, stream=stream), front, 502)


@pytest.mark.one_in(7)
@pytest.mark.gateway_bad_input(73)
@every_front
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_gzip_bomb_answer_is_rejected_with_bounded_memory(front, stream):
    headers = {"content-encoding": "gzip", "content-type": "text/event-stream" if stream else "application/json"}
    bomb = gzip.compress(b" " * 50_000_000, 6)
    async with gateway_to(RawReply(bomb, headers=headers), document={"limits": {"answer": 1_000_000}}) as (gateway, _):
        tracemalloc.start()
        expect_error(await ask(gateway, front, stream=stream), front, 502)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.one_in(3)
@pytest.mark.gateway_bad_input(74)
@every_front
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size", [None, 30])
@in_virtual_time
async def test_stalled_upstream_times_out_and_is_disconnected(front, stream, size):
    clock = asyncio.get_running_loop().time
    rows = {"timeout": 0.5, "idle": 0.3}
    long = Response(parts=(Text("It rains. " * 100),), stop=Stop("stop"))
    async with gateway_to(PartialReply(long, size, "stall"), rows=rows) as (gateway, provider):
        started = clock()
        answer = await ask(gateway, front, stream=stream)
        assert clock() - started <= 1.0
        if answer.status == 200:
            assert fault_in(answer, front).kind == "timeout"
        else:
            expect_error(answer, front, 502, 504)
        await provider.disconnected()


@every_front
@pytest.mark.parametrize("status", [400, 404, 422])
@run
async def test_upstream_request_error_is_passed_to_the_client(front, status):
    async with gateway_to(Fault("invalid_request", "max_tokens is too large", status)) as (gateway, _):
        assert "max_tokens" in expect_error(await ask(gateway, front), front).message


GATEWAY_FAULTS = (
    Fault("authentication", "invalid key", 401),
    Fault("permission", "not for you", 403),
    Fault("server", "oh", 500),
    Fault("server", "oh", 503),
)


@every_front
@run
async def test_upstream_error_about_the_gateway_is_a_gateway_error(front):
    async with gateway_to(*GATEWAY_FAULTS * len(WIRES)) as (gateway, _):
        for wire in WIRES:
            for _ in GATEWAY_FAULTS:
                answer = await ask(gateway, front, wire=wire)
                assert answer.status != 500  # that would be ours
                expect_error(answer, front, 502, 503, 504, 529)


@every_front
@run
async def test_retry_after_is_passed_on(front):
    async with gateway_to(*[Fault("rate_limit", "slow down", 429, retry_after=7.0)] * len(WIRES)) as (gateway, _):
        for wire in WIRES:
            answer = await ask(gateway, front, wire=wire)
            assert expect_error(answer, front, 429).retry_after == 7.0
            assert answer.headers["retry-after"] == "7"


@every_front
@run
async def test_upstream_key_echoed_in_an_error_is_removed(front):
    error = {"message": f"Incorrect API key provided: {SECRET}", "type": "invalid_request_error"}
    leak = to_bytes({"type": "error", "error": error})
    lines = [
        RawReply(leak, status=400),
        RawReply(leak, status=401),
        RawReply(leak),
        RawReply(b"data: " + leak + b"\n\n", headers=STREAM),
    ]
    for wire in WIRES:
        async with gateway_to(*lines) as (gateway, _):
            for stream in (False, False, False, True):
                answer = await ask(gateway, front, wire=wire, stream=stream)
                assert answer.status in (200, 400, 502)
                assert SECRET.encode() not in answer.body


@run
async def test_a_redirect_is_not_followed():
    async with gateway_to(RawReply(b"", status=307, headers={"location": "http://127.0.0.1:9/"})) as (
        gateway,
        provider,
    ):
        expect_error(await ask(gateway, "openai_chat"), "openai_chat", 502)
        assert len(provider.requests) == 1


@run
async def test_slow_client_applies_back_pressure_to_the_upstream():
    """Neither the whole answer in memory, nor a byte lost."""
    long = Response(parts=(Text("It rains and rains. " * 500_000),), stop=Stop("stop"))  # 10 MB
    async with gateway_to(long, upstream={"delta": 20_000, "piece": 65536}) as (gateway, provider):
        tracemalloc.start()
        reader, writer = await connect(gateway)
        body = body_of("openai_chat", REQUEST, "anthropic/m", stream=True)
        before = tracemalloc.get_traced_memory()[0]
        writer.write(request_bytes(path_of("openai_chat"), body))
        await provider.wait_for_requests()
        reader._transport.pause_reading()
        await asyncio.sleep(1.0)
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        reader._transport.resume_reading()
        answer = await read_answer(reader)
        assert decode_answer(answer, "openai_chat", stream=True).text == long.text
        writer.close()
    assert held < 45_000_000


@in_virtual_time
async def test_client_that_never_reads_is_disconnected():
    long = Response(parts=(Text("It rains and rains. " * 500_000),), stop=Stop("stop"))
    limits = {"limits": {"slow_client": 0.4}}
    async with gateway_to(long, document=limits, upstream={"delta": 20_000, "piece": 65536}) as (gateway, provider):
        reader, writer = await connect(gateway)
        # a fixed size, because a buffer that the kernel lets grow may take the whole answer
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        reader._transport.pause_reading()
        writer.write(request_bytes(path_of("openai_chat"), body_of("openai_chat", REQUEST, "anthropic/m", stream=True)))
        await recorded(gateway)
        assert gateway.turns[0].status == 499
        # closed, whether or not the buffers between provider and gateway took the end of the answer
        await until(lambda: not provider._open)
        writer.close()
