"""Training examples: a conversation with its tools, as canonical values that every training format can be made from.

A training format converts the rows of a file to examples, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Extra, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.request import Message
from ..ir.tools import Tool
from ..ir.value import Value


class Example(Value, frozen=True):
    """A conversation to learn from. Build one with `make_example`, so that equal conversations are equal values.

    System messages come first. The results of the calls of an assistant message are in one user message after it, and
    that message contains nothing else. `weights` has a number for each assistant message: 1 if the model learns from it,
    0 if not; empty if the model learns from all of them. `parallel` is None if unknown. `id` and `source` identify the
    conversation in its origin. `extra` has fields that only one training format knows, by the name of the format.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    parallel: bool | None = None
    weights: tuple[int, ...] = ()
    id: str = ""
    source: str = ""
    extra: Extra = {}

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls, in order."""
        return tuple(part for message in self.messages for part in message.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """All results, in order."""
        return tuple(part for message in self.messages for part in message.parts if isinstance(part, ToolResult))

    @property
    def called_names(self) -> tuple[str, ...]:
        """The names of the called tools without repetition, in the order of their first calls."""
        return tuple(dict.fromkeys(call.name for call in self.calls))

    @property
    def user_text(self) -> str:
        """The texts of the user messages, one per line."""
        return "\n".join(message.text for message in self.messages if message.role == "user" and message.text)

    def weight_of(self, index: int) -> int:
        """Return 1 if the model learns from the message at `index`, else 0; always 0 for roles other than assistant."""
        if self.messages[index].role != "assistant":
            return 0
        if not self.weights:
            return 1
        return self.weights[sum(message.role == "assistant" for message in self.messages[:index])]


def make_example(
    messages: Iterable[Message],
    tools: Iterable[Tool] = (),
    *,
    parallel: bool | None = None,
    weights: Sequence[int] = (),
    id: str = "",  # noqa: A002
    source: str = "",
    extra: Extra | None = None,
) -> Example:
    """Build an example in its normal form.

    The normal form has no provider signatures, no prompt-cache marks and no record of how a wire spelled a value. A call
    without an id gets one, and so does its result. The argument text is kept only if it is not an object in JSON.
    """
    found = _fill_ids(_separate_results(_normal_messages(messages)))
    learned = tuple(weights)
    if all(learned):
        learned = ()
    return Example(
        _system_first(found),
        tuple(replace(tool, cache=None, extra=_meaning(tool.extra)) for tool in tools),
        parallel,
        learned,
        id,
        source,
        {} if extra is None else extra,
    )


def _normal_messages(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages with normal parts, adjacent texts joined and empty texts removed."""
    for message in messages:
        parts: list[Part] = []
        for part in map(_normal_part, message.parts):
            last = parts[-1] if parts else None
            if isinstance(part, Text) and isinstance(last, Text) and not part.extra and not last.extra:
                parts[-1] = Text(last.text + part.text)
            elif not isinstance(part, Text) or part.text or part.extra:
                parts.append(part)
        yield Message(message.role, tuple(parts), _meaning(message.extra))


def _normal_part(part: Part) -> Part:
    """Return a part without fields that do not change its meaning.

    Removed are raw arguments of a parsed call, cache marks and artefacts.
    """
    match part:
        case Text():
            return Text(part.text, extra=_meaning(part.extra))
        case Reasoning():
            return Reasoning(part.joined_text, extra=_meaning(part.extra))
        case ToolCall():
            raw = None if part.state == "complete" and part.arguments is not None else part.raw
            return replace(part, raw=raw, cache=None, artefacts=(), extra=_meaning(part.extra))
        case ToolResult():
            inner = tuple(one if isinstance(one, Opaque) else _normal_inner(one) for one in part.parts)
            return replace(part, parts=inner, cache=None, extra=_meaning(part.extra))
        case Media():
            return _normal_inner(part)
        case Refusal():
            return Refusal(part.text, _meaning(part.extra))
        case Opaque():
            return part


def _normal_inner(part: Text | Media) -> Text | Media:
    if isinstance(part, Text):
        return Text(part.text, extra=_meaning(part.extra))
    return replace(part, cache=None, extra=_meaning(part.extra))


def _meaning(extra: Extra) -> Extra:
    """Return the entries of `extra` that carry meaning: those whose key does not end with `~`."""
    return {key: value for key, value in extra.items() if not key.endswith("~") and value}


def _separate_results(messages: Iterable[Message]) -> list[Message]:
    """Give results a message of their own, and join the results of consecutive messages."""
    separated: list[Message] = []
    for message in messages:
        results = tuple(part for part in message.parts if isinstance(part, ToolResult))
        if not results or message.role == "assistant":
            separated.append(message)
            continue
        if separated and is_result_message(separated[-1]):
            separated[-1] = Message("user", (*separated[-1].parts, *results))
        else:
            separated.append(Message("user", results))
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        if others:
            separated.append(Message(message.role, others, message.extra))
    return separated


def is_result_message(message: Message) -> bool:
    """Return whether a message consists of results."""
    return message.role == "user" and bool(message.parts) and isinstance(message.parts[0], ToolResult)


def _fill_ids(messages: list[Message]) -> list[Message]:
    """Give calls without an id one, and results the ids and names of their calls; without ids they match by order."""
    taken = {part.id for message in messages for part in message.parts if isinstance(part, ToolCall)}
    names: dict[str, str] = {}
    waiting: dict[str, None] = {}
    filled: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                part = part if part.id else replace(part, id=_new_id(taken))
                names[part.id] = part.name
                waiting[part.id] = None
            elif isinstance(part, ToolResult):
                part = _name_result(part, names, waiting)
            parts.append(part)
        filled.append(Message(message.role, tuple(parts), message.extra))
    return filled


def _new_id(taken: set[str]) -> str:
    number = len(taken)
    while (name := f"call_{number}") in taken:
        number += 1
    taken.add(name)
    return name


def _name_result(result: ToolResult, names: dict[str, str], waiting: dict[str, None]) -> ToolResult:
    call_id = result.call_id or next((one for one in waiting if result.name in (None, names[one])), "")
    waiting.pop(call_id, None)
    return replace(result, call_id=call_id, name=names.get(call_id, result.name))


def _system_first(messages: list[Message]) -> tuple[Message, ...]:
    """Join leading system messages into one; messages elsewhere keep their place."""
    lead = 0
    while lead < len(messages) and messages[lead].role == "system":
        lead += 1
    if lead < 2:
        return tuple(messages)
    parts = tuple(part for message in messages[:lead] for part in message.parts)
    if not all(isinstance(part, Text) and not part.extra for part in parts):
        return tuple(messages)
    text = "\n\n".join(message.text for message in messages[:lead])
    return (Message("system", (Text(text),)), *messages[lead:])


class EncodedRow(NamedTuple):
    """A row, and the parts of the example that it does not contain."""

    row: Object
    losses: Losses


class TrainingFormat(Value, frozen=True, kw_only=True, eq=False):
    """One training format.

    `decode` raises ProtocolError with a pointer into the row. `encode` raises EncodeError for an example that the format
    cannot express without changing its calls; every other difference is a loss. It is None for a format that is only
    read. `matches` returns how well a row matches (0: not at all).
    """

    name: str
    title: str
    decode: Callable[[Object], Example]
    encode: Callable[[Example], EncodedRow] | None
    matches: Callable[[Object], int]
    settings: str = ""  # how the trainer is configured for these files
