"""Emulated calls that cannot be parsed: the gateway asks once more, for whole answers and in streams."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import toolwire
from hostile import SECRET, body_of, decode_answer, gateway_to, path_of, post, recorded, run
from toolwire import Message, Request, Response, Text, Tool, ToolCall
from toolwire.gateway.config.parsing import parse_settings
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.net.tools.runner import Runner

REQUEST = Request(
    messages=(Message("user", (Text("Weather in Rome?"),)),),
    tools=(Tool("get_weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}}),),
)
INVALID = 'Let me look. <tool_call>{"name": "get_weather", "arguments": {"city": Rome}}</tool_call>'
ROME = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'
NATIVE = Response(
    parts=(ToolCall("n1", "get_weather", {"city": "Rome"}),), stop=Stop("tool_calls"), usage=Usage(100, 3)
)
FRONTS = ("anthropic", "gemini", "openai_chat", "openai_responses")
PLAIN = {"plain": {"upstream": "openai_chat", "model": "m", "emulate": "hermes"}}
REPAIRED = {
    "models": {
        "plain": {**PLAIN["plain"], "repair_model": "big"},
        "big": {"upstream": "anthropic", "model": "claude-haiku-5-5"},
    }
}


def text_response(text: str, **fields) -> Response:
    return Response(parts=(Text(text),), stop=Stop("stop"), **fields)


async def ask(gateway, front, *, stream):
    answer = await post(
        gateway, path_of(front, "plain", stream=stream), body_of(front, REQUEST, "plain", stream=stream)
    )
    return decode_answer(answer, front, stream=stream)


def calls_of(response: Response) -> list:
    return [(call.name, call.arguments, call.state) for call in response.calls]


every_front = pytest.mark.parametrize("front", FRONTS)
both_ways = pytest.mark.parametrize("stream", [False, True])


@pytest.mark.finding("X5")
@every_front
@both_ways
@run
async def test_malformed_call_is_requested_again(front, stream):
    script = text_response(INVALID, usage=Usage(12, 9)), text_response(ROME, usage=Usage(30, 8))
    async with gateway_to(*script, document={"models": PLAIN}) as (gateway, provider):
        response = await ask(gateway, front, stream=stream)
        await recorded(gateway)
        usage = gateway.turns[0].usage
    assert calls_of(response) == [("get_weather", {"city": "Rome"}, "complete")]
    assert response.text == ("Let me look. " if stream else ""), "text before the call was already sent"
    assert response.stop.reason == "tool_calls"
    assert (usage.input, usage.output) == (42, 17)
    if not (stream and front == "openai_chat"):  # whose clients have to ask for the usage
        assert (response.usage.input, response.usage.output) == (42, 17)
    assert len(provider.requests) == 2


@pytest.mark.finding("X5")
@every_front
@both_ways
@run
async def test_malformed_call_is_repaired_by_another_model(front, stream):
    async with gateway_to(text_response(INVALID, usage=Usage(12, 9)), NATIVE, document=REPAIRED) as (gateway, provider):
        response = await ask(gateway, front, stream=stream)
    assert calls_of(response) == [("get_weather", {"city": "Rome"}, "complete")]
    if not (stream and front == "openai_chat"):
        assert (response.usage.input, response.usage.output) == (112, 12)
    first, second = provider.requests
    assert (first.wire, second.wire, second.request.model) == ("openai_chat", "anthropic", "claude-haiku-5-5")
    assert [tool.name for tool in second.request.tools] == ["get_weather"]
    assert "toolwire" not in str(response.calls[0].extra)


@pytest.mark.finding("X5")
@both_ways
@run
async def test_same_model_is_asked_if_the_repair_model_fails(stream):
    script = text_response(INVALID), Fault("overloaded", "busy", 529), text_response(ROME)
    async with gateway_to(*script, document=REPAIRED) as (gateway, provider):
        response = await ask(gateway, "openai_chat", stream=stream)
    assert calls_of(response) == [("get_weather", {"city": "Rome"}, "complete")]
    assert [heard.wire for heard in provider.requests] == ["openai_chat", "anthropic", "openai_chat"]


@pytest.mark.finding("X5")
@both_ways
@run
async def test_second_malformed_answer_is_returned(stream):
    async with gateway_to(text_response(INVALID), text_response(INVALID), document={"models": PLAIN}) as (
        gateway,
        provider,
    ):
        response = await ask(gateway, "openai_chat", stream=stream)
    assert [call.state for call in response.calls] == ["invalid"]
    assert len(provider.requests) == 2


@run
async def test_failed_retry_ends_a_stream_with_an_error():
    """Output was sent, so neither another attempt nor another target may follow."""
    script = text_response(INVALID), Fault("server", f"broken {SECRET}", 500, retryable=True), text_response(ROME)
    async with gateway_to(*script, document={"models": PLAIN}) as (gateway, provider):
        path, body = path_of("openai_chat", "plain", stream=True), body_of("openai_chat", REQUEST, "plain", stream=True)
        answer = await post(gateway, path, body)
    assert answer.status == 200
    assert b"Let me" in answer.body
    assert b'"error"' in answer.body
    assert SECRET.encode() not in answer.body
    assert len(provider.requests) == 2


@both_ways
@run
async def test_gateway_tool_with_effects_is_not_run_with_repaired_arguments(stream):
    booked = []

    @toolwire.tool
    def book(city: str) -> str:
        """Book a trip."""
        booked.append(city)
        return "booked"

    invalid = '<tool_call>{"name": "book", "arguments": {"city": Rome}}</tool_call>'
    native = replace(NATIVE, parts=(ToolCall("n1", "book", {"city": "Rome"}),))
    script = text_response(invalid), native, text_response("Not booked.")
    async with gateway_to(*script, document=REPAIRED, runners={"*": Runner(book)}) as (gateway, provider):
        response = await ask(gateway, "openai_chat", stream=stream)
    assert response.text == "Not booked."
    assert booked == []
    results = provider.requests[2].request.messages[-1]
    assert "make the call with them yourself" in str(results)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": {"upstream": "u", "repair_model": "b"}, "b": {"upstream": "u"}}, "needs emulated calls"),
        ({"a": {"upstream": "u", "emulate": "hermes", "repair_model": "c"}}, "unknown model 'c'"),
        ({"a": {"upstream": "u", "emulate": "hermes", "repair_model": "a"}}, "'a' has no native calls"),
    ],
)
def test_unusable_repair_model_is_refused(rows, message):
    with pytest.raises(ConfigError, match=message):
        parse_settings({"upstreams": {"u": {"provider": "openai"}}, "models": rows})
