"""Calls inside a text, in the text format `toolformer`: `[Calculator(400 / 1400)] → 0.29`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.parts import ToolCall
from ...ir.tools import Tool
from ...ir.value import Value
from ...text import get

__all__ = ["ARROW", "InlineCall", "call_span", "format_call", "insert_calls", "parse_call"]

ARROW = "→"
_FORMAT = get("toolformer")
_MAX_RESULT = 400  # characters of a result inside a text


class InlineCall(Value, frozen=True):
    """A call with its result at a position of a text. `call` is its text without brackets: `Calculator(8 - 2)`."""

    position: int
    call: str
    result: str


def format_call(call: str | ToolCall, result: str | None = None) -> str:
    """Return a call with its result as text; without `result`, the call alone.

    >>> format_call("Calculator(400 / 1400)", "0.29")
    '[Calculator(400 / 1400)] → 0.29'
    """
    text = _FORMAT.calls.write([call]) if isinstance(call, ToolCall) else f"[{call}]"
    return text if result is None else f"{text} {ARROW} {' '.join(result.split())[:_MAX_RESULT]}"


def parse_call(text: str, tools: Iterable[Tool]) -> ToolCall | None:
    """Return the complete call of a text such as `Calculator(8 - 2)`; None if it is not a call of one of `tools`."""
    calls = _FORMAT.parse(f"[{text}]", list(tools)).calls
    return calls[0] if len(calls) == 1 and calls[0].state == "complete" else None


def call_span(before: str, call: str | ToolCall, result: str | None) -> str:
    """Return the text to insert after `before`. One space separates it from the text on either side."""
    text = format_call(call, result)
    return f"{text} " if not before or before[-1].isspace() else f" {text}"


def insert_calls(text: str, calls: Sequence[InlineCall]) -> str:
    """Insert calls with their results at their positions.

    >>> insert_calls("She needs 6 cups.", [InlineCall(9, "Calculator(8 - 2)", "6")])
    'She needs [Calculator(8 - 2)] → 6 6 cups.'
    """
    pieces, start = [], 0
    for call in sorted(calls, key=lambda one: one.position):
        before = text[start : call.position]
        pieces += [before, call_span(text[: call.position], call.call, call.result)]
        start = call.position
    return "".join([*pieces, text[start:]])
