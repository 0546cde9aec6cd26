"""What users' type checkers see of agents: checked by mypy and pyright, never run."""

from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

import toolwire
from toolwire import Agent, Media
from toolwire.net import AgentConversation, Answer
from toolwire.run import ModelSettings


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
