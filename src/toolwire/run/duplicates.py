"""Replace a result that the conversation already contains by a reference to it, or by its changed lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from ..ir.parts import Text, ToolCall, ToolResult
from ..ir.request import Message
from .results import NOTES_KEY, annotate

__all__ = ["replace_duplicate"]

_MIN_LENGTH = 400  # characters; a reference would not be much shorter
_MAX_COMPARED = 8  # latest results of the same tool that are compared line by line
_MAX_ARGUMENTS = 200
_MAX_CHANGED_SHARE = 4  # a result is near-identical if less than a quarter of it has changed
_REPLACING_NOTES = frozenset({"shortened", "summarised", "duplicate_of"})


def replace_duplicate(call: ToolCall, result: ToolResult, messages: Sequence[Message]) -> ToolResult:
    """Return the result, shortened if an earlier one in `messages` has the same text or almost the same lines."""
    text = result.text
    if len(text) < _MIN_LENGTH or any(not isinstance(part, Text) for part in result.parts):
        return result
    for number, (earlier_call, earlier) in enumerate(_earlier_results(call.name, messages)):
        if number == _MAX_COMPARED:
            break
        note = _describe_difference(text, earlier.text, f"{earlier_call.name}({earlier_call.text[:_MAX_ARGUMENTS]})")
        if note is not None:
            shortened = replace(result, parts=(Text(note),), structured=None)
            return annotate(shortened, duplicate_of=earlier.call_id)
    return result


def _earlier_results(name: str, messages: Sequence[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Yield the results of a tool that the conversation still contains, latest first."""
    results: dict[str, ToolResult] = {}
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, ToolResult):
                results[part.call_id] = part
            elif isinstance(part, ToolCall) and part.name == name:
                found = results.get(part.id)
                if found is not None and not _REPLACING_NOTES.intersection(found.extra.get(NOTES_KEY, {})):
                    yield part, found


def _describe_difference(text: str, earlier: str, label: str) -> str | None:
    """Return a reference for an identical text, the changed lines of a similar one, or None."""
    if text == earlier:
        return f"[The same as the earlier result of {label}]"
    lines, earlier_lines = text.split("\n"), earlier.split("\n")
    first = _count_equal(lines, earlier_lines)
    last = _count_equal(lines[first:][::-1], earlier_lines[first:][::-1])
    changed = "\n".join(lines[first : len(lines) - last])
    note = (
        f"[{len(lines)} lines. The first {first} and the last {last} are those of the earlier result of {label}. "
        f"The lines between them:]\n{changed}"
    )
    return note if len(note) * _MAX_CHANGED_SHARE < len(text) else None


def _count_equal(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
