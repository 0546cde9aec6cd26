"""`retrieve` for a model: the best of a client's many tools are offered, and the model searches for the others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from sdks import CLIENTS, Function, Result
from serving import serving, upstream_rows

from toolwire import Request, Response, Text, ToolCall, ToolResult
from toolwire.gateway.observe.metrics import Metrics
from toolwire.ir.response import Stop, Usage
from toolwire.testing import Upstream

NOUNS = (
    *("issue", "invoice", "payment", "ticket", "calendar", "meeting", "contact", "folder", "playlist", "recipe"),
    *("flight", "hotel", "parcel", "sensor", "camera", "server", "database", "branch", "release", "survey"),
)
VERBS = (
    *("create", "close", "delete", "rename", "export", "import", "archive", "refund", "assign", "merge"),
    *("share", "print", "schedule", "cancel", "approve", "reject", "compare", "translate", "restart", "measure"),
    *("subscribe", "rotate", "encrypt", "duplicate", "summarise"),
)
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer", "description": "The number of the item"}},
    "required": ["number"],
}
TOOLS = [
    Function(f"{verb}_{noun}", f"{verb.capitalize()} one {noun} of the account by its number.", SCHEMA)
    for noun in NOUNS
    for verb in VERBS
]
QUESTION = "Please close the issue about the login page."
SEARCH = Response(
    parts=(ToolCall("s1", "search_tools", {"query": "refund a payment", "k": 2}),),
    stop=Stop("tool_calls"),
    usage=Usage(10, 5),
)
FOUND_CALL = Response(
    parts=(ToolCall("c1", "refund_payment", {"number": 7}),), stop=Stop("tool_calls"), usage=Usage(10, 5)
)
DONE = Response(parts=(Text("Done."),), stop=Stop("stop"), usage=Usage(20, 4))


def settings(upstream: Upstream, wire: str, retrieve: Any = True, **more: Any) -> dict[str, Any]:
    rows = {wire: upstream_rows(upstream.url)[wire]}
    return {"upstreams": rows, "models": {"m": {"upstream": wire, "retrieve": retrieve, **more}}}


def tool_names(request: Request | None) -> list[str]:
    assert request is not None
    return [tool.name for tool in request.tools]


def all_parts(request: Request | None) -> list[Any]:
    assert request is not None
    return [part for message in request.messages for part in message.parts]


def chat_tools(count: int = 500) -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool._asdict()} for tool in TOOLS[:count]]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "openai_responses", "gemini", "ollama"])
@pytest.mark.parametrize("client_name", CLIENTS)
def test_found_tool_is_called_and_later_requests_repeat_the_prefix(client_name: str, wire: str, stream: bool) -> None:
    async def check() -> None:
        async with Upstream(SEARCH, FOUND_CALL, DONE) as upstream:
            async with serving(settings(upstream, wire), encoder=None) as gateway:
                client = CLIENTS[client_name](gateway.url)
                history = client.user_message(QUESTION)
                first = await client.ask("m", history, TOOLS, None, stream=stream)
                history += [*first.said, *client.results([Result(first.calls[0], "refunded")])]
                second = await client.ask("m", history, TOOLS, None, stream=stream)
                await client.close()
            start, after_search, later = (received.request for received in upstream.requests)
        assert [call.name for call in first.calls] == ["refund_payment"]
        assert (second.text, second.calls) == ("Done.", [])
        offered = tool_names(start)
        assert len(offered) == 9
        assert offered[0] == "search_tools"
        assert "close_issue" in offered
        assert tool_names(after_search)[:9] == offered
        assert "refund_payment" in tool_names(after_search)
        assert tool_names(later) == tool_names(after_search)
        results = [part for part in all_parts(later) if isinstance(part, ToolResult)]
        assert len(results) == 2  # of the search, which the client has not seen, and of the call
        sizes = [len(received.body) for received in upstream.requests]
        whole = len(json.dumps([tool._asdict() for tool in TOOLS]))
        assert max(sizes) < whole / 10
        log = gateway.turns[0]
        assert (log.declared_tools, log.offered_tools, log.tool_searches) == (500, 10, 1)

    asyncio.run(check())
