"""The types of agents as users write them: checked by mypy and pyright, never run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, assert_type

import toolwire
from toolwire import Agent, Media, StructuredOutput, ToolCall, ToolResult
from toolwire.ir import ArgumentEnd, TextDelta
from toolwire.net import AgentConversation, Answer, TraceObserver
from toolwire.run import (
    CallContext,
    EndOperation,
    ModelSettings,
    ObservedOperation,
    OperationOutcome,
    PartialOutput,
    ToolOperation,
    UnfinishedCall,
)
from toolwire.stream import ArgumentWatch
from toolwire.testing import load_run, replay_run


@dataclass
class City:
    name: str
    country: str


@dataclass
class Database:
    url: str


@toolwire.tool(effect="read")
def population(city: str) -> int:
    return len(city)


async def plain_agents() -> None:
    agent = Agent("openai/gpt-5.6", [population], system="Be brief.", settings={"temperature": 0.2})
    assert_type(agent, Agent[None, str])
    answer = await agent.run("How many?", settings=ModelSettings(max_tokens=100))
    assert_type(answer, Answer[str])
    assert_type(answer.output, str)
    assert_type(answer.usage.total, int)
    await agent.run(["What is this?", Path("cat.png"), Media("image", url="https://example.com/cat.png")])
    assert_type(agent.run_sync("And now?", history=answer), Answer[str])


async def typed_agents() -> None:
    agent = Agent("openai/gpt-5.6", [population], output_type=City, deps_type=Database)
    assert_type(agent, Agent[Database, City])
    answer = await agent.run("Which city?", deps=Database("sqlite://"))
    assert_type(answer.output, City)
    conversation = agent.conversation(deps=Database("sqlite://"))
    assert_type(conversation, AgentConversation[Database, City])
    assert_type((await conversation.run("Which city?")).output, City)


@toolwire.tool(effect="read")
async def tables(prefix: str, context: CallContext[Database]) -> list[str]:
    assert_type(context.deps, Database)
    assert_type(context.idempotency_key, str | None)
    await context.progress("connecting", 0.5)
    return [f"{prefix}.{context.deps.url}"]


async def inferred_types() -> None:
    assert_type(Agent("openai/gpt-5.6", output_type=list[str]), Agent[None, list[str]])
    assert_type(Agent("openai/gpt-5.6", output_type=int).run_sync("How many?").output, int)
    assert_type(Agent("openai/gpt-5.6", [tables], deps_type=Database), Agent[Database, str])
    agent = Agent("openai/gpt-5.6", [tables], deps_type=Database, output_type=City)
    manager = Agent("openai/gpt-5.6", [agent.as_tool("find_city", "Find a city.")], deps_type=Database)
    assert_type(manager, Agent[Database, str])
    with agent.override(model="anthropic/claude-sonnet-5"):
        await agent.run("Which city?", deps=Database("sqlite://"), history=await manager.run("?", deps=Database("")))


async def mistakes() -> None:
    """Each comment marks an error that type checkers report; mypy reports an unused comment."""
    agent = Agent("openai/gpt-5.6", output_type=City, deps_type=Database)
    await agent.run("Which city?", deps="sqlite://")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (await agent.run("Which city?", deps=Database(""))).output.population  # type: ignore[attr-defined]  # pyright: ignore
    Agent("openai/gpt-5.6", settings={"temprature": 1})  # type: ignore[arg-type]  # pyright: ignore


async def streamed_items() -> None:
    agent = Agent("openai/gpt-5.6", [population], output_type=City)
    async for item in agent.stream("Which city?"):
        if isinstance(item, TextDelta):
            assert_type(item.text, str)
        elif isinstance(item, ToolCall):
            assert_type(item.name, str)
        elif isinstance(item, ToolResult):
            assert_type(item.text, str)
        elif isinstance(item, Answer):
            assert_type(item.output, City)
    async for text in agent.stream_text("Which city?"):
        assert_type(text, str)


class Move(TypedDict):
    to: str


async def output_types() -> None:
    assert_type((await Agent("openai/gpt-5.6", output_type=int).run("?")).output, int)
    assert_type((await Agent("openai/gpt-5.6", output_type=list[str]).run("?")).output, list[str])
    assert_type((await Agent("openai/gpt-5.6", output_type=Move).run("?")).output, Move)
    union = Agent("openai/gpt-5.6", output_type=StructuredOutput[City | Database]())
    assert_type(union, Agent[None, City | Database])
    literal = Agent("openai/gpt-5.6", output_type=StructuredOutput[Literal["yes", "no"]](mode="tool"))
    assert_type((await literal.run("?")).output, Literal["yes", "no"])
    options = Agent("openai/gpt-5.6", output_type=StructuredOutput(City, retries=1, resamples=3, name="city"))
    assert_type(options, Agent[None, City])
    schema = Agent("openai/gpt-5.6", output_type=StructuredOutput({"type": "object"}))
    assert_type(schema, Agent[None, Any])
    async for item in options.stream("?"):
        if isinstance(item, PartialOutput):
            assert_type(item.value, Any)
        elif isinstance(item, UnfinishedCall):
            assert_type(item.arguments, dict[str, Any])
        elif isinstance(item, Answer):
            assert_type(item.output, City)


async def watched_arguments() -> None:
    watch = ArgumentWatch()
    async for item in Agent("openai/gpt-5.6", [population]).stream("?"):
        for seen in watch.feed(item):
            if isinstance(seen, ArgumentEnd):
                assert_type(seen.name, str)
            elif isinstance(seen, Answer):
                assert_type(seen.messages[-1].text, str)
                assert_type(seen.messages[-1].results[0].text, str)


class CallNames:
    """An observer of tool calls."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start(self, operation: ObservedOperation) -> EndOperation | None:
        if not isinstance(operation, ToolOperation):
            return None
        assert_type(operation.call, ToolCall)
        return self._end

    def _end(self, outcome: OperationOutcome) -> None:
        assert_type(outcome.result, ToolResult | None)


async def observed_and_replayed() -> None:
    agent = Agent("openai/gpt-5.6", output_type=int, observers=[CallNames(), TraceObserver(folder="runs")])
    answer = await replay_run(load_run("runs/1.jsonl"), agent, tools="read")
    assert_type(answer, Answer[int] | None)
