"""Rows with the messages and tools of Chat Completions, which several training formats share."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message
from ...wire.fields import decode_list, read_boolean
from ...wire.openai_chat.messages import read_message, write_message
from ...wire.openai_chat.tools import read_tool, write_tool
from ..examples import Example, make_example

__all__ = ["decode_chat", "encode_chat", "has_chat_calls"]

_WIRE = "openai_chat"


def decode_chat(row: Object, weight_field: str = "weight") -> Example:
    """Decode `messages`, `tools` (or the deprecated `functions`) and `parallel_tool_calls` of a row.

    `weight_field` is a field of assistant messages: 0 or 1, or a boolean.
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
    tools = [*decode_list(row, "tools", read_tool), *decode_list(row, "functions", read_tool)]
    return make_example(messages, tools, parallel=read_boolean(row, "parallel_tool_calls"), weights=weights)


def _take_weight(message: Message, field: str, index: int) -> tuple[int, Message]:
    """Move the weight of a message out of its `extra`. A message without one is learned from."""
    own = message.extra.get(_WIRE, {})
    form = message.extra.get(f"{_WIRE}~", {})
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


def encode_chat(example: Example) -> tuple[Object, Losses]:
    """Encode the messages and tools of an example, with arguments as JSON text."""
    losses = Losses()
    messages: list[Object] = []
    for index, message in enumerate(example.messages):
        before = len(messages)
        write_message(message, f"/messages/{index}", messages, losses)
        if message.role == "assistant" and len(messages) == before:
            raise EncodeError("an assistant message has nothing that can be written", pointer=f"/messages/{index}")
    row: Object = {"messages": messages}
    tools = [write_tool(tool, losses, f"/tools/{index}") for index, tool in enumerate(example.tools)]
    if written := [tool for tool in tools if tool is not None]:
        row["tools"] = written
    return row, losses


def has_chat_calls(messages: list[Any], arguments: type) -> bool:
    """Return whether a row has calls in the form of Chat Completions, with arguments of this type."""
    for message in messages:
        match message:
            case {"tool_calls": [{"function": {"arguments": found}}, *_]}:
                return isinstance(found, arguments)
    return False
