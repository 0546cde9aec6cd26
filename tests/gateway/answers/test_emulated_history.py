"""A model without native calls is told of calls in words, of past ones as well."""

from __future__ import annotations

import pytest

from hostile import TEXT_ANSWER, body_of, decode_answer, gateway_to, path_of, post, run
from toolwire import Message, Request, Text, ToolCall, ToolResult

PLAIN = {"models": {"plain": {"upstream": "openai_chat", "model": "m", "emulate": "hermes"}}}
# a client that wants an answer now, and no more calls
DONE = Request(
    messages=(
        Message("user", (Text("Weather in Paris?"),)),
        Message("assistant", (ToolCall("c1", "get_weather", {"city": "Paris"}),)),
        Message("user", (ToolResult("c1", "get_weather", (Text("rain"),)),)),
    )
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", ["openai_chat", "anthropic"])
@run
async def test_past_calls_are_sent_as_text_even_if_no_tools_are_offered(front, stream):
    async with gateway_to(TEXT_ANSWER, document=PLAIN) as (gateway, provider):
        answer = await post(gateway, path_of(front, stream=stream), body_of(front, DONE, "plain", stream=stream))
        assert decode_answer(answer, front, stream=stream).text == TEXT_ANSWER.text
    [heard] = provider.requests
    assert b"tool_calls" not in heard.body and b'"role":"tool"' not in heard.body
    assert b"get_weather" in heard.body and b"rain" in heard.body
