"""Programs as tutorials have them, with their model names, before a model that knows no tools."""

import asyncio
import os
import sys

import pytest

from places import TESTS
from serving import serving, upstream_rows
from shapes import ModelAnswer, provider_answer
from toolwire.ir.parts import Text
from toolwire.ir.request import Request
from toolwire.testing.upstream import RawReply, Upstream

SEEDS = TESTS / "fixtures" / "seeds"
PROGRAMS = [
    ("openai_chat.py",),
    ("anthropic_messages.py",),
    ("pydantic_ai_agent.py", "openai:gpt-4o"),
    ("pydantic_ai_agent.py", "openai-chat:gpt-4o"),
    ("pydantic_ai_agent.py", "anthropic:claude-sonnet-4-20250514"),
]


def small_model(request: Request) -> RawReply:
    """It writes a call until it has read a result; a server takes what it writes up to a stop sequence."""
    words = "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, Text))
    if "EXECUTION RESULT of [get_weather]:\n22C, sunny in Paris" in words:
        text = "It is 22 degrees and sunny in Paris."
    else:
        assert "get_weather" in words
        text = "Let me see.\n<function=get_weather>\n<parameter=location>Paris</parameter>\n</function>\nIt rains."
    for stop in request.params.stop or ():
        text = text.partition(stop)[0]
    return provider_answer("openai_chat", ModelAnswer(text), stream=bool(request.stream))


async def run(program: tuple[str, ...]) -> tuple[str, list[str]]:
    """What it prints, and the models that the gateway was asked for."""
    async with Upstream(*[small_model] * 3) as upstream:
        models = {"*": {"upstream": "openai_chat", "model": "small", "emulate": "function_xml"}}
        async with serving({"upstreams": upstream_rows(upstream.url), "models": models}) as gateway:
            where = {"OPENAI_BASE_URL": f"{gateway.url}/v1", "ANTHROPIC_BASE_URL": gateway.url}
            keys = {"OPENAI_API_KEY": "not-a-key", "ANTHROPIC_API_KEY": "not-a-key"}
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(str(SEEDS / program[0]), *program[1:]),
                env=os.environ | where | keys,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            printed, problems = await asyncio.wait_for(process.communicate(), 300)
        assert process.returncode == 0, problems.decode()
        assert [heard.request.tools for heard in upstream.requests] == [(), ()]
    return printed.decode(), [turn.model for turn in gateway.turns]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_the_program_gets_a_call_and_an_answer(program):
    printed, models = asyncio.run(run(program))
    assert printed.splitlines() == ["call: get_weather Paris", "answer: It is 22 degrees and sunny in Paris."]
    assert models in (["gpt-4o"] * 2, ["claude-sonnet-4-20250514"] * 2)


def test_model_name_with_a_provider_prefix_is_resolved():
    """As PydanticAI and others write it, for clients that pass it on as it is."""

    async def ask() -> str:
        import openai

        async with Upstream(provider_answer("openai_chat", ModelAnswer("Hi."), stream=False)) as upstream:
            models = {"openai/gpt-4o": {"upstream": "openai_chat", "model": "small"}}
            async with serving({"upstreams": upstream_rows(upstream.url), "models": models}) as gateway:
                async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="not-a-key") as client:
                    asked = [{"role": "user", "content": "Hi"}]
                    answer = await client.chat.completions.create(model="openai:gpt-4o", messages=asked)
                return answer.choices[0].message.content or ""

    assert asyncio.run(ask()) == "Hi."
