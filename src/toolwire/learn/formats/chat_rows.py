"""Rows with the messages and tools of Chat Completions, which several training formats share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Part, Reasoning, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message
from ...ir.tools import Tool
from ...stream.strict import parse
from ...wire.fields import decode_list, read_boolean, type_error
from ...wire.openai_chat.messages import read_message, write_message
from ...wire.openai_chat.tools import read_tool, write_tool
from ..examples import Example, make_example

__all__ = ["decode_chat", "decode_tools", "encode_chat", "has_chat_calls", "mark_weights", "parse_text"]

_WIRE = "openai_chat"
_FORM = f"{_WIRE}~"


def decode_chat(row: Object, weight_field: str = "weight") -> Example:
    """Decode `messages`, `tools` (or the deprecated `functions`) and `parallel_tool_calls` of a row.

    `tools` may be JSON text. `weight_field` is a field of assistant messages: 0 or 1, or a boolean.
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
    """Move the weight of a message out of its `extra`. A message without one is learned from."""
    own = message.extra.get(_WIRE, {})
    form = message.extra.get(_FORM, {})
    if field not in own and field not in form:
        return 1, message
    value: JSON = own.get(field, form.get(field))
    if value not in (0, 1, None) or isinstance(value, float):
        raise ProtocolError(
            f"{field} must be 0 or 1, got {value!r}", pointer=join("messages", index, field), hint="use 0 or 1"
        )
    rest = {key: one for key, one in own.items() if key != field}
    extra: Extra = {key: one for key, one in message.extra.items() if key != _WIRE}
    return 1 if value is None else int(value), replace(message, extra={**extra, _WIRE: rest} if rest else extra)


def encode_chat(example: Example, *, object_arguments: bool = False, plain: bool = False) -> tuple[Object, Losses]:
    """Encode the messages and tools of an example.

    `object_arguments`: arguments are objects, not JSON text. `plain`: as chat templates expect it, reasoning is written
    as `reasoning_content`, results have names, and a message without text has empty content: templates such as those of
    gpt-oss and LFM2 fail on null. OpenAI accepts neither of the first two.
    """
    losses = Losses()
    messages: list[Object] = []
    for index, message in enumerate(example.messages):
        before = len(messages)
        parts = tuple(_with_form(part, object_arguments, plain) for part in message.parts)
        write_message(replace(message, parts=parts), f"/messages/{index}", messages, losses)
        if message.role == "assistant" and len(messages) == before:
            raise EncodeError(
                "an assistant message has nothing that can be written",
                pointer=f"/messages/{index}",
                hint="remove this message",
            )
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
    """Return whether the first call of a row is that of Chat Completions, with arguments of this type."""
    for message in messages:
        match message:
            case {"tool_calls": [{"function": {"arguments": found}}, *_]}:
                return isinstance(found, arguments)
    return False
