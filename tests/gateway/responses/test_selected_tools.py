"""`retrieve` in conversations that the upstream stores: a request has only their end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from responses_sdk import create
from serving import serving, upstream_rows
from toolwire import Response, Text, ToolCall
from toolwire.ir.response import Stop, Usage
from toolwire.testing import Upstream

VERBS, NOUNS = ("create", "close", "rename", "export", "refund"), ("issue", "invoice", "folder", "payment", "survey")
TOOLS = [
    {"type": "function", "name": f"{verb}_{noun}", "description": f"{verb.title()} one {noun}."}
    for verb in VERBS
    for noun in NOUNS
]
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def answer(number: int, part: Text | ToolCall) -> Response:
    reason = "tool_calls" if isinstance(part, ToolCall) else "stop"
    return Response(id=f"resp_{number}", parts=(part,), stop=Stop(reason), usage=Usage(1, 1))


def settings(upstream: Upstream, **more: Any) -> dict[str, Any]:
    rows = {"kept": {**upstream_rows(upstream.url)["openai_responses"], "keeps_responses": True}}
    return {"upstreams": rows, "models": {"m": {"upstream": "kept", "retrieve": {"k": 3}}}, **more}


def names(upstream: Upstream) -> list[list[str]]:
    return [[tool.name for tool in received.request.tools] for received in upstream.requests]


@MODES
@pytest.mark.parametrize("store", [None, "memory:"], ids=["no store", "store"])
def test_conversation_at_the_upstream_keeps_its_tools(stream: bool, store: str | None) -> None:
    async def check() -> None:
        script = (
            answer(1, ToolCall("c1", "export_survey", {})),
            answer(2, Text("Exported.")),
            answer(3, Text("Renamed.")),
        )
        async with Upstream(*script) as upstream:
            document = settings(upstream, **({} if store is None else {"responses": {"store": store}}))
            async with (
                serving(document, encoder=None) as gateway,
                openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="-", max_retries=0) as client,
            ):
                asked: dict[str, Any] = {"model": "m", "tools": TOOLS, "stream": stream}
                first = await create(client, input="Close the old issue", **asked)
                result = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
                second = await create(client, input=[result], previous_response_id=first.id, **asked)
                await create(client, input="Rename a folder", previous_response_id=second.id, **asked)
            offered = names(upstream)
        assert "close_issue" in offered[0]
        assert len(offered[0]) == 4
        assert offered[1][:4] == offered[0]
        assert offered[2] == offered[1]
        assert "export_survey" in offered[1]  # which the model called without an offer

    asyncio.run(check())


@MODES
def test_tools_that_a_search_found_stay_offered(stream: bool) -> None:
    async def check() -> None:
        search = ToolCall("s1", "search_tools", {"query": "refund a payment", "k": 1})
        script = (answer(1, search), answer(2, ToolCall("c1", "refund_payment", {})), answer(3, Text("Done.")))
        async with Upstream(*script) as upstream:
            async with (
                serving(settings(upstream), encoder=None) as gateway,
                openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="-", max_retries=0) as client,
            ):
                asked: dict[str, Any] = {"model": "m", "tools": TOOLS, "stream": stream}
                first = await create(client, input="Close the old issue", **asked)
                result = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
                await create(client, input=[result], previous_response_id=first.id, **asked)
            offered = names(upstream)
            continued = json.loads(upstream.requests[2].body)["previous_response_id"]
        assert continued == "resp_2"  # a stream has begun with the id of the search, which has no result there
        assert offered[2][:4] == offered[0]
        assert offered[2][4:] == ["refund_payment"]

    asyncio.run(check())


@MODES
@pytest.mark.parametrize("reference", [{"previous_response_id": "resp_unknown"}, {"conversation": "conv_1"}])
def test_unknown_conversation_gets_all_tools_and_a_report(reference: dict[str, str], stream: bool) -> None:
    async def check() -> None:
        async with Upstream(answer(1, Text("a")), answer(2, Text("b"))) as upstream:
            async with (
                serving(settings(upstream), encoder=None) as gateway,
                openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="-", max_retries=0) as client,
            ):
                asked: dict[str, Any] = {"model": "m", "tools": TOOLS, "input": "Close the old issue"}
                raw = await client.responses.with_raw_response.create(**asked, **reference, stream=stream)
                if stream:
                    async for _ in raw.parse():
                        pass
                await client.responses.create(**asked, previous_response_id="resp_1")
            offered = names(upstream)
            assert raw.headers["x-toolwire-tools"] == "25/25"
            assert (gateway.turns[0].declared_tools, gateway.turns[0].offered_tools) == (25, 25)
        assert offered == [[tool["name"] for tool in TOOLS]] * 2  # the next request, too, so that the prefix stays

    asyncio.run(check())
