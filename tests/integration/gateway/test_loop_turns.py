"""The gateway answers a second client while an expensive request of a first one is in progress.

What keeps a client waiting is the length of one turn of the event loop and the number of turns until its answer. Both are
counted, in calls of Python functions and in turns, because times depend on the machine.
"""

from __future__ import annotations

import asyncio
import sys

import pytest
from gateway.hostile import TEXT_ANSWER, ask, body_of, gateway_to, path_of, post, run

from toolwire import Message, Request, Response, Text, Tool, ToolCall
from toolwire.ir.response import Stop, Usage

MOST_CALLS = 1_000_000
"""Calls of functions in one turn: about three tenths of a second."""
MOST_TURNS = 300


class Turns:
    """Counts the turns of the running event loop, and the calls in the longest one."""

    def __init__(self) -> None:
        self.count = self.longest = self._calls = 0

    async def __aenter__(self) -> Turns:
        self._task = asyncio.ensure_future(self._tick())
        sys.setprofile(self._count_call)
        return self

    async def __aexit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._task.cancel()

    def _count_call(self, frame: object, event: str, argument: object) -> None:
        self._calls += 1

    async def _tick(self) -> None:
        while True:
            self._calls = 0
            await asyncio.sleep(0)
            self.count += 1
            self.longest = max(self.longest, self._calls)


def record(**properties):
    return {"type": "object", "properties": properties}


def tool_request(*schemas):
    tools = tuple(Tool(f"t{number}", "", schema) for number, schema in enumerate(schemas))
    return body_of("openai_chat", Request(messages=(Message("user", (Text("hi"),)),), tools=tools), "m")


def multiplied_unions(n):
    inner = [{"oneOf": [record(**{f"q{i}_{j}": {"type": "integer"}}) for j in range(3)]} for i in range(n)]
    return {**record(), "oneOf": [record(**{f"p{i}": {"type": "string"}}) for i in range(n)], "allOf": inner}


ATTACKS = {
    "Z1: allOf of unions, 3 KB": lambda: tool_request(multiplied_unions(10)),
    "Z1: allOf of unions, 60 KB": lambda: tool_request(multiplied_unions(160)),
    "Z1: twenty tools": lambda: tool_request(*[multiplied_unions(6)] * 20),
    "Z2: backtracking pattern": lambda: tool_request(record(city={"type": "string", "pattern": "^(a+)+$"})),
    "Z3: number too large at the end of 4 MB": lambda: b'{"model": "m", "x": [' + b"1," * 2_000_000 + b"1e400]}",
    "Z3: bad byte at the end of 4 MB": lambda: b'{"model": "m", "x": "' + b"a" * 4_000_000 + b'\xff"}',
    "Z4: enum of 3,000 objects": lambda: tool_request(record(x={"enum": [{"a": n} for n in range(3_000)]})),
}
CALL = Response(parts=(ToolCall("c1", "t0", {"city": "a" * 40 + "!"}),), stop=Stop("tool_calls"), usage=Usage(12, 9))


@pytest.mark.one_in(5)
@pytest.mark.finding("Z1", "Z2", "Z3", "Z4")
@pytest.mark.parametrize("attack", ATTACKS)
@run
async def test_second_client_is_answered_within_a_bounded_number_of_turns(attack):
    body = ATTACKS[attack]()
    models = {"m": {"upstream": "anthropic", "repair": "aggressive"}}
    async with gateway_to(TEXT_ANSWER, CALL, CALL, document={"models": models}) as (gateway, _):
        assert (await ask(gateway, "openai_chat")).status == 200  # everything is imported and connected
        async with Turns() as turns:
            first = asyncio.ensure_future(post(gateway, path_of("openai_chat"), body))
            await asyncio.sleep(0)
            before = turns.count
            second = await ask(gateway, "openai_chat")
            waited = turns.count - before
            answer = await first
    assert second.status == 200
    assert answer.status in (200, 400)
    assert waited <= MOST_TURNS
    assert turns.longest <= MOST_CALLS
