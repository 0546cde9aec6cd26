"""Reduce an example to the content that most training formats can express: text, reasoning, calls and text results.

Everything else is removed or rewritten here, and reported as a loss. The calls never change: an example whose calls
cannot be expressed raises EncodeError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...ir.errors import EncodeError
from ...ir.losses import Losses
from ...ir.parts import Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, part_label
from ...ir.request import Message
from ...ir.tools import Tool
from ...ir.value import Value
from ..examples import Example, is_result_message

__all__ = ["Carried", "plain_example", "results_in_call_order"]


class Carried(Value, frozen=True):
    """The parts of an example that a format has a place for."""

    ids: bool = True  # of calls
    reasoning: bool = True
    text_with_calls: bool = True  # in one assistant message
    parallel: bool = False  # whether parallel calls are allowed
    weights: bool = False  # of assistant messages
    late_system: bool = True  # system messages after the start
    nulls: bool = True  # null as the value of an argument


def plain_example(example: Example, carried: Carried, format_name: str) -> tuple[Example, Losses]:
    """Return the example as a format can express it, and the losses. Pointers refer to the given example."""
    losses = Losses()
    messages = [
        _plain_message(message, f"/messages/{index}", carried, losses) for index, message in enumerate(example.messages)
    ]
    if not carried.late_system:
        messages = _one_system_message(messages, losses)
    if example.parallel is not None and not carried.parallel:
        losses.add("/parallel", "parallel", "dropped", f"{format_name} has no field for it", "info")
    if 0 in example.weights and not carried.weights:
        detail = f"{format_name} has no weights: the model learns from all assistant messages"
        losses.add("/weights", "weight", "dropped", detail, "warning")
    if not carried.ids and example.calls:
        losses.add("/messages", "call id", "dropped", f"{format_name} has no ids: results are matched by order", "info")
    for format_only in example.extra:
        losses.add(f"/extra/{format_only}", "extra", "dropped", f"only {format_only} has these fields", "info")
    tools = tuple(tool for index, tool in enumerate(example.tools) if _is_writable(tool, f"/tools/{index}", losses))
    return replace(example, messages=tuple(messages), tools=tools, extra={}), losses


def _is_writable(tool: Tool, path: str, losses: Losses) -> bool:
    if tool.kind == "function":
        return True
    losses.add(path, f"{tool.kind} tool", "dropped", "training formats have only functions", "error")
    return False


def _one_system_message(messages: list[Message], losses: Losses) -> list[Message]:
    """Join the system messages at the start; EncodeError for one in another place."""
    lead = next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))
    for index, message in enumerate(messages[lead:], lead):
        if message.role == "system":
            raise EncodeError(
                "a system message after the start cannot be written", pointer=f"/messages/{index}", hint="put it first"
            )
    if lead < 2:
        return messages
    losses.add("/messages/1", "message boundary", "rewritten", "system messages are joined", "info")
    text = "\n\n".join(message.text for message in messages[:lead])
    return [Message("system", (Text(text),)), *messages[lead:]]


def _plain_message(message: Message, path: str, carried: Carried, losses: Losses) -> Message:
    role = message.role
    if role == "developer":
        losses.add(f"{path}/role", "developer role", "rewritten", "written as a system message", "info")
        role = "system"
    for key in message.extra:
        losses.add(f"{path}/extra/{key}", "extra", "dropped", "the format has no such fields")
    parts: list[Part] = []
    for number, part in enumerate(message.parts):
        written = _plain_part(part, f"{path}/parts/{number}", carried, losses)
        if written is not None:
            parts.append(written)
    if role == "assistant" and message.parts:
        parts = _text_before_calls(parts, path, carried, losses)
        if not parts:
            raise EncodeError(
                "nothing of an assistant message can be written", pointer=path, hint="remove this example"
            )
    return Message(role, tuple(parts))


def _text_before_calls(parts: Sequence[Part], path: str, carried: Carried, losses: Losses) -> list[Part]:
    """Return reasoning, text and calls, in this order, each kind of text as one part."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    thoughts = "\n\n".join(part.text for part in parts if isinstance(part, Reasoning))
    text = "".join(part.text for part in parts if isinstance(part, Text))
    if calls and text:
        if not carried.text_with_calls:
            losses.add(path, "text beside calls", "dropped", "a message with calls has no text here", "warning")
            text = ""
        elif isinstance(parts[-1], Text):
            losses.add(path, "order of text and calls", "moved", "all text is before all calls here")
    rest: list[Part] = [Text(text)] if text else []
    return [*([Reasoning(thoughts)] if thoughts else []), *rest, *calls]


