"""Requests that refer to a conversation which a provider keeps: to upstreams of their own wire, or refused."""

from __future__ import annotations

import json

import anthropic
import pytest

from hostile import TEXT_ANSWER, gateway_to, post, run
from serving import WIRES, serving, upstream_rows
from toolwire.ir.parts import ToolCall
from toolwire.ir.response import Fault, Response, Stop
from toolwire.testing import Upstream

HELLO = {"role": "user", "content": "And in Oslo?"}
REFERENCES = [
    ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
    (
        {"previous_response_id": "resp_1", "input": [{"type": "function_call_output", "call_id": "c", "output": "1"}]},
        "previous_response_id",
        "previous_response_not_found",
    ),
    ({"conversation": {"id": "conv_1"}}, "conversation", None),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", None),
    ({"input": [HELLO, {"type": "item_reference", "id": "msg_1"}, HELLO]}, "input[1]", None),
    ({"input": [{"id": "msg_1"}, HELLO]}, "input[0]", None),
]


async def ask(gateway, model, fields, **more):
    body = {"model": model, "input": [HELLO], **more, **fields}
    return await post(gateway, "/v1/responses", json.dumps(body).encode()), body


@pytest.mark.one_in(5)
@pytest.mark.finding("G5")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
@run
async def test_reference_is_rejected_when_the_wires_differ(wire, stream):
    for fields, param, code in REFERENCES:
        async with gateway_to(TEXT_ANSWER) as (gateway, upstream):
            answer, body = await ask(gateway, f"{wire}/m", fields, stream=stream)
            if wire == "openai_responses":
                assert answer.status == 200
                assert json.loads(upstream.requests[0].body) == {**body, "model": "m"}
                continue
            error = answer.document["error"]
            assert (answer.status, error["type"], error["param"]) == (400, "invalid_request_error", param)
            assert error["code"] == code
            assert "or use a model that is served over openai_responses" in error["message"]
            assert upstream.requests == []  # nobody was asked, and nobody is paid


@pytest.mark.finding("G5")
@pytest.mark.parametrize(
    ("front", "path", "body"),
    [
        (
            "gemini",
            "/v1beta/models/openai_chat/m:generateContent",
            {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "cachedContent": "cachedContents/1"},
        ),
        (
            "openai_chat",
            "/v1/chat/completions",
            {"model": "anthropic/m", "messages": [HELLO, {"role": "assistant", "audio": {"id": "a1"}}, HELLO]},
        ),
    ],
)
@run
async def test_references_of_other_wires_are_rejected_naming_their_wire(front, path, body):
    async with gateway_to(TEXT_ANSWER) as (gateway, upstream):
        answer = await post(gateway, path, json.dumps(body).encode())
    assert answer.status == 400
    assert f"which only a provider of {front} can read" in answer.document["error"]["message"]
    assert upstream.requests == []


def mixed_wire_settings(responses, chat, **more):
    """Settings with a model that two upstreams of different wires serve."""
    rows = {
        "r": upstream_rows(responses.url)["openai_responses"],
        "c": upstream_rows(chat.url)["openai_chat"],
    }
    targets = [{"upstream": "c", "model": "m", "weight": 1_000_000}, {"upstream": "r", "model": "m", "weight": 0.001}]
    models = {
        "group": {"targets": targets},
        "first": {"upstream": "r", "model": "m", "fallbacks": ["second"]},
        "second": {"upstream": "c", "model": "m"},
    }
    return {"upstreams": rows, "models": models, **more}


@pytest.mark.finding("G5")
@pytest.mark.parametrize("model", ["group", "first"])
@run
async def test_group_uses_its_upstream_of_the_same_wire(model):
    for fields, _, _ in REFERENCES:
        async with (
            Upstream(TEXT_ANSWER) as responses,
            Upstream(TEXT_ANSWER) as chat,
            serving(mixed_wire_settings(responses, chat)) as gateway,
        ):
            answer, body = await ask(gateway, model, fields)
            assert answer.status == 200
            assert json.loads(responses.requests[0].body) == {**body, "model": "m"}
            assert chat.requests == []


@pytest.mark.finding("G5")
@pytest.mark.parametrize("model", ["group", "first"])
@run
async def test_failed_reference_does_not_fall_back_to_another_wire(model):
    busy = Fault("overloaded", "come back later", 503)
    async with (
        Upstream(busy) as responses,
        Upstream(TEXT_ANSWER) as chat,
        serving(mixed_wire_settings(responses, chat)) as gateway,
    ):
        answer, _ = await ask(gateway, model, {"previous_response_id": "resp_1"})
        assert (answer.status, answer.document["error"]["message"]) == (503, "come back later")
        assert len(responses.requests) == 1 and chat.requests == []


@pytest.mark.finding("G5")
@run
async def test_a_request_without_references_still_falls_back():
    busy = Fault("overloaded", "come back later", 503)
    async with (
        Upstream(busy) as responses,
        Upstream(TEXT_ANSWER) as chat,
        serving(mixed_wire_settings(responses, chat)) as gateway,
    ):
        answer, _ = await ask(gateway, "first", {"previous_response_id": None, "conversation": None, "prompt": None})
        assert answer.status == 200
        assert (len(responses.requests), len(chat.requests)) == (1, 1)


@pytest.mark.finding("G5")
@run
async def test_reference_survives_reencoding_for_the_same_wire():
    """`repair` reads and writes the request although the wire is the same."""
    document = {"models": {"m": {"upstream": "openai_responses", "model": "x", "repair": "safe"}}}
    for fields, _, _ in REFERENCES:
        async with gateway_to(TEXT_ANSWER, document=document) as (gateway, upstream):
            answer, body = await ask(gateway, "m", fields)
            assert answer.status == 200
            sent = json.loads(upstream.requests[0].body)
            assert {name: sent[name] for name in fields} == fields
            assert sent["input"] == body["input"]


@run
async def test_tool_runner_of_the_anthropic_sdk_sends_whole_conversations_to_another_wire():
    """The SDK asks the server to store the conversation; after the refusal it sends all messages itself."""

    @anthropic.beta_async_tool
    async def weather(city: str) -> str:
        """Get the weather."""
        return f"sun in {city}"

    calls = Response(parts=(ToolCall("c1", "weather", {"city": "Rome"}),), stop=Stop("tool_calls"))
    async with (
        gateway_to(calls, TEXT_ANSWER) as (gateway, upstream),
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="unused") as client,
    ):
        runner = client.beta.messages.tool_runner(
            model="openai_chat/m", max_tokens=100, tools=[weather], messages=[{"role": "user", "content": "weather?"}]
        )
        final = [turn async for turn in runner][-1]
    assert final.content[0].type == "text"
    sent = upstream.requests[-1].request
    assert [message.role for message in sent.messages] == ["user", "assistant", "user"]
    assert "sun in Rome" in str(sent.messages[2])
