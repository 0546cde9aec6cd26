"""Check and select training examples.

A check covers the order of roles, the results of calls, offered tools, arguments and length. A selection has no
duplicates, is balanced by tool, and is split into train and test.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ..ir.errors import ConfigError, SchemaError
from ..ir.parts import Reasoning, Text, ToolCall, ToolResult
from ..ir.pointer import join
from ..ir.text import dumps, to_bytes
from ..ir.tools import Tool
from ..ir.value import Value
from ..schema.validation.validator import Validator, validator
from .examples import Example, is_result_message

# about 25,000 tokens, more than the context in which examples are trained (`TuneSettings.max_length`)
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
    """Yield findings for empty messages and for turns that do not alternate from a user to an assistant.

    Results are user messages, and may be followed by another user message.
    """
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
    """Yield findings for duplicate ids, incomplete calls and, if tools are declared, unsuitable arguments."""
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
    """Yield findings for an undeclared tool, an unusable schema, and the first three problems of the arguments."""
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
    """Yield findings unless the results after each message with calls are exactly its own.

    The last message may have calls without results.
    """
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


# Select training examples: without duplicates, balanced by tool, and split into train and test.
#
# All choices are by hashes with a seed: the same examples give the same selection on every machine and in any order.


_SEPARATORS = re.compile(r"[\W_]+")
NO_CALL = "(no call)"
"""The name that examples without calls are counted under."""


class ExampleKey(Value, frozen=True):
    """The identity of an example: `exact` of all its content, `near` of its normalised questions and called tools."""

    exact: bytes
    near: bytes
    called: tuple[str, ...]


def key_of(example: Example) -> ExampleKey:
    """Return the key. Ids do not count, nor does the place that the example came from."""
    messages = [[message.role, [_content(part) for part in message.parts]] for message in example.messages]
    tools = [[tool.namespace, tool.name, tool.description, tool.input_schema] for tool in example.tools]
    exact = to_bytes([messages, tools, list(example.weights), example.parallel], sort_keys=True)
    near = to_bytes([normal_question(example), example.called_names])
    return ExampleKey(_digest(exact), _digest(near), example.called_names)


def normal_question(example: Example) -> str:
    """Return the texts of the user in lower case, without punctuation and repeated spaces."""
    return _SEPARATORS.sub(" ", example.user_text.casefold()).strip()


def _content(part: object) -> object:
    if isinstance(part, ToolCall):
        return ["call", part.namespace, part.name, part.arguments if part.arguments is not None else part.raw]
    if isinstance(part, ToolResult):
        return ["result", part.name, part.text, part.is_error]
    return ["text", part.text] if isinstance(part, Text) else msgspec.to_builtins(part)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _chance(seed: int, data: bytes) -> float:
    """Return a number from 0 to 1 that depends only on the seed and the data."""
    digest = hashlib.blake2b(data, digest_size=8, key=str(seed).encode()[:64]).digest()
    return int.from_bytes(digest) / 2**64


def tool_counts(keys: Iterable[ExampleKey]) -> dict[str, int]:
    """Count the examples that call each tool, most frequent first; those without calls are `(no call)`."""
    counts = Counter(name for key in keys for name in (key.called or (NO_CALL,)))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def balance(
    keys: Mapping[int, ExampleKey], *, max_per_tool: int | None = None, min_per_tool: int | None = None, seed: int = 0
) -> dict[int, str]:
    """Return the examples to leave out, by their numbers, with the reasons.

    An example that calls a tool with fewer than `min_per_tool` examples is left out. Of a tool with more than
    `max_per_tool`, a random part is kept; an example stays if one of its tools still needs it. Raises `ConfigError` for
    a bound below 1.
    """
    for name, bound in (("max_per_tool", max_per_tool), ("min_per_tool", min_per_tool)):
        if bound is not None and bound < 1:
            raise ConfigError(f"{name} must be positive, got {bound}")
    left_out: dict[int, str] = {}
    if min_per_tool is not None:
        counts = tool_counts(keys.values())
        for number, key in keys.items():
            rare = next((name for name in key.called if counts[name] < min_per_tool), None)
            if rare is not None:
                left_out[number] = f"a tool has fewer than {min_per_tool} examples"
    if max_per_tool is not None:
        kept: Counter[str] = Counter()
        remaining = [number for number in keys if number not in left_out]
        for number in sorted(remaining, key=lambda number: (_chance(seed, keys[number].exact), number)):
            names = keys[number].called or (NO_CALL,)
            if all(kept[name] >= max_per_tool for name in names):
                left_out[number] = f"its tools have {max_per_tool} other examples"
            else:
                kept.update(names)
    return left_out


def hold_out_tools(names: Iterable[str], share: float, seed: int = 0) -> frozenset[str]:
    """Choose the tools that only the test set may contain: a share of them, at least one, and not all.

    Raise ConfigError for fewer than two tools.
    """
    _check_share(share)
    known = sorted(set(names))
    if len(known) < 2:
        raise ConfigError(f"a split by tool needs at least 2 called tools, got {len(known)}", hint="split by example")
    count = min(len(known) - 1, max(1, math.floor(len(known) * share + 0.5)))
    ranked: Sequence[str] = sorted(known, key=lambda name: (_chance(seed, name.encode()), name))
    return frozenset(ranked[:count])


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ConfigError(f"the share of the test set must be between 0 and 1, got {share}")


def is_held_out(key: ExampleKey, share: float, seed: int = 0) -> bool:
    """Return whether an example belongs to the test set of a split by example. Near-duplicates stay together."""
    _check_share(share)
    return _chance(seed, key.near) < share


def hide_tools(example: Example, names: frozenset[str]) -> Example:
    """Return the example without the declarations of these tools, so that the training set does not contain them."""
    tools = tuple(tool for tool in example.tools if tool.name not in names)
    return example if len(tools) == len(example.tools) else replace(example, tools=tools)