def _plain_part(part: Part, path: str, carried: Carried, losses: Losses) -> Part | None:
    match part:
        case Text():
            _report_extra(part.extra, path, losses)
            return Text(part.text)
        case Reasoning():
            if not carried.reasoning:
                losses.add(path, "reasoning", "dropped", "the format has no place for reasoning", "warning")
                return None
            return Reasoning(part.text)
        case Refusal():
            losses.add(path, "refusal", "rewritten", "written as text", "info")
            return Text(part.text)
        case ToolCall():
            return _plain_call(part, path, carried, losses)
        case ToolResult():
            return _plain_result(part, path, losses)
        case Media() | Opaque():
            losses.add(path, part_label(part), "dropped", "the format has only text", "error")
            return None


def _report_extra(extra: Mapping[str, object], path: str, losses: Losses) -> None:
    for key in extra:
        losses.add(f"{path}/extra/{key}", "extra", "dropped", "the format has no such fields")


def _plain_call(call: ToolCall, path: str, carried: Carried, losses: Losses) -> ToolCall:
    if call.state != "complete" or (call.kind == "function" and call.arguments is None):
        raise EncodeError(f"a call of {call.name} is {call.state}", pointer=path, hint="remove this example")
    if call.kind != "function":
        raise EncodeError(f"a {call.kind} call cannot be written", pointer=path, hint="remove this example")
    if call.namespace is not None:
        losses.add(f"{path}/namespace", "namespace", "dropped", "the format has no namespaces")
    if not carried.nulls and any(value is None for value in (call.arguments or {}).values()):
        detail = "trainers that load objects into columns read null as absent"
        losses.add(f"{path}/arguments", "null argument", "weakened", detail)
    _report_extra(call.extra, path, losses)
    return ToolCall(call.id, call.name, call.arguments)


def _plain_result(result: ToolResult, path: str, losses: Losses) -> ToolResult:
    if result.is_error:
        losses.add(f"{path}/is_error", "is_error", "dropped", "results have no error flag here", "warning")
    if result.structured is not None:
        losses.add(f"{path}/structured", "structured result", "rewritten", "written as JSON text", "info")
    for number, part in enumerate(result.parts):
        if not isinstance(part, Text):
            losses.add(f"{path}/parts/{number}", part_label(part), "dropped", "results have only text here", "error")
    _report_extra(result.extra, path, losses)
    return ToolResult(result.call_id, result.name, (Text(result.text),))


def results_in_call_order(example: Example, index: int, losses: Losses) -> list[ToolResult]:
    """Return the results in the message at `index` in the order of their calls, for formats without ids.

    EncodeError if the message does not have exactly one result for each call before it.
    """
    pointer = f"/messages/{index}"
    before = example.messages[index - 1] if index else None
    calls = [part.id for part in before.parts if isinstance(part, ToolCall)] if before is not None else []
    found = [part for part in example.messages[index].parts if isinstance(part, ToolResult)]
    by_id = {result.call_id: result for result in found}
    if len(by_id) != len(found) or len(set(calls)) != len(calls) or by_id.keys() != set(calls):
        raise EncodeError(
            f"{len(found)} results for {len(calls)} calls cannot be matched without ids",
            pointer=pointer,
            hint="remove this example, or choose a format with ids",
        )
    ordered = [by_id[call_id] for call_id in calls]
    if ordered != found:
        losses.add(pointer, "order of results", "moved", "results are in the order of their calls", "info")
    return ordered


def require_learnable(example: Example) -> None:
    """Raise EncodeError for an example that does not end with an assistant message."""
    last = example.messages[-1] if example.messages else None
    if last is None or last.role != "assistant":
        kind = "nothing" if last is None else "a result" if is_result_message(last) else f"a {last.role} message"
        raise EncodeError(
            f"the conversation ends with {kind}", pointer="/messages", hint="end it with an assistant message"
        )
