"""The search of an agent for tools, over HTTP on each wire, with observers."""

import asyncio
import json

import pytest

from toolwire import Agent, ModelClient, Tool, ToolCall
from toolwire.ir import Response, Stop, Text
from toolwire.retrieve import ToolIndex
from toolwire.run import Entry
from toolwire.run.calls.observe import ModelOperation
from toolwire.testing import Upstream

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def entry(name, description):
    def run(id):  # noqa: A002
        return f"{name} {id}"

    return Entry(Tool(name, description, SCHEMA, effect="read"), run, origin=name)


TOOLS = [
    entry("list_flights", "List the flights to a city"),
    entry("create_invoice", "Create an invoice for a customer"),
    entry("bake_bread", "Bake bread with a recipe"),
]


class Losses:
    """Collects the losses of each model request."""

    def __init__(self):
        self.losses = []

    def start(self, operation):
        if isinstance(operation, ModelOperation):
            return lambda outcome: self.losses.append(outcome.losses)
        return None


def calls(name, arguments, number, kind="function"):
    return Response(parts=(ToolCall(f"call_{number}", name, arguments, kind=kind),), stop=Stop("tool_calls"))


def converse(provider, streamed=False):
    """Return the bodies of four requests, the answer, and the losses of each request. The second one finds a tool."""
    native = provider.startswith("openai/")
    script = [
        calls("list_flights", {"id": "Oslo"}, 1),
        calls("search_tools", {"query": "create an invoice", "k": 1}, 2, "search" if native else "function"),
        calls("create_invoice", {"id": "7"}, 3),
        Response(parts=(Text("Done."),), stop=Stop("stop")),
    ]
    observer = Losses()

    async def main():
        async with Upstream(*script) as upstream, ModelClient(provider, base_url=upstream.url, key="k") as client:
            agent = Agent(client, TOOLS, retriever=ToolIndex().retriever(k=1), observers=[observer])
            if streamed:
                answer = [item async for item in agent.stream("Which flights go to Oslo?")][-1]
            else:
                answer = await agent.run("Which flights go to Oslo?")
            return [json.loads(received.body) for received in upstream.requests], answer

    bodies, answer = asyncio.run(main())
    return bodies, answer, observer.losses


@pytest.mark.parametrize("streamed", [False, True])
def test_anthropic_loads_found_tools_by_reference(streamed):
    bodies, answer, losses = converse("anthropic/claude-sonnet-5", streamed)
    assert [result.text for result in answer.results][::2] == ["list_flights Oslo", "create_invoice 7"]
    declared = [[(tool["name"], tool.get("defer_loading")) for tool in body["tools"]] for body in bodies]
    first = [("search_tools", None), ("list_flights", None)]
    assert declared == [first, first, [*first, ("create_invoice", True)], [*first, ("create_invoice", True)]]
    (found,) = bodies[2]["messages"][-1]["content"]
    assert found["content"] == [{"type": "tool_reference", "tool_name": "create_invoice"}]
    assert bodies[2]["messages"][:-2] == bodies[1]["messages"]
    assert not any(loss.concept == "prompt prefix" for found in losses for loss in found)


@pytest.mark.parametrize("streamed", [False, True])
def test_responses_loads_found_tools_with_its_search(streamed):
    bodies, answer, losses = converse("openai/gpt-5.6", streamed)
    assert [result.text for result in answer.results][::2] == ["list_flights Oslo", "create_invoice 7"]
    assert [body["tools"] for body in bodies[1:]] == [bodies[0]["tools"]] * 3
    assert bodies[0]["tools"][0]["type"] == "tool_search"
    assert bodies[0]["tools"][0]["execution"] == "client"
    output = bodies[2]["input"][-1]
    assert output["type"] == "tool_search_output"
    assert [tool["name"] for tool in output["tools"]] == ["create_invoice"]
    assert bodies[2]["input"][: len(bodies[1]["input"])] == bodies[1]["input"]
    assert not any(loss.concept == "prompt prefix" for found in losses for loss in found)


@pytest.mark.parametrize("streamed", [False, True])
def test_chat_appends_found_tools_and_reports_the_lost_prefix(streamed):
    bodies, answer, losses = converse("groq/llama-4", streamed)
    assert [result.text for result in answer.results][::2] == ["list_flights Oslo", "create_invoice 7"]
    declared = [[tool["function"]["name"] for tool in body["tools"]] for body in bodies]
    first = ["search_tools", "list_flights"]
    assert declared == [first, first, [*first, "create_invoice"], [*first, "create_invoice"]]
    assert bodies[2]["tools"][:2] == bodies[1]["tools"]
    assert "create_invoice" in bodies[2]["messages"][-1]["content"]
    reported = [[loss.severity for loss in found if loss.concept == "prompt prefix"] for found in losses]
    assert reported[:3] == [[], [], ["info"]]
