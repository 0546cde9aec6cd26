"""Long conversations with an agent: compaction and prompt-cache marks in the requests that are sent."""

import asyncio
import json

import pytest

from toolwire import Agent, ModelClient, ToolCall, tool
from toolwire.audit import check_body
from toolwire.ir import Response, Stop, Text, ToolResult
from toolwire.run import Budget, Compaction
from toolwire.testing import ScriptedModel, Upstream, says


@tool(effect="read")
def page(number: int) -> str:
    """Get a page."""
    return f"page {number}: " + "text " * 200


def pages(count):
    return [says(ToolCall(f"c{number}", "page", {"number": number})) for number in range(count)]


LIMIT = Compaction(max_tokens=1500, keep_last=2)


def run_agent(agent, prompt, streamed):
    if not streamed:
        return agent.run_sync(prompt)
    return list(agent.stream_sync(prompt))[-1]


@pytest.mark.parametrize("streamed", [False, True])
def test_agent_sends_compacted_conversations_and_returns_the_whole_one(streamed):
    model = ScriptedModel([*pages(12), says("Done.")])
    answer = run_agent(Agent(model, [page], compaction=LIMIT, budget=Budget(iterations=20)), "Read all.", streamed)
    assert answer.output == "Done."
    assert [len(result.text) > 1000 for result in answer.results] == [True] * 12
    sizes = [sum(len(json.dumps(str(message))) for message in request.messages) for request in model.requests]
    assert max(sizes) < 12_000 < sum(len(result.text) for result in answer.results)
    last = model.requests[-1]
    assert last.messages[0].parts[0].text == "Read all."
    results = [part for message in last.messages for part in message.parts if isinstance(part, ToolResult)]
    assert [len(result.text) > 1000 for result in results[-2:]] == [True, True]
    assert "characters of older output removed" in results[0].text


def test_conversation_continues_with_the_compacted_form():
    model = ScriptedModel([*pages(12), says("Done."), says("Again.")])
    agent = Agent(model, [page], compaction=LIMIT, budget=Budget(iterations=20))
    chat = agent.conversation()
    chat.run_sync("Read all.")
    sent = len(model.requests)
    chat.run_sync("And now?")
    before, after = model.requests[sent - 1].messages, model.requests[sent].messages
    assert after[: len(before)] == before, "a stable prefix can be cached"
    assert len(chat.messages) == 28


def test_agent_marks_the_stable_prefix_for_its_provider():
    async def main():
        answers = [Response(parts=(Text("Done."),), stop=Stop("stop"))] * 4
        async with Upstream(*answers) as upstream:
            for provider in ("anthropic/claude-sonnet-5", "openai/gpt-5.6", "gemini/gemini-3-pro-preview"):
                async with ModelClient(provider, base_url=upstream.url, key="k") as client:
                    await Agent(client, [page], system="Be brief. " * 1000, cache="auto").run("Hello.")
            async with ModelClient("anthropic/claude-sonnet-5", base_url=upstream.url, key="k", cache="auto") as client:
                await client.ask(upstream.requests[0].request)
            return [json.loads(heard.body) for heard in upstream.requests]

    anthropic, openai, gemini, direct = asyncio.run(main())
    assert anthropic["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert anthropic["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert check_body(anthropic, "anthropic", "claude-sonnet-5", version="2026-10-21") == []
    assert openai["prompt_cache_key"].startswith("tw-")
    assert "cache" not in json.dumps(gemini)
    assert direct["system"] == anthropic["system"]


@pytest.mark.finding("CA2")
def test_agent_and_client_place_no_marks_beside_a_mark_of_the_body():
    async def main():
        answers = [Response(parts=(Text("Done."),), stop=Stop("stop"))] * 2
        options = {"key": "k", "cache": "auto", "extra_body": {"cache_control": {"type": "ephemeral"}}}
        async with Upstream(*answers) as upstream:
            async with ModelClient("anthropic/claude-sonnet-5", base_url=upstream.url, **options) as client:
                await Agent(client, [page], system="Be brief. " * 1000, cache="auto").run("Hello.")
                await client.ask(upstream.requests[0].request)
            return [heard.body.count(b"cache_control") for heard in upstream.requests]

    assert asyncio.run(main()) == [1, 1]
