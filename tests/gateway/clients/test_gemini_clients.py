"""Gemini clients declare tools in Gemini's schema language, and are served by upstreams of every wire."""

from __future__ import annotations

import json

import pytest

from hostile import TEXT_ANSWER, decode_answer, gateway_to, path_of, post, run
from toolwire import Response, ToolCall
from toolwire.ir.response import Stop

PARAMETERS = {
    "type": "OBJECT",
    "properties": {
        "city": {"type": "STRING", "nullable": True},
        "days": {"type": "INTEGER", "minimum": "1", "format": "int32"},
    },
    "required": ["city"],
    "propertyOrdering": ["city", "days"],
}
BODY = json.dumps(
    {
        "contents": [{"role": "user", "parts": [{"text": "Weather in Paris?"}]}],
        "tools": [{"functionDeclarations": [{"name": "get_weather", "parameters": PARAMETERS}]}],
    }
).encode()
CALL = Response(parts=(ToolCall("c1", "get_weather", {"city": "Paris", "days": 3}),), stop=Stop("tool_calls"))
SLOPPY = Response(parts=(ToolCall("c1", "get_weather", {"city": "Paris", "days": "3"}),), stop=Stop("tool_calls"))
WIRES = ("anthropic", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")


@pytest.mark.finding("G3b")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("upstream", WIRES)
@run
async def test_calls_of_gemini_clients_are_repaired(upstream, stream):
    """The repair read Gemini's schema as JSON Schema, and answered 400 "not a JSON Schema" to every call."""
    for answer, policy in ((CALL, "safe"), (SLOPPY, "aggressive")):
        document = {"models": {"m": {"upstream": upstream, "repair": policy}}}
        async with gateway_to(answer, document=document) as (gateway, _):
            reply = await post(gateway, path_of("gemini", "m", stream=stream), BODY)
        assert reply.status == 200, reply.body
        [call] = decode_answer(reply, "gemini", stream=stream).calls
        assert call.arguments == {"city": "Paris", "days": 3}


@pytest.mark.finding("G12")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", ["hermes", "llama3_json", "pythonic", "qwen3_xml", "generic_json", "harmony"])
@run
async def test_emulated_tools_are_shown_as_json_schema(form, stream):
    document = {"models": {"m": {"upstream": "openai_chat", "emulate": form}}}
    async with gateway_to(TEXT_ANSWER, document=document) as (gateway, provider):
        reply = await post(gateway, path_of("gemini", "m", stream=stream), BODY)
    assert reply.status == 200, reply.body
    prompt = provider.requests[0].body
    assert b"get_weather" in prompt and (b"integer" in prompt or b"number" in prompt)
    for keyword in (b"OBJECT", b"STRING", b"INTEGER", b"nullable", b"propertyOrdering"):
        assert keyword not in prompt


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("upstream", WIRES)
@run
async def test_upstreams_receive_json_schema(upstream, stream):
    async with gateway_to(CALL) as (gateway, provider):
        reply = await post(gateway, path_of("gemini", f"{upstream}/m", stream=stream), BODY)
    [call] = decode_answer(reply, "gemini", stream=stream).calls
    assert call.arguments == {"city": "Paris", "days": 3}
    heard = provider.requests[0].body
    if upstream == "gemini":
        assert json.loads(heard)["tools"] == json.loads(BODY)["tools"]
    else:
        assert b"OBJECT" not in heard and b"nullable" not in heard and b"propertyOrdering" not in heard
