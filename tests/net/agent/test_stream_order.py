"""Calls of a streamed response start in the order in which they began, also on wires that interleave them (X1)."""

import asyncio

import pytest

import toolwire
from toolwire import Agent, ModelClient, ToolCall
from toolwire.ir.events import CallDelta, CallEnd, CallStart, ResponseEnd, ResponseStart
from toolwire.ir.response import Stop
from toolwire.net import Answer
from toolwire.run import Budget
from toolwire.testing import ScriptedModel, Upstream, says


class Interleaved:
    """A model that sends the arguments of a read before those of the write that precedes it."""

    def __init__(self) -> None:
        self._last = ScriptedModel([says("done")])
        self._asked = 0

    async def ask(self, request):
        raise AssertionError("only streams are tested")

    async def stream(self, request):
        self._asked += 1
        if self._asked > 1:
            async for event in self._last.stream(request):
                yield event
            return
        yield ResponseStart(id="r", model="m")
        yield CallStart(0, "w", "add_note")
        yield CallStart(1, "r", "list_notes")
        yield CallDelta(1, rb"{\"prefix\": \"m\"}")
        yield CallEnd(1, {"prefix": "m"}, '{"prefix": "m"}')
        await asyncio.sleep(0.05)
        yield CallDelta(0, rb"{\"text\": \"milk\"}")
        yield CallEnd(0, {"text": "milk"}, '{"text": "milk"}')
        yield ResponseEnd((Stop("tool_calls"),))


@pytest.mark.finding("X1")
@pytest.mark.parametrize("first_argument", [False, True])
def test_a_read_that_ends_before_an_earlier_write_does_not_start_before_it(first_argument, virtual_time):
    notes = []

    @toolwire.tool
    async def add_note(text: str) -> str:
        notes.append(text)
        return "added"

    @toolwire.tool(effect="read", first_argument=first_argument)
    async def list_notes(prefix: str) -> str:
        return ", ".join(note for note in notes if note.startswith(prefix)) or "none"

    async def ask():
        items = [item async for item in Agent(Interleaved(), [add_note, list_notes]).stream("go")]
        assert isinstance(items[-1], Answer)
        return [item.text for item in items if isinstance(item, toolwire.ToolResult)]

    assert asyncio.run(ask()) == ["added", "milk"]


@pytest.mark.parametrize("first_argument", [False, True])
@pytest.mark.parametrize(
    ("budget", "names"),
    [(Budget(calls=2), ["0", "1"]), (Budget(calls=None), [*"01234567"])],
)
def test_stream_does_not_start_calls_beyond_the_budget(first_argument, budget, names):
    invoked = []

    @toolwire.tool(effect="read", first_argument=first_argument)
    async def look(city: str) -> str:
        invoked.append(city)
        return "sun"

    async def ask():
        calls = [ToolCall(str(number), "look", {"city": str(number)}) for number in range(8)]
        async with (
            Upstream(says(*calls), says("Done."), delta=5) as upstream,
            ModelClient("openai/gpt-5.6", base_url=upstream.url, key="k") as client,
        ):
            return [item async for item in Agent(client, [look], budget=budget).stream("go")]

    items = asyncio.run(ask())
    assert sorted(invoked) == names
    assert [item.id for item in items if isinstance(item, ToolCall)] == [*"01234567"]
    assert items[-1].finished == (budget.calls is None)


def test_stream_does_not_start_a_call_that_was_repeated_too_often():
    invoked = []

    @toolwire.tool(effect="read")
    async def look(city: str) -> str:
        invoked.append(city)
        return "sun"

    async def ask():
        lines = [says(ToolCall(str(number), "look", {"city": "Oslo"})) for number in range(4)]
        async with (
            Upstream(*lines, delta=5) as upstream,
            ModelClient("openai/gpt-5.6", base_url=upstream.url, key="k") as client,
        ):
            agent = Agent(client, [look], budget=Budget(same_call=2))
            return [item async for item in agent.stream("go")][-1]

    assert asyncio.run(ask()).reason == "the model repeated the same call more than 2 times"
    assert invoked == ["Oslo", "Oslo"]
