"""More tools than a target accepts: the tools that the conversation needs are sent, never the first ones by position."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import httpx
import pytest

from serving import serving, upstream_rows
from tables import every_case
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
    tools[-10] = {"name": "book_flight", "description": "Book a flight to a city.", "input_schema": SCHEMA}
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


PROMPT = "Please book a flight to Rome."
SAME_WIRE = {
    "openai_chat": (
        "/v1/chat/completions",
        128,
        lambda tools: {
            "model": "m",
            "messages": [{"role": "user", "content": PROMPT}],
            "tools": [
                {"type": "function", "function": {"name": tool["name"], "description": tool["description"]}}
                for tool in tools
            ],
            "vendor_field": {"kept": True},
        },
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        512,
        lambda tools: {
            "contents": [{"role": "user", "parts": [{"text": PROMPT}]}],
            "tools": [
                {
                    "functionDeclarations": [
                        {key: tool[key] for key in ("name", "description")} for tool in tools[n : n + 200]
                    ]
                }
                for n in range(0, len(tools), 200)
            ],
        },
    ),
}


@pytest.mark.finding("LE1")
@every_case("padding", [0, 50_000], ids=["small", "large"])
@every_case("excess", [0, 1, 72])
@every_case("wire", SAME_WIRE)
def test_too_many_tools_are_reduced_on_the_same_wire(wire: str, excess: int, padding: int) -> None:
    path, limit, make_body = SAME_WIRE[wire]
    body = make_body(make_tools(limit + excess))
    first = body["messages" if wire == "openai_chat" else "contents"][0]
    if wire == "openai_chat":
        first["content"] += " x" * padding
    elif padding:
        first["parts"].append({"text": " x" * padding})

    async def check() -> None:
        async with Upstream(DONE) as upstream:
            provider = {"openai_chat": "openai-chat"}.get(wire, wire)
            row = {"provider": provider, "base_url": upstream.url, "key_env": "KEY"}
            document = {"upstreams": {wire: row}, "models": {"m": {"upstream": wire}}}
            async with (
                serving(document, encoder=None, environment={"KEY": "k"}) as gateway,
                httpx.AsyncClient() as client,
            ):
                answer = await client.post(f"{gateway.url}{path}", json=body)
        assert answer.status_code == 200
        (sent,) = upstream.requests
        assert sent.request is not None
        names = [tool.name for tool in sent.request.tools]
        assert len(names) == limit and "book_flight" in names
        left_out = [loss for loss in gateway.turns[0].losses if loss.concept == "tool" and loss.action == "dropped"]
        assert len(left_out) == excess <= int(answer.headers.get("x-toolwire-losses", "0"))
        if excess == 0:
            assert json.loads(sent.body)["tools"] == body["tools"]
        if wire == "openai_chat":
            assert json.loads(sent.body)["vendor_field"] == {"kept": True}

    asyncio.run(check())


@pytest.mark.finding("LE1")
@every_case("padding", [0, 50_000], ids=["small", "large"])
@every_case("provider", [None, "openrouter", "xai", "mistral", "deepseek", "groq", "openai-chat"])
@every_case("field", ["seed", "max_completion_tokens"])  # the second has another name at most servers
def test_only_a_stated_limit_reduces_tools_on_the_same_wire(provider: str | None, field: str, padding: int) -> None:
    path, limit, make_body = SAME_WIRE["openai_chat"]
    body = {**make_body(make_tools(200)), field: 9}
    body["messages"][0]["content"] += " x" * padding

    async def check() -> None:
        async with Upstream(DONE, DONE) as upstream:
            row = {"wire": "openai_chat"} if provider is None else {"provider": provider, "key_env": "KEY"}
            upstreams = {"u": {**row, "base_url": upstream.url}}
            document = {"upstreams": upstreams, "models": {"m": {"upstream": "u"}}}
            async with (
                serving(document, encoder=None, environment={"KEY": "k"}) as gateway,
                httpx.AsyncClient() as client,
            ):
                same = await client.post(f"{gateway.url}{path}", json=body)
                other = {"model": "m", "max_tokens": 9, "messages": body["messages"], "tools": make_tools(200)}
                translated = await client.post(f"{gateway.url}/v1/messages", json=other)
        assert (same.status_code, translated.status_code) == (200, 200)
        count = limit if provider in ("groq", "openai-chat") else 200
        assert [len(json.loads(sent.body)["tools"]) for sent in upstream.requests] == [count, limit]
        left_out = [loss for loss in gateway.turns[0].losses if loss.concept == "tool"]
        assert len(left_out) == 200 - count

    asyncio.run(check())


@pytest.mark.finding("LE1")
@pytest.mark.parametrize("provider", ["openrouter", "openai-chat"])
def test_limit_of_the_settings_applies_on_the_same_wire(provider: str) -> None:
    path, _, make_body = SAME_WIRE["openai_chat"]

    async def check() -> None:
        async with Upstream(DONE) as upstream:
            upstreams = {"u": {"provider": provider, "base_url": upstream.url, "key_env": "KEY"}}
            document = {"upstreams": upstreams, "models": {"m": {"upstream": "u", "capabilities": {"tools": 20}}}}
            async with (
                serving(document, encoder=None, environment={"KEY": "k"}) as gateway,
                httpx.AsyncClient() as client,
            ):
                assert (await client.post(f"{gateway.url}{path}", json=make_body(make_tools(64)))).status_code == 200
        assert len(json.loads(upstream.requests[0].body)["tools"]) == 20

    asyncio.run(check())


@pytest.mark.finding("LE1")
@pytest.mark.parametrize("provider", ["vllm", "llamacpp"])
def test_server_without_a_limit_gets_all_tools(provider: str) -> None:
    path, _, make_body = SAME_WIRE["openai_chat"]
    body = make_body(make_tools(200))

    async def check() -> None:
        async with Upstream(DONE, DONE) as upstream:
            upstreams = {"u": {"provider": provider, "base_url": upstream.url}}
            document = {"upstreams": upstreams, "models": {"m": {"upstream": "u"}}}
            async with serving(document, encoder=None) as gateway, httpx.AsyncClient() as client:
                same = await client.post(f"{gateway.url}{path}", json=body)
                anthropic_body = {**body, "max_tokens": 9, "tools": make_tools(200)}
                other = await client.post(f"{gateway.url}/v1/messages", json=anthropic_body)
        assert (same.status_code, other.status_code) == (200, 200)
        assert [len(json.loads(sent.body)["tools"]) for sent in upstream.requests] == [200, 200]

    asyncio.run(check())


@pytest.mark.finding("LE1")
def test_strict_request_with_too_many_tools_is_refused_on_the_same_wire() -> None:
    path, _, make_body = SAME_WIRE["openai_chat"]

    async def check() -> None:
        async with Upstream(DONE) as upstream:
            row = {"provider": "openai-chat", "base_url": upstream.url, "key_env": "KEY"}
            document = {"upstreams": {"u": row}, "models": {"m": {"upstream": "u"}}}
            async with (
                serving(document, encoder=None, environment={"KEY": "k"}) as gateway,
                httpx.AsyncClient() as client,
            ):
                headers = {"x-toolwire-strict": "1"}
                answer = await client.post(f"{gateway.url}{path}", json=make_body(make_tools(200)), headers=headers)
        assert answer.status_code == 400 and "is left out" in answer.text
        assert upstream.requests == []

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
