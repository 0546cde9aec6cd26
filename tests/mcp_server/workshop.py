"""Tools for the tests of the server. What a write does is a line in the file that EFFECTS names."""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

import toolwire
from toolwire.mcp import current_exchange, prompt, resource
from toolwire.run import CallContext

read = toolwire.tool(effect="read")


@dataclass
class Sum:
    total: int


@read
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@read
def total(a: int, b: int) -> Sum:
    """Add two numbers, with a name for the result."""
    return Sum(a + b)


@read
def broken_promise() -> Sum:
    """Promises a sum and gives none."""
    return {"sum": 1}


def _effect(words: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write(words + "\n")


@toolwire.tool
def pay(amount: int, seconds: float = 0.0) -> str:
    """Pay, slowly if need be."""
    _effect(f"pay {amount}")
    time.sleep(seconds)
    return f"paid {amount}"


@read
async def nap(seconds: float) -> str:
    """Sleep, and tell how far it is."""
    exchange = current_exchange()
    exchange.report(1, 2, "half asleep")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _effect("woken")
        raise
    return "rested"


@read
def walk(steps: int, context: CallContext) -> str:
    """Walk, in a thread, and report each step."""
    context.report_progress("setting out")
    for step in range(steps):
        context.report_progress(f"step {step + 1}", (step + 1) / steps)
    return "arrived"


@read
def chatty() -> str:
    """Prints."""
    print("this is not a message")
    return "quiet"


@toolwire.tool
async def order(item: str) -> str:
    """Order something, after asking which colour."""
    answer = await current_exchange().elicit(
        "Which colour?", {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    )
    if answer["action"] != "accept":
        return "nothing was ordered"
    _effect(f"order {item} {answer['content']['colour']}")
    return f"ordered a {answer['content']['colour']} {item}"


@read
async def note(day: str) -> str:
    """Say that the notes of a day have changed."""
    current_exchange().listeners.updated(f"notes://{day}")
    return "noted"


@resource("notes://{day}", media_type="text/plain")
def notes(day: str, context: CallContext) -> str:
    """What was noted on a day."""
    context.report_progress("reading")
    return f"notes of {day}"


@prompt
def review(code: str) -> str:
    """Review code."""
    return f"Review this: {code}"
