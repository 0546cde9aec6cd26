"""Parts that training formats share: plain messages, the order of turns, and rows of Chat Completions.

An example is reduced to the content that most formats can express: text, reasoning, calls and text results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, part_label
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message
from ...ir.text import dumps
from ...ir.tools import Tool
from ...ir.value import Value
from ...stream.strict import parse
from ...wire.fields import decode_list, read_boolean, read_string, require_object, type_error
from ...wire.openai_chat.message_writer import write_message
from ...wire.openai_chat.messages import read_message
from ...wire.openai_chat.tools import read_tool, write_tool
from ..examples import Example, is_result_message, make_example

# Reduce an example to the content that most training formats can express: text, reasoning, calls and text results.
#
# Everything else is removed or rewritten here, and reported as a loss. The calls never change: an example whose calls
# cannot be expressed raises EncodeError.


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
    """Return a message with the format's roles and parts, and report losses; EncodeError if an answer becomes empty."""
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
    """Return a part as the format can express it, or None if it is dropped; report both as losses."""
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
    """Return id, name and arguments, and report losses; EncodeError for an incomplete call or another kind."""
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
    """Return a result as text, and report the error flag, structured content and media as losses."""
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

    EncodeError if the message does not have exactly one result for each call before it. A changed order is a loss.
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


def read_turns(row: Object) -> list[tuple[str, str]]:
    """Read the turns of ShareGPT: the speaker and the text of each. Raise ProtocolError if there are none."""
    turns = decode_list(row, "conversations", _read_turn)
    if not turns:
        raise ProtocolError("'conversations' is missing or empty", pointer="/conversations")
    return turns


def _read_turn(raw: JSON) -> tuple[str, str]:
    turn = require_object(raw)
    return read_string(turn, "from"), read_string(turn, "value")


# Rows with the messages and tools of Chat Completions, which several training formats share.


_WIRE = "openai_chat"
_FORM = f"{_WIRE}~"


def decode_chat(row: Object, weight_field: str = "weight") -> Example:
    """Decode `messages`, `tools` (or the deprecated `functions`) and `parallel_tool_calls` of a row.

    `tools` may be JSON text. `weight_field` of assistant messages is 0, 1 or a boolean. ProtocolError for wrong ones.
    """
    if type(row.get("messages")) is not list:
        raise ProtocolError("expected an array of messages", pointer="/messages")
    messages: list[Message] = []
    weights: list[int] = []
    for index, message in enumerate(decode_list(row, "messages", read_message)):
        weight, message = _take_weight(message, weight_field, index)
        messages.append(message)
        if message.role == "assistant":
            weights.append(weight)
    tools = [*decode_tools(row), *decode_list(row, "functions", read_tool)]
    return make_example(messages, tools, parallel=read_boolean(row, "parallel_tool_calls"), weights=weights)


def decode_tools(row: Object, key: str = "tools") -> list[Tool]:
    """Decode the declarations under `key`: an array, or JSON text of one."""
    value = row.get(key)
    if type(value) is str:
        value = parse_text(value, key) if value.strip() else []
    return decode_list({key: value}, key, _read_declaration)


def _read_declaration(raw: JSON) -> Tool:
    """Read a declaration; null members, which Arrow adds, count as absent."""
    if type(raw) is dict and type(raw.get("function")) is dict:
        function = {key: value for key, value in raw["function"].items() if value is not None}
        if type(function.get("parameters")) is str:
            function["parameters"] = parse_text(function["parameters"], "function", "parameters")
        raw = {**raw, "function": function}
    return read_tool(raw)


def parse_text(text: JSON, *pointer: str | int) -> JSON:
    """Parse JSON text inside a row; ProtocolError with the pointer of the text."""
    if type(text) is not str:
        raise type_error("JSON text", text, *pointer)
    try:
        return parse(text)
    except ProtocolError as error:
        raise ProtocolError(f"not JSON: {error.message}", pointer=join(*pointer)) from None


def _take_weight(message: Message, field: str, index: int) -> tuple[int, Message]:
    """Move the weight of a message, 0 or 1, out of its `extra`; without one it is learned from. Else ProtocolError."""
    own = message.extra.get(_WIRE, {})
    form = message.extra.get(_FORM, {})
    if field not in own and field not in form:
        return 1, message
    value: JSON = own.get(field, form.get(field))
    if value not in (0, 1, None) or isinstance(value, float):
        raise ProtocolError(
            f"{field} must be 0 or 1, got {value!r}", pointer=join("messages", index, field), hint="use 0 or 1"
        )
    rest = {key: item for key, item in own.items() if key != field}
    extra: Extra = {key: item for key, item in message.extra.items() if key != _WIRE}
    return 1 if value is None else int(value), replace(message, extra={**extra, _WIRE: rest} if rest else extra)


