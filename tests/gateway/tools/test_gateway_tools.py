"""Tools that the gateway runs itself: the client sees one answer, and only its own calls."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import openai
import pytest

import toolwire
from serving import serving, upstream_rows
from toolwire import Response, Text, ToolCall, ToolResult
from toolwire.bridge.conversation.turns import InMemoryTurns, StoredTurn
from toolwire.gateway.answer.delivery import StreamDelivery
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.net.stores import open_store
from toolwire.net.tools.runner import Runner
from toolwire.testing import Upstream
from virtual_time import run_virtual
from waiting import until

WIRES = ("anthropic", "gemini", "openai_chat", "openai_responses")
ran: list[str] = []


@toolwire.tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    ran.append(name)
    return f"{name} is 42"


CLIENT_TOOL = {
    "type": "function",
    "function": {"name": "show", "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}},
}
GATEWAY_CALL = Response(
    parts=(Text("Let me see. "), ToolCall("s1", "look_up", {"name": "x"})),
    stop=Stop("tool_calls"),
    usage=Usage(10, 5),
)
MIXED_CALLS = Response(
    parts=(ToolCall("s1", "look_up", {"name": "x"}), ToolCall("c1", "show", {"what": "y"})),
    stop=Stop("tool_calls"),
    usage=Usage(10, 5),
)
FINAL_ANSWER = Response(parts=(Text("It is 42."),), stop=Stop("stop"), usage=Usage(20, 4))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


async def ask(url: str, wire: str, stream: bool, messages: list[Any], **more: Any) -> Any:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    async with client:
        if not stream:
            answer = await client.chat.completions.create(model=f"{wire}/m", messages=messages, **more)
            return answer.choices[0].message
        async with client.chat.completions.stream(model=f"{wire}/m", messages=messages, **more) as events:
            return (await events.get_final_completion()).choices[0].message


def run(check: Any) -> None:
    asyncio.run(check())


@pytest.mark.one_in(5)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_gateway_tool_call_is_executed_by_the_gateway(wire: str, stream: bool) -> None:
    async def check() -> None:
        async with Upstream(GATEWAY_CALL, FINAL_ANSWER) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            async with serving(document, runners={"*": Runner(look_up)}) as gateway:
                message = await ask(gateway.url, wire, stream, [{"role": "user", "content": "x?"}])
            first, second = upstream.requests
        assert message.content == "Let me see. It is 42."
        assert not message.tool_calls
        assert ran == ["x"]
        assert [tool.name for tool in first.request.tools] == ["look_up"]
        results = [part for one in second.request.messages for part in one.parts if isinstance(part, ToolResult)]
        assert [result.text for result in results] == ["x is 42"]
        (turn,) = gateway.turns
        assert turn.usage is not None
        assert (turn.usage.input, turn.usage.output) == (30, 9)
        assert turn.calls == ()

    run(check)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_mixed_turn_shows_the_client_its_own_calls_and_is_restored(wire: str, stream: bool) -> None:
    async def check() -> None:
        async with Upstream(MIXED_CALLS, FINAL_ANSWER) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            async with serving(document, runners={"*": Runner(look_up)}) as gateway:
                talk: list[Any] = [{"role": "user", "content": "x?"}]
                message = await ask(gateway.url, wire, stream, talk, tools=[CLIENT_TOOL])
                (call,) = message.tool_calls
                assert call.function.name == "show"
                talk += [
                    message.model_dump(exclude_none=True),
                    {"role": "tool", "tool_call_id": call.id, "content": "ok"},
                ]
                message = await ask(gateway.url, wire, stream, talk, tools=[CLIENT_TOOL])
            _, second = upstream.requests
        assert message.content == "It is 42."
        assert ran == ["x"]
        parts = [part for one in second.request.messages for part in one.parts]
        calls = {part.id: part.name for part in parts if isinstance(part, ToolCall)}
        results = {part.call_id: part.text for part in parts if isinstance(part, ToolResult)}
        assert sorted(calls.values()) == ["look_up", "show"]
        assert {calls[one]: text for one, text in results.items()} == {"look_up": "x is 42", "show": "ok"}

    run(check)


def test_tool_that_ran_is_not_run_again_on_a_fallback() -> None:
    async def check() -> None:
        async with Upstream(GATEWAY_CALL, Fault("server", "down", 500), GATEWAY_CALL, FINAL_ANSWER) as upstream:
            rows = upstream_rows(upstream.url)
            both = [{"upstream": "anthropic", "model": "m"}, {"upstream": "gemini", "model": "m"}]
            document = {"upstreams": rows, "models": {"both/m": {"targets": both}}}
            async with serving(document, runners={"*": Runner(look_up)}) as gateway:
                with pytest.raises(openai.InternalServerError):
                    await ask(gateway.url, "both", False, [{"role": "user", "content": "x?"}])
        assert ran == ["x"]

    run(check)


def test_endless_tool_calls_are_stopped() -> None:
    async def check() -> None:
        async with Upstream(*[GATEWAY_CALL] * 20) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            async with serving(document, runners={"*": Runner(look_up)}) as gateway:
                with pytest.raises(openai.InternalServerError, match="without finishing"):
                    await ask(gateway.url, "anthropic", False, [{"role": "user", "content": "x?"}])
        assert len(ran) == 16

    run(check)


def test_client_request_id_is_not_used_as_an_idempotency_key() -> None:
    async def check() -> None:
        ask_twice = [GATEWAY_CALL, FINAL_ANSWER] * 2
        async with Upstream(*ask_twice) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            runner = Runner(pay, store=open_store("memory:"))
            async with serving(document, runners={"*": runner}) as gateway:
                headers = {"x-request-id": "the-same"}
                for _ in range(2):
                    await ask(
                        gateway.url, "anthropic", False, [{"role": "user", "content": "x?"}], extra_headers=headers
                    )
        assert ran == ["x", "x"]

    run(check)


@toolwire.tool(name="look_up")
def pay(name: str) -> str:
    """Pay somebody."""
    ran.append(name)
    return "paid"


@pytest.mark.parametrize("stream", [False, True])
def test_client_does_not_retry_after_a_gateway_tool_has_run(stream: bool) -> None:
    async def check() -> None:
        down = Fault("overloaded", "down", 503, retry_after=0.01)
        async with Upstream(GATEWAY_CALL, down, GATEWAY_CALL, FINAL_ANSWER) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            async with serving(document, runners={"*": Runner(pay)}) as gateway:
                client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=2)
                with pytest.raises(openai.OpenAIError):
                    answer = await client.chat.completions.create(
                        model="anthropic/m", messages=[{"role": "user", "content": "x?"}], stream=stream
                    )
                    if stream:
                        [_ async for _ in answer]
                await client.close()
        assert ran == ["x"]

    run(check)


def test_a_tool_that_was_not_offered_is_not_run() -> None:
    async def check() -> None:
        async with Upstream(GATEWAY_CALL) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            async with serving(document, runners={"*": Runner(pay)}) as gateway:
                message = await ask(
                    gateway.url,
                    "anthropic",
                    False,
                    [{"role": "user", "content": "x?"}],
                    tools=[CLIENT_TOOL],
                    tool_choice="none",
                )
        assert [call.function.name for call in message.tool_calls or []] == ["look_up"]
        assert ran == []

    run(check)


def test_model_without_tool_support_is_offered_no_gateway_tools() -> None:
    async def check() -> None:
        async with Upstream(FINAL_ANSWER) as upstream:
            models = {"plain/m": {"upstream": "openai_chat", "tools": False}}
            document = {"upstreams": upstream_rows(upstream.url), "models": models}
            async with serving(document, runners={"*": Runner(pay)}) as gateway:
                await ask(gateway.url, "plain", False, [{"role": "user", "content": "x?"}])
            assert upstream.requests[0].request.tools == ()

    run(check)


def test_usage_of_every_turn_is_counted_when_the_answer_fails() -> None:
    async def check() -> None:
        async with Upstream(*[GATEWAY_CALL] * 16) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            async with serving(document, runners={"*": Runner(look_up)}) as gateway:
                with pytest.raises(openai.InternalServerError):
                    await ask(gateway.url, "anthropic", False, [{"role": "user", "content": "x?"}])
        (turn,) = gateway.turns
        assert turn.usage is not None
        assert turn.usage.total == 16 * 15

    run(check)


@toolwire.tool(name="look_up", effect="read")
async def think(name: str) -> str:
    """Take some time."""
    await asyncio.sleep(1.5)
    ran.append(name)
    return "thought"


def test_idle_timeout_does_not_apply_while_a_gateway_tool_runs() -> None:
    async def check() -> None:
        async with Upstream(GATEWAY_CALL, FINAL_ANSWER) as upstream:
            document = {"upstreams": upstream_rows(upstream.url, idle=0.3)}
            async with serving(document, runners={"*": Runner(think)}) as gateway:
                message = await ask(gateway.url, "anthropic", True, [{"role": "user", "content": "x?"}])
        assert message.content == "Let me see. It is 42."
        assert ran == ["x"]

    run_virtual(check())


def count_deliveries() -> int:
    gc.collect()
    return sum(type(one) is StreamDelivery for one in gc.get_objects())


def test_rejected_stream_is_garbage_collected() -> None:
    async def check() -> None:
        calls = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": 7}}]}
        document = {"upstreams": upstream_rows("http://127.0.0.1:9"), "limits": {"ping": 0.05}}
        memory = InMemoryTurns(10, 10_000, 60.0, time.monotonic)
        await memory.save("", ["other"], StoredTurn(()), b"{}")
        async with serving(document, turn_store=memory) as gateway:
            for _ in range(3):
                with pytest.raises(openai.BadRequestError):
                    await ask(gateway.url, "anthropic", True, [{"role": "user", "content": "x?"}, calls])
            await until(lambda: count_deliveries() == 0, 0.3)

    run(check)
