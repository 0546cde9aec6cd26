"""Retriever-aware rows, as Gorilla trains on: retrieved specifications of tools beside the question.

    for row in add_specifications(examples, index, k=3):
        row.example, row.gold_found

The model learns to judge the specifications: with `gold="retrieved"` that of the right tool may be missing, as it may be
missing in use. The calls to learn stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.parts import Part, Text, ToolCall
from ..ir.request import Message
from ..ir.text import dumps
from ..ir.tools import Tool
from ..ir.value import Value
from .examples import Example, is_result_message

if TYPE_CHECKING:
    from ..retrieve.index import ToolIndex

__all__ = ["GoldMode", "SpecifiedExample", "add_specifications"]

GoldMode: TypeAlias = Literal["retrieved", "kept", "first", "oracle"]
Placement: TypeAlias = Literal["tools", "prompt"]
_GOLD_MODES = ("retrieved", "kept", "first", "oracle")
_INTRODUCTION = "Use this API documentation for reference:"
_MAX_QUERY = 8_000  # characters


class SpecifiedExample(Value, frozen=True):
    """An example with the specifications that it was given, and whether the search found all called tools."""

    example: Example
    gold_found: bool


def add_specifications(
    examples: Iterable[Example],
    index: ToolIndex,
    *,
    k: int = 3,
    gold: GoldMode = "retrieved",
    place: Placement = "tools",
    excluded: frozenset[str] = frozenset(),
) -> Iterator[SpecifiedExample]:
    """Replace the tools of each example by the `k` that a search for its question finds.

    `gold`: "retrieved" changes nothing about the result of the search; "kept" replaces its last tools by the called
    ones that it did not find; "first" puts the called ones first; "oracle" gives only those. `place`: "tools" puts
    declarations into the tools of the example, "prompt" puts them as JSON after the question, with no tools. Tools
    named in `excluded` are not searched: those of the test set, for examples of the training set.
    """
    if k < 1:
        raise ConfigError(f"k must be positive, got {k}")
    if gold not in _GOLD_MODES:
        raise ConfigError(f"unknown gold mode {gold!r}", hint=f"use one of {', '.join(_GOLD_MODES)}")
    allow = (lambda one: one.tool.name not in excluded) if excluded else None
    for example in examples:
        number = _question_index(example)
        if number is None:
            yield SpecifiedExample(example, gold_found=not example.calls)
            continue
        query = example.messages[number].text[:_MAX_QUERY]
        found = [hit.tool for hit in index.search(query, k, allow=allow)] if query.strip() else []
        called = _called_tools(example, index)
        missing = set(called) - {tool.name for tool in found}
        tools = _choose(found, called, k, gold)
        changed = replace(example, tools=tools) if place == "tools" else _into_prompt(example, number, tools)
        yield SpecifiedExample(changed, gold_found=not missing)


def _question_index(example: Example) -> int | None:
    """Return the last user message with text before the first call; the last one of all if there is no call."""
    found = None
    for number, message in enumerate(example.messages):
        if message.role == "user" and not is_result_message(message) and message.text:
            found = number
        if found is not None and any(isinstance(part, ToolCall) for part in message.parts):
            break
    return found


def _called_tools(example: Example, index: ToolIndex) -> dict[str, Tool]:
    """Return the declarations of the called tools, of the example itself or of the index."""
    own = {tool.name: tool for tool in example.tools}
    return {name: own.get(name) or index.find(name) or Tool(name) for name in example.called_names}


def _choose(found: list[Tool], called: dict[str, Tool], k: int, gold: GoldMode) -> tuple[Tool, ...]:
    if gold == "retrieved":
        return tuple(found)
    if gold == "oracle":
        return tuple(called.values())
    others = [tool for tool in found if tool.name not in called]
    if gold == "first":
        return (*called.values(), *others[: max(0, k - len(called))])
    missing = [tool for name, tool in called.items() if all(one.name != name for one in found)]
    room = max(0, k - len(called))
    kept_others = {tool.name for tool in others[:room]}
    kept = [tool for tool in found if tool.name in called or tool.name in kept_others]
    return (*kept, *missing)


def _into_prompt(example: Example, number: int, tools: tuple[Tool, ...]) -> Example:
    """Append the specifications to the question, one JSON object in a line, and remove the tools."""
    lines = [_INTRODUCTION, *(dumps(_specification(tool)) for tool in tools)] if tools else []
    message = example.messages[number]
    text = "\n".join([message.text, *lines])
    others: tuple[Part, ...] = tuple(part for part in message.parts if not isinstance(part, Text))
    changed = Message(message.role, (Text(text), *others), message.extra)
    messages = (*example.messages[:number], changed, *example.messages[number + 1 :])
    return replace(example, messages=messages, tools=())


def _specification(tool: Tool) -> dict[str, object]:
    fields = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {name: value for name, value in fields.items() if value is not None}