def encode_chat(example: Example, *, object_arguments: bool = False, plain: bool = False) -> tuple[Object, Losses]:
    """Encode the messages and tools of an example. Raise EncodeError if an answer has nothing that can be written.

    `object_arguments`: arguments are objects, not JSON text. `plain`: as chat templates expect it, reasoning is written
    as `reasoning_content`, results have names, and a message without text has empty content: templates such as those of
    gpt-oss and LFM2 fail on null. OpenAI accepts neither of the first two.
    """
    losses = Losses()
    messages: list[Object] = []
    for index, message in enumerate(example.messages):
        before = len(messages)
        parts = tuple(_with_form(part, object_arguments, plain) for part in message.parts)
        path = f"/messages/{index}"
        write_message(replace(message, parts=parts), path, messages, losses)
        if message.role == "assistant" and len(messages) == before:
            detail = "an assistant message has nothing that can be written"
            raise EncodeError(detail, pointer=path, hint="remove this message")
    if plain:
        messages = [{**message, "content": message.get("content") or ""} for message in messages]
    row: Object = {"messages": messages}
    tools = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(example.tools)]
    if written := [tool for tool in tools if tool is not None]:
        row["tools"] = written
    return row, losses


def _with_form(part: Part, object_arguments: bool, plain: bool) -> Part:
    """Choose how the wire writes a part: the arguments of a call, the field of reasoning, the name of a result."""
    if isinstance(part, ToolCall) and object_arguments and part.raw is None:
        return replace(part, extra={**part.extra, _FORM: {":arguments": "object"}})
    if isinstance(part, Reasoning) and plain:
        return replace(part, extra={_FORM: {":field": "reasoning_content"}})
    if isinstance(part, ToolResult) and plain and part.name:
        return replace(part, extra={**part.extra, _FORM: {":name": True}})
    return part


def mark_weights(messages: Sequence[Object], weights: Sequence[int], field: str, kind: type = int) -> None:
    """Set the weight of each assistant message."""
    if weights:
        assistants = (message for message in messages if message["role"] == "assistant")
        for message, weight in zip(assistants, weights, strict=True):
            message[field] = kind(weight)


def has_chat_calls(messages: list[Any], arguments: type) -> bool:
    """Return whether the first call of a row has the form of Chat Completions, with arguments of this type."""
    for message in messages:
        match message:
            case {"tool_calls": [{"function": {"arguments": found}}, *_]}:
                return isinstance(found, arguments)
    return False


_WITHOUT_NULLS = Carried(nulls=False)


def encode_object_row(example: Example, carried: Carried = _WITHOUT_NULLS) -> tuple[Object, Losses]:
    """Encode an example with arguments as objects and tools as JSON text, and return its losses."""
    require_learnable(example)
    plain, losses = plain_example(example, carried, "TRL")
    row, more = encode_chat(plain, object_arguments=True, plain=True)
    losses.extend(more)
    row["tools"] = dumps(row.get("tools", []))
    return row, losses


# The order of turns that LLaMA-Factory requires: user or results, then assistant or calls, and so on.


def alternate(example: Example, losses: Losses) -> Example:
    """Return an example whose roles alternate and whose results are in the order of their calls.

    Consecutive user messages are joined. EncodeError for every other order: the trainer would skip the row. Joined
    messages and a changed order of results are losses.
    """
    ordered = [
        Message("user", tuple(results_in_call_order(example, index, losses))) if is_result_message(message) else message
        for index, message in enumerate(example.messages)
    ]
    system = [message for message in ordered if message.role == "system"]
    turns: list[Message] = []
    for index, message in enumerate(ordered[len(system) :], len(system)):
        last = turns[-1] if turns else None
        if message.role == "user" and last is not None and last.role == "user":
            if is_result_message(message) or is_result_message(last):
                raise _order_error(index, "a user message next to results")
            losses.add(f"/messages/{index}", "message boundary", "rewritten", "joined with the message before it")
            joined: tuple[Part, ...] = (Text(f"{last.text}\n\n{message.text}"),)
            turns[-1] = Message("user", joined)
            continue
        if (message.role == "user") == bool(len(turns) % 2):
            kind = "an assistant message" if message.role == "assistant" else "a user message"
            raise _order_error(index, f"{kind} in the place of the other")
        turns.append(message)
    return replace(example, messages=(*system, *turns))


def _order_error(index: int, problem: str) -> EncodeError:
    return EncodeError(
        f"user and assistant turns do not alternate: {problem}",
        pointer=f"/messages/{index}",
        hint="remove this example, or choose another format",
    )
