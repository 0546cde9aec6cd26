"""Options of a model: cached answers, repaired calls."""

from __future__ import annotations

import asyncio

import openai

from serving import serving, upstream_rows
from toolwire import Response, Text
from toolwire.ir.response import Stop, Usage
from toolwire.testing import RawReply, Upstream

HELLO = Response(parts=(Text("Hello"),), stop=Stop("stop"), usage=Usage(3, 1))
MESSAGES = [{"role": "user", "content": "x?"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": WEATHER}} for name in ("get_weather", "get_time")
]


def test_repeated_request_is_answered_from_the_cache() -> None:
    async def check() -> None:
        async with Upstream(HELLO, HELLO) as upstream:
            rows = {"anthropic": upstream_rows(upstream.url)["anthropic"]}
            document = {"upstreams": rows, "models": {"m": {"upstream": "anthropic", "cache": 60}}}
            async with (
                serving(document) as gateway,
                openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="-") as client,
            ):
                raw = client.chat.completions.with_raw_response
                first = await raw.create(model="m", messages=MESSAGES)
                second = await raw.create(model="m", messages=MESSAGES)
                other = await raw.create(model="m", messages=[{"role": "user", "content": "y?"}])
            assert "x-toolwire-cache" not in first.headers
            assert second.headers["x-toolwire-cache"] == "hit"
            assert second.text == first.text
            assert "x-toolwire-cache" not in other.headers
            assert len(upstream.requests) == 2

    asyncio.run(check())


BROKEN = b"""{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{'city': 'Paris',}"}}]}}]}"""


def test_calls_are_repaired_only_for_models_that_enable_it() -> None:
    async def check() -> None:
        async with Upstream(RawReply(BROKEN), RawReply(BROKEN)) as upstream:
            rows = {"chat": upstream_rows(upstream.url)["openai_chat"]}
            models = {"mended": {"upstream": "chat", "repair": "safe"}, "as-is": {"upstream": "chat"}}
            async with serving({"upstreams": rows, "models": models}) as gateway:
                client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="-")
                asked = {"messages": MESSAGES, "tools": TOOLS}
                mended = await client.chat.completions.create(model="mended", **asked)
                left = await client.chat.completions.create(model="as-is", **asked)
                await client.close()
            assert mended.choices[0].message.tool_calls[0].function.arguments == '{"city":"Paris"}'
            assert left.choices[0].message.tool_calls[0].function.arguments == "{'city': 'Paris',}"
            assert [len(turn.repairs) for turn in gateway.turns] == [1, 0]

    asyncio.run(check())
