"""ms-swift: roles `tool_call` (one message for each call) and `tool_response`, with `loss` per message.

Read from ms-swift 4.6.0, `template/template_inputs.py` and `dataset/preprocessor/core.py`: calls have no ids, and
results are matched by order.
"""

from __future__ import annotations

from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Reasoning, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object, join
from ...ir.request import Message
from ...ir.text import dumps
from ...wire.fields import read_boolean, read_string, require_object
from ..examples import EncodedRow, Example, TrainingFormat, is_result_message, make_example
from .chat_rows import (
    Carried,
    decode_tools,
    encode_chat,
    parse_text,
    plain_example,
    require_learnable,
    results_in_call_order,
)
from .llamafactory import split_thoughts, with_thoughts

_CARRIED = Carried(ids=False, weights=True, late_system=False)


def _decode(row: Object) -> Example:
    """Return a row as an example.

    Adjacent messages of an answer (text, calls) become one message. Raises `ProtocolError` for an invalid row, or if
    such messages differ in `loss`.
    """
    given = row.get("messages")
    if type(given) is not list:
        raise ProtocolError("expected an array of messages", pointer="/messages")
    messages: list[Message] = []
    weights: list[int] = []
    for index, raw in enumerate(given):
        try:
            message = _read_message(raw)
            loss = read_boolean(raw, "loss")
        except ProtocolError as error:
            raise error.within("messages", index) from None
        if message.role != "assistant":
            messages.append(message)
        elif messages and _continues(messages[-1], message):
            if weights[-1] != (0 if loss is False else 1):
                raise ProtocolError(
                    "the messages of one answer have different values of loss",
                    pointer=join("messages", index, "loss"),
                    hint="use one value for the text and the calls of an answer",
                )
            messages[-1] = Message("assistant", (*messages[-1].parts, *message.parts))
        else:
            messages.append(message)
            weights.append(0 if loss is False else 1)
    return make_example(messages, decode_tools(row), weights=weights)


def _continues(last: Message, message: Message) -> bool:
    """Return whether `message` has calls of the assistant message before it."""
    return last.role == "assistant" and any(isinstance(part, ToolCall) for part in message.parts)


def _read_message(raw: JSON) -> Message:
    """Return a message of any role; calls and results still have no id. Raises `ProtocolError` for an unknown role."""
    message = require_object(raw)
    role = read_string(message, "role")
    if role == "tool_call":
        return Message("assistant", (_read_call(message.get("content")),))
    content = read_string(message, "content")
    if role in ("tool", "tool_response"):
        return Message("user", (ToolResult("", None, (Text(content),)),))
    if role == "assistant":
        return Message("assistant", tuple(split_thoughts(content)))
    if role == "user":
        return Message("user", (Text(content),))
    if role == "system":
        return Message("system", (Text(content),))
    raise ProtocolError(
        f"unknown role {role!r}",
        pointer="/role",
        hint="use system, user, assistant, tool_call or tool_response",
    )


def _read_call(content: JSON) -> ToolCall:
    """Return the call in a message's content, which is an object or its JSON text.

    Raises `ProtocolError` for anything else.
    """
    call = require_object(parse_text(content, "content") if type(content) is str else content, "content")
    arguments = call.get("arguments")
    if type(arguments) is str:
        arguments = parse_text(arguments, "content")
    try:
        return ToolCall("", read_string(call, "name"), require_object(arguments, "arguments"))
    except ProtocolError as error:
        raise ProtocolError(f"not a call: {error.message}", pointer="/content") from None


def _encode(example: Example) -> EncodedRow:
    """Return an example as a row, with its losses; `loss` is written only if an answer has weight 0.

    Raises `EncodeError` for adjacent assistant messages.
    """
    require_learnable(example)
    plain, losses = plain_example(example, _CARRIED, "ms-swift")
    messages: list[Object] = []
    for index, message in enumerate(plain.messages):
        if message.role == "assistant" and index and plain.messages[index - 1].role == "assistant":
            raise EncodeError(
                "two assistant messages in a row would be read as one",
                pointer=f"/messages/{index}",
                hint="remove this example, or choose another format",
            )
        written = _write_message(plain, index, message, losses)
        if message.role == "assistant" and 0 in plain.weights:
            written = [{**one, "loss": bool(plain.weight_of(index))} for one in written]
        messages += written
    row, more = encode_chat(Example((), plain.tools))
    losses.extend(more)
    return EncodedRow({"messages": messages, "tools": dumps(row.get("tools", []))}, losses)


def _write_message(example: Example, index: int, message: Message, losses: Losses) -> list[Object]:
    """Return a message as rows: each result and each call has its own, after the text."""
    if is_result_message(message):
        results = results_in_call_order(example, index, losses)
        return [{"role": "tool_response", "content": result.text} for result in results]
    if message.role != "assistant":
        return [{"role": message.role, "content": message.text}]
    thoughts = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    text = with_thoughts(thoughts, message.text, losses)
    calls: list[Object] = [
        {"role": "tool_call", "content": dumps({"name": part.name, "arguments": part.arguments})}
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    return [{"role": "assistant", "content": text}, *calls] if text or not calls else calls


def _matches(row: Object) -> int:
    messages = row.get("messages")
    if not isinstance(messages, list):
        return 0
    roles = {message.get("role") for message in messages if isinstance(message, dict) and _has_role(message)}
    return 9 if roles & {"tool_call", "tool_response"} else 0


def _has_role(message: Object) -> bool:
    return isinstance(message.get("role"), str)


FORMAT = TrainingFormat(
    name="swift",
    title="ms-swift agent rows",
    decode=_decode,
    encode=_encode,
    matches=_matches,
    settings="swift sft --dataset FILE",
)
