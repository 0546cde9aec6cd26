"""`retrieve` for a model: the selection of a conversation stays as it continues, wherever its messages are stored."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from serving import serving, upstream_rows
from toolwire import Request, Response, Text, ToolCall
from toolwire.ir.response import Stop
from toolwire.testing import Upstream

NAMES = [
    f"{verb}_{noun}"
    for noun in ("issue", "invoice", "survey", "payment", "folder")
    for verb in ("close", "export", "refund")
]
FUNCTIONS = [
    {
        "name": name,
        "description": f"{name.replace('_', ' ').capitalize()} by its number.",
        "parameters": {"type": "object"},
    }
    for name in NAMES
]
CHAT_TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
RESPONSES_TOOLS = [{"type": "function", **function} for function in FUNCTIONS]
SEARCH = Response(
    parts=(ToolCall("s1", "search_tools", {"query": "refund a payment", "k": 1}),), stop=Stop("tool_calls"), id="resp_1"
)
CALL = Response(parts=(ToolCall("c1", "refund_payment", {}),), stop=Stop("tool_calls"), id="resp_2")
DONE = Response(parts=(Text("Done."),), stop=Stop("stop"), id="resp_3")


def settings(upstream: Upstream, wire: str, **retrieve: Any) -> dict[str, Any]:
    rows = {wire: upstream_rows(upstream.url)[wire]}
    return {"upstreams": rows, "models": {"m": {"upstream": wire, "retrieve": {"k": 3, **retrieve}}}}


def names_of(request: Request | None) -> list[str]:
    assert request is not None
    return [tool.name for tool in request.tools]


async def post(url: str, path: str, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=300) as client:
        answer = await client.post(f"{url}/v1/{path}", json={"model": "m", **body})
    assert answer.status_code == 200, answer.text
    return answer


def test_tools_stay_offered_if_the_upstream_stores_the_conversation() -> None:
    async def check() -> None:
        async with Upstream(SEARCH, CALL, DONE, DONE) as upstream:
            async with serving(
                settings(upstream, "openai_responses", always=["export_folder"]), encoder=None
            ) as gateway:
                first = await post(
                    gateway.url, "responses", input="Close the issue about surveys", tools=RESPONSES_TOOLS
                )
                output = [{"type": "function_call_output", "call_id": "c1", "output": "ok"}]
                previous = first.json()["id"]
                second = await post(
                    gateway.url, "responses", input=output, previous_response_id=previous, tools=RESPONSES_TOOLS
                )
                await post(
                    gateway.url, "responses", input=output, previous_response_id="resp_unknown", tools=RESPONSES_TOOLS
                )
            start, _, later, unknown = (names_of(received.request) for received in upstream.requests)
        assert len(start) == 5
        assert later == [*start, "refund_payment"]
        assert second.headers["x-toolwire-tools"] == "5/15"
        assert unknown == NAMES  # no tool may disappear from a conversation

    asyncio.run(check())


@pytest.mark.parametrize(
    "beginning", ["hi", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]]
)
def test_conversation_that_begins_without_matches_selects_later(beginning: Any) -> None:
    async def check() -> None:
        history: list[dict[str, Any]] = [{"role": "user", "content": beginning}]
        async with Upstream(DONE, DONE, DONE) as upstream:
            async with serving(settings(upstream, "openai_chat"), encoder=None) as gateway:
                for text in ("Close the issue about surveys", "Now refund the payment", ""):
                    await post(gateway.url, "chat/completions", messages=history, tools=CHAT_TOOLS)
                    history += [{"role": "assistant", "content": "Yes?"}, {"role": "user", "content": text}]
            first, second, third = (names_of(received.request) for received in upstream.requests)
        assert first == ["search_tools"]
        assert {"search_tools", "close_issue"} < set(second)
        assert len(second) == 4
        assert third == second

    asyncio.run(check())


@pytest.mark.parametrize("position", [0, 3])
def test_later_change_of_the_system_prompt_keeps_the_selection(position: int) -> None:
    async def check() -> None:
        history = [{"role": "system", "content": "Refund payments."}, {"role": "user", "content": "Close the issue"}]
        async with Upstream(DONE, DONE) as upstream:
            async with serving(settings(upstream, "openai_chat"), encoder=None) as gateway:
                await post(gateway.url, "chat/completions", messages=history, tools=CHAT_TOOLS)
                history += [{"role": "assistant", "content": "Yes?"}]
                history[position:1] = [{"role": "system", "content": "Export surveys."}]
                history += [{"role": "user", "content": "Go on"}]
                await post(gateway.url, "chat/completions", messages=history, tools=CHAT_TOOLS)
            first, second = (names_of(received.request) for received in upstream.requests)
        assert second == first

    asyncio.run(check())


def test_repeated_declarations_do_not_use_places_of_the_selection() -> None:
    async def check() -> None:
        message = [{"role": "user", "content": "Close the issue about surveys"}]
        async with Upstream(DONE, DONE) as upstream:
            async with serving(settings(upstream, "openai_chat"), encoder=None) as gateway:
                for tools in (CHAT_TOOLS, [*CHAT_TOOLS, *CHAT_TOOLS]):
                    await post(gateway.url, "chat/completions", messages=message, tools=tools)
            once, twice = (names_of(received.request) for received in upstream.requests)
        assert set(twice) == set(once)

    asyncio.run(check())
