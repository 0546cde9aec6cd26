"""Calls of a streamed response start in the order in which they began, also on wires that interleave them (X1)."""

import asyncio

import pytest

import toolwire
from toolwire import Agent
from toolwire.ir.events import CallDelta, CallEnd, CallStart, ResponseEnd, ResponseStart
from toolwire.ir.response import Stop
from toolwire.net import Answer
from toolwire.testing import ScriptedModel, says


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
