"""Check training examples: order of roles, results of calls, offered tools, arguments, length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Literal, TypeAlias

from ..ir.errors import SchemaError
from ..ir.parts import Reasoning, Text, ToolCall, ToolResult
from ..ir.pointer import join
from ..ir.text import dumps
from ..ir.tools import Tool
from ..ir.value import Value
from ..schema.validation.validator import Validator, validator
from .examples import Example, is_result_message

__all__ = ["ExampleFinding", "check_example"]

MAX_CHARACTERS = 100_000

ExampleRule: TypeAlias = Literal[
    "no answer",
    "role order",
    "empty message",
    "weights",
    "no tools",
    "duplicate tool",
    "unusable schema",
    "tool not offered",
    "invalid arguments",
    "incomplete call",
    "duplicate id",
    "missing result",
    "result without call",
    "too long",
]


class ExampleFinding(Value, frozen=True):
    """A problem of an example. `pointer` refers to the example."""

    rule: ExampleRule
    pointer: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.pointer or '/'}: {self.detail}"


def check_example(example: Example, *, max_characters: int = MAX_CHARACTERS) -> list[ExampleFinding]:
    """Return the problems of an example; an empty list if it is fit for training.

    `max_characters` bounds the content of messages and tools together.
    """
    return [
        *_check_roles(example),
        *_check_weights(example),
        *_check_tools(example),
        *_check_calls(example),
        *_check_results(example),
        *_check_length(example, max_characters),
    ]


def _check_roles(example: Example) -> Iterator[ExampleFinding]:
    turns = [(index, one) for index, one in enumerate(example.messages) if one.role not in ("system", "developer")]
    if not turns or turns[-1][1].role != "assistant":
        yield ExampleFinding("no answer", "/messages", "the last message is not an assistant message")
    if turns and turns[0][1].role != "user":
        yield ExampleFinding("role order", join("messages", turns[0][0]), "the conversation does not start with a user")
    for (_, before), (index, after) in pairwise(turns):
        if before.role == after.role == "assistant":
            yield ExampleFinding("role order", join("messages", index), "two assistant messages in a row")
        elif before.role == after.role and not is_result_message(before):
            yield ExampleFinding("role order", join("messages", index), "two user messages in a row")
    for index, message in enumerate(example.messages):
        if not message.parts:
            yield ExampleFinding("empty message", join("messages", index), f"the {message.role} message is empty")


def _check_weights(example: Example) -> Iterator[ExampleFinding]:
    assistants = sum(message.role == "assistant" for message in example.messages)
    if example.weights and len(example.weights) != assistants:
        detail = f"{len(example.weights)} weights for {assistants} assistant messages"
        yield ExampleFinding("weights", "/weights", detail)
    elif example.weights and not any(example.weights):
        yield ExampleFinding("weights", "/weights", "all weights are 0: there is nothing to learn")


def _check_tools(example: Example) -> Iterator[ExampleFinding]:
    seen: set[tuple[str | None, str]] = set()
    for index, tool in enumerate(example.tools):
        if (tool.namespace, tool.name) in seen:
            yield ExampleFinding("duplicate tool", join("tools", index), f"{tool.name} is declared twice")
        seen.add((tool.namespace, tool.name))
    if not example.tools and example.calls:
        yield ExampleFinding("no tools", "/tools", "there are calls, but no tools")


def _check_calls(example: Example) -> Iterator[ExampleFinding]:
    tools = {(tool.namespace, tool.name): (index, tool) for index, tool in enumerate(example.tools)}
    ids: set[str] = set()
    for pointer, call in _parts(example, ToolCall):
        assert isinstance(call, ToolCall)
        if call.id in ids:
            yield ExampleFinding("duplicate id", pointer, f"another call has the id {call.id!r}")
        ids.add(call.id)
        if call.state != "complete":
            yield ExampleFinding("incomplete call", pointer, f"the call of {call.name} is {call.state}")
        elif example.tools:
            yield from _check_arguments(call, pointer, tools)


def _check_arguments(
    call: ToolCall, pointer: str, tools: Mapping[tuple[str | None, str], tuple[int, Tool]]
) -> Iterator[ExampleFinding]:
    found = tools.get((call.namespace, call.name))
    if found is None:
        yield ExampleFinding("tool not offered", pointer, f"{call.name} is not among the tools")
        return
    index, tool = found
    if tool.input_schema is None or call.arguments is None:
        return
    try:
        check: Validator = validator(tool.input_schema)
    except SchemaError as error:
        yield ExampleFinding("unusable schema", join("tools", index, "input_schema"), str(error))
        return
    for problem in check.problems(call.arguments)[:3]:
        yield ExampleFinding("invalid arguments", f"{pointer}/arguments{problem.path}", problem.message)


def _parts(example: Example, kind: type[ToolCall | ToolResult]) -> Iterator[tuple[str, ToolCall | ToolResult]]:
    for index, message in enumerate(example.messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, kind):
                yield join("messages", index, "parts", number), part


def _check_results(example: Example) -> Iterator[ExampleFinding]:
    """Check that the results after each message with calls are exactly its own; the last message may have none."""
    last = len(example.messages) - 1
    for index, message in enumerate(example.messages):
        calls = {part.id for part in message.parts if isinstance(part, ToolCall)}
        if is_result_message(message):
            before = example.messages[index - 1].parts if index else ()
            known = {part.id for part in before if isinstance(part, ToolCall)}
            yield from _check_unexpected(example, index, known)
        if calls and index < last:
            answered = {part.call_id for part in example.messages[index + 1].parts if isinstance(part, ToolResult)}
            for missing in sorted(calls - answered):
                yield ExampleFinding("missing result", join("messages", index), f"no result for the call {missing!r}")


def _check_unexpected(example: Example, index: int, known: set[str]) -> Iterator[ExampleFinding]:
    for number, part in enumerate(example.messages[index].parts):
        if isinstance(part, ToolResult):
            if part.call_id not in known:
                pointer = join("messages", index, "parts", number)
                yield ExampleFinding("result without call", pointer, f"no call before it has the id {part.call_id!r}")
            known.discard(part.call_id)


def _check_length(example: Example, most: int) -> Iterator[ExampleFinding]:
    size = sum(_size(part) for message in example.messages for part in message.parts)
    size += sum(len(tool.name) + len(tool.description or "") + len(dumps(tool.input_schema)) for tool in example.tools)
    if size > most:
        yield ExampleFinding("too long", "", f"{size} characters, at most {most}")


def _size(part: object) -> int:
    if isinstance(part, (Text, Reasoning, ToolResult)):
        return len(part.text)
    return len(part.name) + len(part.text) if isinstance(part, ToolCall) else 0
