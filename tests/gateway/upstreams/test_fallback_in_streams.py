"""A fallback answers a stream until content of the model has been sent, whatever the timing of the packets."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from hostile import TEXT_ANSWER, body_of, connect, decode_answer, path_of, post, recorded, request_bytes, run
from serving import WIRES, serving
from toolwire.testing import Recorded, Upstream
from virtual_time import in_virtual_time


def sse(document, event=None):
    head = b"" if event is None else b"event: %s\n" % event.encode()
    return head + b"data: " + json.dumps(document).encode() + b"\n\n"


def typed(document):
    return sse(document, document["type"])


def line(document):
    return json.dumps(document).encode() + b"\n"


def chunk(delta, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return sse({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more})


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 1}}  # fmt: skip
RESPONSE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "status": "in_progress"}
ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
STARTS = {
    "anthropic": [
        typed({"type": "message_start", "message": MESSAGE}),
        typed({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        typed({"type": "ping"}),
        typed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}),
    ],
    "openai_chat": [chunk({"role": "assistant"}), chunk({"content": ""})],
    "openai_responses": [
        typed({"type": "response.created", "sequence_number": 0, "response": RESPONSE}),
        typed({"type": "response.in_progress", "sequence_number": 1, "response": RESPONSE}),
        typed({"type": "response.output_item.added", "sequence_number": 2, "output_index": 0, "item": ITEM}),
    ],
    "gemini": [sse({"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}}], "modelVersion": "m"})],
    "ollama": [
        line(
            {
                "model": "m",
                "created_at": "2026-11-17T00:00:00Z",
                "message": {"role": "assistant", "content": ""},
                "done": False,
            }
        )
    ],
    "cohere": [
        typed({"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant", "content": []}}}),
        typed({"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}}),
        typed({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": ""}}}}),
    ],
    "gemini_interactions": [
        sse({"event_type": "interaction.created", "interaction": {"id": "v1_1", "status": "in_progress"}}),
        sse({"event_type": "interaction.status_update", "interaction_id": "v1_1", "status": "in_progress"}),
        sse({"event_type": "step.start", "index": 0, "step": {"type": "model_output"}}),
    ],
}
ERRORS = {
    "anthropic": typed({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    "cohere": typed({"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "Overloaded"}}),
    "openai_chat": sse({"error": {"message": "Overloaded", "type": "server_error", "code": 503}}),
    "openai_responses": typed({"type": "error", "code": "server_error", "message": "Overloaded", "param": None}),
    "gemini": sse({"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}),
    "gemini_interactions": sse(
        {"event_type": "error", "error": {"code": "service_unavailable", "message": "Overloaded"}}
    ),
    "ollama": line({"error": "overloaded, please try again"}),
}
TEXTS = {
    "anthropic": typed({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It"}}),
    "openai_chat": chunk({"content": "It"}),
}


def reply(wire, pieces):
    """A stream whose pieces arrive one by one."""
    kind = "application/x-ndjson" if wire == "ollama" else "text/event-stream"
    return Recorded(tuple((0.05, piece) for piece in pieces), 200, {"content-type": kind})


@asynccontextmanager
async def two_targets(wire, pieces, second=TEXT_ANSWER, **limits):
    """A gateway whose first target streams `pieces`, and whose fallback answers."""
    async with Upstream(reply(wire, pieces)) as first, Upstream(second) as other:
        document = {
            "limits": limits,
            "upstreams": {
                "a": {"base_url": first.url, "wire": wire, "retries": 0},
                "b": {"base_url": other.url, "wire": "openai_chat", "retries": 0},
            },
            "models": {"m": {"upstream": "a", "fallbacks": ["n"]}, "n": {"upstream": "b", "model": "x"}},
        }
        async with serving(document) as gateway:
            yield gateway, first, other


async def ask(gateway, front, model="m"):
    return await post(gateway, path_of(front, model, stream=True), body_of(front, model=model, stream=True))


@pytest.mark.finding("GA3")
@pytest.mark.parametrize("ending", ["error", "cut"])
@pytest.mark.parametrize("front", WIRES)
@pytest.mark.parametrize("wire", WIRES)
@run
async def test_fallback_answers_after_the_start_events(wire, front, ending):
    pieces = STARTS[wire] + ([ERRORS[wire]] if ending == "error" else [])
    async with two_targets(wire, pieces) as (gateway, first, other):
        answer = await ask(gateway, front)
        assert decode_answer(answer, front, stream=True).text == TEXT_ANSWER.text
        await recorded(gateway)
    assert (len(first.requests), len(other.requests)) == (1, 1)
    assert [name for name, _ in gateway.turns[0].failures] == ["a"] and gateway.turns[0].upstream == "b"


@pytest.mark.finding("GA3")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_error_after_content_is_an_error_event(front):
    pieces = [*STARTS["anthropic"], TEXTS["anthropic"], ERRORS["anthropic"]]
    async with two_targets("anthropic", pieces) as (gateway, _, other):
        answer = await ask(gateway, front)
        assert answer.status == 200 and b"It" in answer.body and b"verloaded" in answer.body
    assert not other.requests


@pytest.mark.finding("GA3")
@pytest.mark.parametrize("front", ["anthropic", "openai_responses"])
@run
async def test_complete_answer_without_content_is_delivered(front):
    end = [
        typed({"type": "content_block_stop", "index": 0}),
        typed(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 1},
            }
        ),
        typed({"type": "message_stop"}),
    ]
    async with two_targets("anthropic", STARTS["anthropic"] + end) as (gateway, _, other):
        answer = decode_answer(await ask(gateway, front), front, stream=True)
    assert answer.text == "" and answer.stop.reason == "stop" and not other.requests


@pytest.mark.finding("GA3")
@run
async def test_fault_after_the_start_that_no_fallback_can_answer_has_its_status():
    refused = typed({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}})
    async with two_targets("anthropic", [*STARTS["anthropic"], refused]) as (gateway, _, other):
        assert (await ask(gateway, "anthropic")).status == 400
    assert not other.requests


@pytest.mark.finding("GA3")
@in_virtual_time
async def test_client_gets_keep_alives_while_the_start_is_held():
    pieces = [*STARTS["anthropic"], ERRORS["anthropic"]]
    async with two_targets("anthropic", pieces, ping=0.02) as (gateway, _, _):
        answer = await ask(gateway, "openai_chat")
    assert answer.body.startswith(b": ping\n\n")
    assert decode_answer(answer, "openai_chat", stream=True).text == TEXT_ANSWER.text


@pytest.mark.finding("GA3")
@run
async def test_start_that_is_too_large_is_not_held():
    """The upstream sends a start of any size, and the gateway must not collect it. A read may return 256 kB at once."""
    start = typed({"type": "message_start", "message": {**MESSAGE, "padding": "x" * 2_000_000}})
    async with two_targets("anthropic", [start, *STARTS["anthropic"][1:], ERRORS["anthropic"]]) as (gateway, _, other):
        answer = await ask(gateway, "anthropic")
    assert answer.status == 200 and b"overloaded_error" in answer.body and not other.requests


@pytest.mark.finding("GA3")
@run
async def test_single_target_sends_its_start_at_once():
    """Without a fallback nothing would be gained by waiting."""
    lingering = Recorded(((0.0, STARTS["anthropic"][0]), (60.0, ERRORS["anthropic"])), 200, {"content-type": "text/event-stream"})  # fmt: skip
    async with Upstream(lingering) as upstream:
        rows = {"a": {"base_url": upstream.url, "wire": "anthropic", "retries": 0}}
        async with serving({"upstreams": rows, "models": {"m": {"upstream": "a"}}}) as gateway:
            reader, writer = await connect(gateway)
            body = body_of("anthropic", model="m", stream=True)
            writer.write(request_bytes(path_of("anthropic", "m"), body))
            await reader.readuntil(b"message_start")
            writer.close()


@pytest.mark.finding("GA14")
@in_virtual_time
async def test_head_that_is_sent_before_the_target_is_certain_names_none():
    """A keep-alive sends the head while another target may still answer."""
    pieces = [*STARTS["anthropic"], ERRORS["anthropic"]]
    async with two_targets("anthropic", pieces, ping=0.02) as (gateway, _, _):
        answer = await post(gateway, path_of("openai_chat"), body_of("openai_chat", model="m", stream=True))
    assert answer.body.startswith(b": ping") and "x-toolwire-upstream" not in answer.headers
