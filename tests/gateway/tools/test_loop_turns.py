"""The gateway answers a second client while an expensive request of a first one is in progress.

What keeps a client waiting is the length of one turn of the event loop and the number of turns until its answer. Both are
counted, in calls of Python functions and in turns, because times depend on the machine.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from contextlib import asynccontextmanager

import pytest

from hostile import (
    TEXT_ANSWER,
    ask,
    body_of,
    exchange,
    expect_error,
    gateway_to,
    path_of,
    post,
    request_bytes,
    run,
)
from loop_turns import MOST_CALLS, Turns
from serving import serving, upstream_rows
from toolwire import Message, Reasoning, Request, Response, Text, Tool, ToolCall
from toolwire.asgi.offload import LARGE
from toolwire.bridge.conversation import restored_turns as restore_turns
from toolwire.bridge.conversation.turns import StoredTurn
from toolwire.bridge.emulation import requests as emulation
from toolwire.bridge.restoration import repair
from toolwire.gateway.answer.translated import TranslatedRequest
from toolwire.gateway.observe import request_log
from toolwire.gateway.observe.answer_stats import AnswerStats
from toolwire.gateway.observe.metrics import Metrics
from toolwire.gateway.stored import conversations_api
from toolwire.ir import text as json_text
from toolwire.ir.parts import Artefact
from toolwire.ir.response import Stop, Usage
from toolwire.ir.text import to_bytes
from toolwire.net.model import endpoint_request
from toolwire.testing import RawReply
from toolwire.wire import get
from toolwire.wire.openai_responses import response as responses_wire

MOST_TURNS = 300


def record(**properties):
    return {"type": "object", "properties": properties}


def tool_request(*schemas):
    tools = tuple(Tool(f"t{number}", "", schema) for number, schema in enumerate(schemas))
    return body_of("openai_chat", Request(messages=(Message("user", (Text("hi"),)),), tools=tools), "m")


def multiplied_unions(n):
    inner = [{"oneOf": [record(**{f"q{i}_{j}": {"type": "integer"}}) for j in range(3)]} for i in range(n)]
    return {**record(), "oneOf": [record(**{f"p{i}": {"type": "string"}}) for i in range(n)], "allOf": inner}


ATTACKS = {
    "Z1: allOf of unions, 3 KB": lambda: tool_request(multiplied_unions(10)),
    "Z1: allOf of unions, 60 KB": lambda: tool_request(multiplied_unions(160)),
    "Z1: twenty tools": lambda: tool_request(*[multiplied_unions(6)] * 20),
    "Z2: backtracking pattern": lambda: tool_request(record(city={"type": "string", "pattern": "^(a+)+$"})),
    "Z3: number too large at the end of 2 MB": lambda: b'{"model": "m", "x": [' + b"1," * 900_000 + b"1e400]}",
    "Z3: bad byte at the end of 4 MB": lambda: b'{"model": "m", "x": "' + b"a" * 4_000_000 + b'\xff"}',
    "Z4: enum of 3,000 objects": lambda: tool_request(record(x={"enum": [{"a": n} for n in range(3_000)]})),
}
CALL = Response(parts=(ToolCall("c1", "t0", {"city": "a" * 40 + "!"}),), stop=Stop("tool_calls"), usage=Usage(12, 9))


def new_tool(number, size):
    schema = {"type": "object", "allOf": [{"properties": {f"a{number}_{n}": {}}} for n in range(size)]}
    return {"type": "function", "function": {"name": f"t{number}", "parameters": schema}}


MOST_CALLS_OF_LARGE_WORK = 200_000
"""The limit for work that leaves the event loop, where only the relaying remains on it."""
MEGABYTE = 1024 * 1024
LARGE_REQUESTS = {
    "messages": {"messages": [{"role": "user", "content": "x"}] * (MEGABYTE // 33)},
    "tools": {
        "tools": [
            {"type": "function", "function": {"name": f"t{n}", "parameters": {"type": "object"}}} for n in range(9_000)
        ]
    },
    "losses": {"messages": [{"role": "user", "content": "x", "name": "n"}] * (MEGABYTE // 46)},
    "new schemas in 60 KB": {"tools": [new_tool(0, 1_800)]},
    "new schemas in 7 KB": {"tools": [new_tool(1, 200)]},
    "messages of 60 KB": {
        "messages": [{"role": "tool", "tool_call_id": f"c{n}", "content": "x"} for n in range(1_100)]
    },
    "refused": {"messages": [{"role": "user", "content": "x"}] * (MEGABYTE // 33) + [{"role": 1}]},
}
STREAM = {"content-type": "text/event-stream"}
DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
LARGE_ANSWERS = {
    "whole answer of many calls": lambda: RawReply(
        json.dumps(
            {
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [
                                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                            ]
                            * 12_000,
                        },
                        "finish_reason": "tool_calls",
                    }
                ]
            }
        ).encode(),
        headers={"content-type": "application/json"},
    ),
    "deltas": lambda: RawReply(DELTA * (MEGABYTE // len(DELTA)), headers=STREAM),
    "tiny events": lambda: RawReply(b"data:{}\n\n" * (MEGABYTE // 9), headers=STREAM),
    "comments, compressed": lambda: RawReply(
        gzip.compress(b":\n\n" * (4 * MEGABYTE // 3)), headers={**STREAM, "content-encoding": "gzip"}
    ),
    "comments in one frame, compressed": lambda: RawReply(
        gzip.compress(b":\n" * (4 * MEGABYTE // 2)), headers={**STREAM, "content-encoding": "gzip"}
    ),
}


@asynccontextmanager
async def gateway_to_bytes(*replies, **document):
    """A gateway whose upstream only sends these bytes: one that decodes requests would do so on the same event loop."""
    remaining = list(replies)

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        reply = remaining.pop(0)
        head = {**reply.headers, "content-length": len(reply.body), "connection": "close"}
        lines = [f"{name}: {value}" for name, value in head.items()]
        writer.write("\r\n".join([f"HTTP/1.1 {reply.status} OK", *lines, "", ""]).encode() + reply.body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**25)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with serving({"upstreams": upstream_rows(url), **document}) as gateway:
            yield gateway


def whole(wire):
    return RawReply(to_bytes(get(wire).encode_response(TEXT_ANSWER).body), headers={"content-type": "application/json"})


async def longest_turn(gateway, front, wire, body):
    """The calls in the longest turn while this request is answered, and its status."""
    assert (await ask(gateway, front, wire=wire)).status == 200  # everything is imported and connected
    async with Turns() as turns:
        answer = await post(gateway, path_of(front), body)
    return turns.longest, answer.status


@pytest.mark.one_in(3)
@pytest.mark.finding("Z11")
@pytest.mark.parametrize("wire", ["anthropic", "openai_chat"])
@pytest.mark.parametrize("attack", LARGE_REQUESTS)
@run
async def test_large_requests_are_not_translated_on_the_event_loop(attack, wire):
    document = {"model": f"{wire}/m", "messages": [{"role": "user", "content": "x"}], **LARGE_REQUESTS[attack]}
    async with gateway_to_bytes(whole(wire), whole(wire)) as gateway:
        longest, status = await longest_turn(gateway, "openai_chat", wire, json.dumps(document).encode())
    assert status in (200, 400)
    assert longest <= MOST_CALLS_OF_LARGE_WORK


@pytest.mark.one_in(3)
@pytest.mark.finding("Z11")
@pytest.mark.parametrize("front", ["anthropic", "openai_chat"])
@pytest.mark.parametrize("attack", LARGE_ANSWERS)
@run
async def test_large_answers_are_relayed_in_pieces(attack, front):
    async with gateway_to_bytes(whole("openai_chat"), LARGE_ANSWERS[attack]()) as gateway:
        longest, _ = await longest_turn(gateway, front, "openai_chat", body_of(front, stream=True))
    assert longest <= MOST_CALLS_OF_LARGE_WORK


@pytest.mark.one_in(2)
@pytest.mark.finding("G5", "Z11")
@pytest.mark.parametrize("wire", ["anthropic", "openai_responses"])
@run
async def test_large_stored_conversations_are_not_rebuilt_on_the_event_loop(wire, tmp_path):
    """Requests that continue a conversation of 9,000 messages, by its id and by references to items."""
    responses = {"store": str(tmp_path / "responses.db"), "max_response_bytes": 4 * MEGABYTE}
    first = {"model": f"{wire}/m", "input": [{"role": "user", "content": "x"}] * 9_000}
    async with gateway_to_bytes(*[whole(wire)] * 6, responses=responses) as gateway:
        answer = await post(gateway, "/v1/responses", json.dumps({**first, "input": "x"}).encode())
        assert answer.status == 200  # everything is imported and connected
        answer = await post(gateway, "/v1/responses", json.dumps(first).encode())
        assert answer.document["store"] is True
        continued = {"model": f"{wire}/m", "input": "x", "previous_response_id": answer.document["id"]}
        reference = {"type": "item_reference", "id": answer.document["output"][0]["id"]}
        digits = answer.document["id"].removeprefix("resp_")
        many = [{"type": "item_reference", "id": f"msg_{digits}_i{number}"} for number in range(9_000)]
        for body in (continued, *({"model": f"{wire}/m", "input": items} for items in ([reference], many))):
            async with Turns() as turns:
                assert (await post(gateway, "/v1/responses", json.dumps(body).encode())).status == 200
            assert turns.longest <= MOST_CALLS_OF_LARGE_WORK


@pytest.mark.finding("Z11")
@run
async def test_small_requests_stay_in_the_thread_of_the_loop():
    async with gateway_to(TEXT_ANSWER, TEXT_ANSWER) as (gateway, _):
        for stream in (False, True):
            assert (await ask(gateway, "anthropic", stream=stream)).status == 200
        assert not gateway.gateway._offload._pool._workers.threads


@pytest.mark.finding("Z11")
@run
async def test_only_the_first_request_with_new_tools_needs_a_thread(monkeypatch):
    threads = []
    prepare = endpoint_request.prepare
    monkeypatch.setattr(
        endpoint_request,
        "prepare",
        lambda *args, **options: threads.append(threading.get_ident()) or prepare(*args, **options),
    )
    schema = record(**{f"field_{number}": {"type": "string", "pattern": f"^{number}$"} for number in range(50)})
    async with gateway_to(*[TEXT_ANSWER] * 3) as (gateway, _):
        for _ in range(2):
            body = tool_request(schema).replace(b'"model":"m"', b'"model":"anthropic/m"')
            assert (await post(gateway, path_of("openai_chat"), body)).status == 200
    assert threads[0] != threading.get_ident() == threads[1]


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("values", [10, 2_000], ids=["known tools", "large tools"])
@run
async def test_tools_are_forgotten_before_the_caches_lose_their_schemas(monkeypatch, values):
    schema = record(**{f"field_{number}": {"type": "string"} for number in range(50)})
    body = tool_request(schema).replace(b'"model":"m"', b'"model":"anthropic/m"')
    async with gateway_to_bytes(*[whole("anthropic")] * 14) as gateway:
        on_loop = note_threads(monkeypatch, endpoint_request, "prepare")
        for _ in range(2):
            assert (await post(gateway, path_of("openai_chat"), body)).status == 200
        assert on_loop == [False, True]
        for number in range(11):
            other = tool_request(record(x={"enum": [*range(values)], "description": f"{number}" * 100_000}))
            other = other.replace(b'"model":"m"', b'"model":"anthropic/m"')
            assert (await post(gateway, path_of("openai_chat"), other)).status == 200
        assert (await post(gateway, path_of("openai_chat"), body)).status == 200
    assert on_loop[-1] is False


def note_threads(monkeypatch, owner, name):
    """The threads in which a function is called from now on; True for that of the event loop."""
    on_loop, function, loop_thread = [], getattr(owner, name), threading.get_ident()

    def call(*args, **options):
        on_loop.append(threading.get_ident() == loop_thread)
        return function(*args, **options)

    monkeypatch.setattr(owner, name, call)
    return on_loop


@pytest.mark.finding("TX11")
@pytest.mark.parametrize(("size", "on_loop"), [(LARGE, True), (LARGE + 1, False)], ids=["small", "large"])
@pytest.mark.parametrize("front", ["anthropic", "gemini"])
@run
async def test_only_a_large_answer_is_decoded_and_encoded_in_a_thread(monkeypatch, front, size, on_loop):
    """The size of the upstream's answer decides, at its last byte."""
    reply = whole("openai_chat")
    text = b"It will rain in Paris."
    body = reply.body.replace(text, text + b"." * (size - len(reply.body)))
    assert len(body) == size
    async with gateway_to_bytes(RawReply(body, headers=reply.headers)) as gateway:
        decoded = note_threads(monkeypatch, TranslatedRequest, "read_answer")
        encoded = note_threads(monkeypatch, TranslatedRequest, "encode_answer")
        assert (await ask(gateway, front)).status == 200
    assert (decoded, encoded) == ([on_loop], [on_loop])


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("emulate", [{}, {"emulate": "hermes"}], ids=["native", "emulated"])
@run
async def test_calls_are_repaired_in_a_thread(monkeypatch, stream, emulate):
    """Even a schema of a few bytes may take long to compile."""
    on_loop = note_threads(monkeypatch, repair, "repair_arguments")
    models = {"m": {"upstream": "openai_chat", "repair": "safe", **emulate}}
    text = '<tool_call>{"name": "t0", "arguments": {"city": "x"}}</tool_call>'
    said = Response(parts=(Text(text),), stop=Stop("stop"), usage=Usage(1, 1)) if emulate else CALL
    schema = record(city={"type": "string", "pattern": "^(a{1,30}){1,30}$"})
    request = Request(messages=(Message("user", (Text("hi"),)),), tools=(Tool("t0", "", schema),))
    async with gateway_to(said, document={"models": models}) as (gateway, _):
        body = body_of("anthropic", request, "m", stream=stream)
        assert (await post(gateway, path_of("anthropic"), body)).status == 200
    assert on_loop and not any(on_loop)


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("front", ["anthropic", "openai_chat", "openai_responses"])
@run
async def test_large_streamed_calls_end_in_a_thread(monkeypatch, front):
    """Its fragments are small, but its last piece makes all arguments be parsed and encoded."""
    fragments = ["[", *["{},{}," * 1_000] * 40, "{}]"]
    deltas = [{"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in ('{"x":', *fragments, "}")]
    start = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in (start, *deltas)]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    events = [b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n" for choice in choices]
    reply = RawReply(b"".join(events) + b"data: [DONE]\n\n", headers=STREAM)
    on_loop = note_threads(monkeypatch, AnswerStats, "add_event")
    async with gateway_to_bytes(reply) as gateway:
        assert (await post(gateway, path_of(front), body_of(front, stream=True))).status == 200
    assert on_loop[0] and not any(on_loop[-2:])  # the ends of the call and of the answer


@pytest.mark.finding("Z11")
@run
async def test_large_conversations_are_read_and_listed_in_a_thread(monkeypatch, tmp_path):
    """Each request of the API of stored conversations with items of 60,000 values, which are then listed."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}] * 1_000}
    body = json.dumps({"items": [item] * 20}).encode()
    responses = {"store": str(tmp_path / "responses.db"), "max_response_bytes": 8 * MEGABYTE}
    async with gateway_to_bytes(responses=responses) as gateway:
        assert (await post(gateway, "/v1/conversations", b"{}")).status == 200
        parsed = note_threads(monkeypatch, conversations_api, "parse_object")
        paged = note_threads(monkeypatch, conversations_api, "make_page")
        made = await post(gateway, "/v1/conversations", body)
        assert made.status == 200
        path = f"/v1/conversations/{made.document['id']}/items"
        assert (await post(gateway, path, body)).status == 200
        assert (await exchange(gateway, request_bytes(path, b"", method="GET"))).status == 200
    assert (parsed, paged) == ([False, False], [False, False])


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("values", [500, 20_000])
@run
async def test_keys_of_tools_are_computed_without_python_code_for_each_value(monkeypatch, values):
    """One value is null, so the encoder for values of Python would look for NaN in all of them."""
    body = tool_request(record(city={"enum": [None, *range(values)]})).replace(b'"model":"m"', b'"model":"anthropic/m"')
    looked = note_threads(monkeypatch, json_text, "_refuse_non_finite")
    async with gateway_to_bytes(whole("anthropic")) as gateway:
        assert (await post(gateway, path_of("openai_chat"), body)).status == 200
    assert sum(looked) < 200  # in the answer


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("values", "on_loop"), [(10, [True]), (20_000, [False])])
@run
async def test_large_turns_are_encoded_once_and_in_a_thread(monkeypatch, values, on_loop, stream):
    """Its reasoning is signed, so the gateway stores the turn under two keys."""
    signed = Reasoning("x", artefacts=(Artefact("anthropic", "signature", "c2ln"),))
    said = Response(parts=(signed, ToolCall("c", "f", {"x": [0] * values})), stop=Stop("tool_calls"), usage=Usage(1, 1))
    encoded = note_threads(monkeypatch, StoredTurn, "to_json")
    hashed = note_threads(monkeypatch, restore_turns, "_call_key")
    async with gateway_to(said) as (gateway, _):
        answer = await ask(gateway, "openai_chat", wire="anthropic", stream=stream)
        assert answer.status == 200
        assert len(gateway.gateway._dependencies.turn_store._entries) == 2
    assert (encoded, hashed) == (on_loop, on_loop)


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_large_requests_are_repeated_in_a_thread(monkeypatch, stream):
    """An answer of Responses has the tools of its request."""
    on_loop = note_threads(monkeypatch, responses_wire, "echo_request")
    tools = [{"type": "function", "name": f"t{n}", "parameters": {"type": "object"}} for n in range(2_000)]
    document = {"model": "anthropic/m", "input": "x", "tools": tools, "stream": stream}
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        assert (await post(gateway, "/v1/responses", json.dumps(document).encode())).status == 200
    assert on_loop == [False]


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_emulated_calls_of_large_requests_are_numbered_in_a_thread(monkeypatch, stream):
    on_loop = note_threads(monkeypatch, emulation, "_next_call_number")
    models = {"m": {"upstream": "openai_chat", "emulate": "hermes"}}
    request = Request(messages=(Message("user", (Text("x"),)),) * 2_000, tools=(Tool("t", "", record()),))
    async with gateway_to(TEXT_ANSWER, document={"models": models}) as (gateway, _):
        body = body_of("anthropic", request, "m", stream=stream)
        assert (await post(gateway, path_of("anthropic"), body)).status == 200
    assert on_loop and not any(on_loop)


@pytest.mark.finding("Z11")
@run
async def test_losses_are_counted_once_and_in_a_thread(monkeypatch):
    """Each unknown field is a concept of its own; the metrics and the log get the first ones, and the sum of the rest."""
    on_loop = note_threads(monkeypatch, request_log.RequestLogWriter, "set_losses")
    logs, metrics = [], Metrics()
    document = {"model": "anthropic/m", "messages": [{"role": "user", "content": "x"}]}
    fields = {f"unknown_{n}": 1 for n in range(5_000)}
    async with gateway_to(TEXT_ANSWER, sinks=[logs.append, metrics]) as (gateway, _):
        body = json.dumps({**document, **fields}).encode()
        assert (await post(gateway, path_of("openai_chat"), body)).status == 200
    counts = logs[0].loss_counts
    assert on_loop == [False]
    assert logs[0].count_losses() is counts
    assert len(counts) <= 201 and sum(counts.values()) == len(logs[0].losses) >= 5_000
    assert sum(metrics._losses.values.values()) == len(logs[0].losses)


@pytest.mark.finding("Z11")
@run
async def test_large_text_stays_in_the_thread_of_the_loop():
    """Text costs little, so a switch of threads would cost more."""
    request = Request(messages=(Message("user", (Text("word, " * 30_000),)),))
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        assert (await ask(gateway, "anthropic", request)).status == 200
        assert not gateway.gateway._offload._pool._workers.threads


@pytest.mark.finding("Z11")
@run
async def test_documents_with_too_many_values_are_refused():
    body = b'{"model":"openai_chat/m","messages":[],"x":[' + b"1," * 15_000_000 + b"1]}"
    limits = {"memory": 2**33, "stream_body": 2**30}  # a body that is sent on is not counted
    async with gateway_to(document={"limits": limits}) as (gateway, provider):
        fault = expect_error(await post(gateway, path_of("openai_chat"), body), "openai_chat", 413)
        assert "15,000,005 JSON values; the limit is 1,000,000" in fault.message
        assert not provider.requests


@pytest.mark.one_in(5)
@pytest.mark.finding("Z1", "Z2", "Z3", "Z4")
@pytest.mark.parametrize("attack", ATTACKS)
@run
async def test_second_client_is_answered_within_a_bounded_number_of_turns(attack):
    body = ATTACKS[attack]()
    models = {"m": {"upstream": "anthropic", "repair": "aggressive"}}
    async with gateway_to(TEXT_ANSWER, CALL, CALL, document={"models": models}) as (gateway, _):
        assert (await ask(gateway, "openai_chat")).status == 200  # everything is imported and connected
        async with Turns() as turns:
            first = asyncio.ensure_future(post(gateway, path_of("openai_chat"), body))
            await asyncio.sleep(0)
            before = turns.count
            second = await ask(gateway, "openai_chat")
            waited = turns.count - before
            answer = await first
    assert second.status == 200
    assert answer.status in (200, 400)
    assert waited <= MOST_TURNS
    assert turns.longest <= MOST_CALLS
