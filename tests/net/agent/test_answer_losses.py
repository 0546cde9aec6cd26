"""`Answer.losses` collects the losses of all model requests of a run, streamed or not, observed or not."""

import asyncio
import logging

import pytest

from toolwire import Agent, ModelClient, ToolCall, tool
from toolwire.ir import ConfigError
from toolwire.net import Auxiliary
from toolwire.testing import Upstream, says

LOST = ["/params/max_tokens", "/params/seed"]


class Silent:
    def __init__(self, *, ends):
        self.ends = ends
        self.losses = []

    def start(self, operation):
        return (lambda outcome: self.losses.extend(outcome.losses)) if self.ends else None


async def run_agent(upstream, *, way, observers=(), tools=(), **options):
    async with ModelClient("anthropic/claude-sonnet-5", base_url=upstream.url, key="k" * 10) as client:
        agent = Agent(client, tools, settings={"seed": 7}, observers=observers, **options)
        if way == "run":
            return await agent.run("Hello.")
        return [item async for item in agent.stream("Hello.")][-1]


@pytest.mark.parametrize("way", ["run", "stream"])
def test_answer_has_the_losses_of_its_run(way, caplog):
    @tool(effect="read")
    def weather() -> str:
        """The weather."""
        return "sun"

    async def check():
        for observers in ((), (Silent(ends=False),), (Silent(ends=True),)):
            async with Upstream(says(ToolCall("c1", "weather", {})), says("Sun.")) as upstream:
                answer = await run_agent(upstream, way=way, observers=observers, tools=[weather])
            assert (answer.text, [loss.path for loss in answer.losses]) == ("Sun.", LOST)
            for observer in observers:
                assert [loss.path for loss in observer.losses] == (LOST * 2 if observer.ends else [])

    with caplog.at_level(logging.WARNING, "toolwire.net"):
        asyncio.run(check())
    # Only an observer that gets the losses replaces the log.
    assert [record.getMessage().split()[1] for record in caplog.records] == ["/params/seed"] * 2


def test_losses_of_subagents_and_auxiliary_models_are_in_the_answer():
    async def check():
        script = [
            says(ToolCall("c1", "ask_helper", {"prompt": "Hello."})),
            says("x" * 90),
            says("short"),
            says("Done."),
        ]
        async with Upstream(*script) as upstream:
            other = ModelClient("mistral/m", base_url=upstream.url, key="k" * 10)
            helper = Agent(other, settings={"top_k": 3})
            auxiliary = Auxiliary(other, summarise_above=50)
            tools = [helper.as_tool("ask_helper", effect="read")]
            return await run_agent(upstream, way="run", tools=tools, auxiliary=auxiliary)

    answer = asyncio.run(check())
    assert answer.text == "Done."
    assert {loss.path for loss in answer.losses} >= {*LOST, "/params/top_k", "/params/max_tokens"}


def test_losses_in_a_list_are_refused():
    async def check():
        async with Upstream() as upstream, ModelClient("openai-chat/m", base_url=upstream.url, key="k" * 10) as client:
            with pytest.raises(ConfigError, match="type list") as raised:
                await client.ask("Hello.", losses=[])
            assert "toolwire.ir.Losses()" in raised.value.hint
        assert not upstream.requests

    asyncio.run(check())
