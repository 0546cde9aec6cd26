"""More tools than a target accepts: the tools that the conversation needs are sent, never the first ones by position."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import httpx
import pytest
from serving import serving, upstream_rows

from toolwire import Response, Text
from toolwire.ir.response import Stop, Usage
from toolwire.testing import Upstream

DONE = Response(parts=(Text("Done."),), stop=Stop("stop"), usage=Usage(20, 4))
SCHEMA = {"type": "object", "properties": {}}


def make_tools(count: int) -> list[dict[str, Any]]:
    tools = [
        {"name": f"operation_{number}", "description": f"Operation {number}.", "input_schema": SCHEMA}
        for number in range(count)
    ]
    tools[190] = {"name": "book_flight", "description": "Book a flight to a city.", "input_schema": SCHEMA}
    return tools


@pytest.mark.finding("G23")
@pytest.mark.parametrize("retrieve", [False, True])
def test_needed_tool_after_the_limit_is_offered(retrieve: bool) -> None:
    async def check() -> None:
        async with Upstream(DONE) as upstream:
            models = {"m": {"upstream": "openai_chat", "retrieve": retrieve}}
            document = {"upstreams": upstream_rows(upstream.url), "models": models}
            async with (
                serving(document, encoder=None) as gateway,
                anthropic.AsyncAnthropic(base_url=gateway.url, api_key="-", max_retries=0) as client,
            ):
                answer = await client.messages.with_raw_response.create(
                    model="m",
                    max_tokens=9,
                    messages=[{"role": "user", "content": "Please book a flight to Rome."}],
                    tools=make_tools(200),
                )
            assert upstream.requests[0].request is not None
            names = [tool.name for tool in upstream.requests[0].request.tools]
            losses = gateway.turns[0].losses
        assert "book_flight" in names
        assert len(names) <= 128
        if retrieve:
            assert answer.headers["x-toolwire-tools"] == f"{len(names) - 1}/200"
        else:
            assert len(names) == 128
            left_out = [loss for loss in losses if loss.concept == "tool" and loss.action == "dropped"]
            assert len(left_out) == 72
            assert int(answer.headers["x-toolwire-losses"]) >= 72

    asyncio.run(check())


@pytest.mark.finding("G23")
def test_history_with_too_many_tools_is_refused_in_the_clients_format() -> None:
    async def check() -> None:
        async with Upstream(DONE) as upstream, serving({"upstreams": upstream_rows(upstream.url)}) as gateway:
            tools = make_tools(200)
            calls = [{"type": "tool_use", "id": f"c{n}", "name": tools[n]["name"], "input": {}} for n in range(150)]
            results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "ok"} for n in range(150)]
            messages = [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": calls},
                {"role": "user", "content": results},
            ]
            body = {"model": "openai_chat/m", "max_tokens": 9, "messages": messages, "tools": tools}
            async with httpx.AsyncClient() as client:
                answer = await client.post(f"{gateway.url}/v1/messages", json=body)
            assert upstream.requests == []
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert "150 tools are named in the history" in error["message"]
        assert "at most 128" in error["message"]
        assert "shorten the history" in error["message"]

    asyncio.run(check())
