"""LLaMA-Factory `formatting: sharegpt`: turns of human, gpt, function_call and observation; `system`; `tools`.

Read from llamafactory 0.9.5, `data/converter.py` and `data/formatter.py`: parallel calls are one JSON list in one turn,
reasoning is in `<think>` before it, several results are joined by the same separator as there. There are no ids.
"""

from __future__ import annotations

import re

from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Part, Reasoning, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import dumps
from ...ir.tools import Tool
from ...stream.strict import parse
from ...wire.fields import read_string, require_object, type_error
from ...wire.openai_chat.tools import write_tool
from ..examples import EncodedRow, Example, TrainingFormat, is_result_message, make_example
from .chat_rows import Carried, alternate, decode_tools, plain_example, read_turns, require_learnable

SEPARATOR = "\n</tool_response>\n<tool_response>\n"
_OPEN, _CLOSE = "<think>\n", "\n</think>\n\n"
_THOUGHTS = re.compile(r"\A<think>\n?(.*?)\n?</think>(?:\n\n|\s*)", re.DOTALL)
_CARRIED = Carried(ids=False, text_with_calls=False, late_system=False)
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}
_TURNS = frozenset({"human", "gpt", "function_call", "observation"})


def _decode(row: Object) -> Example:
    """Return a row as an example; an observation is split into the results of the calls before it.

    Raises `ProtocolError` for an invalid row.
    """
    turns = read_turns(row)
    system = row.get("system")
    if system is not None and type(system) is not str:
        raise type_error("text", system, "system")
    messages = [Message("system", (Text(system),))] if system else []
    waiting: list[str] = []
    for index, (kind, value) in enumerate(turns):
        if kind == "observation":
            messages.append(Message("user", _split_results(value, waiting)))
            waiting = []
            continue
        message = _read_message(kind, value, index)
        waiting = [part.name for part in message.parts if isinstance(part, ToolCall)]
        messages.append(message)
    return make_example(messages, decode_tools(row))


def _read_message(kind: str, value: str, index: int) -> Message:
    """Return a turn other than an observation as a message. Raises `ProtocolError` for an unknown kind."""
    if kind == "system":
        return Message("system", (Text(value),))
    if kind == "function_call":
        return Message("assistant", _read_calls(value, index))
    role = _ROLES.get(kind)
    if role == "user":
        return Message("user", (Text(value),))
    if role == "assistant":
        return Message("assistant", tuple(split_thoughts(value)))
    raise ProtocolError(
        f"unknown turn {kind!r}",
        pointer=f"/conversations/{index}/from",
        hint="use human, gpt, function_call, observation or system",
    )


def _read_calls(value: str, index: int) -> tuple[Part, ...]:
    """Read one call or a list of calls, after optional reasoning. Raise ProtocolError for anything else."""
    *thoughts, text = split_thoughts(value) or [Text("")]
    assert isinstance(text, (Text, Reasoning))
    pointer = f"/conversations/{index}/value"
    try:
        given = parse(text.text)
        calls = [_read_call(one) for one in (given if type(given) is list else [given])]
    except ProtocolError as error:
        hint = 'write {"name": …, "arguments": {…}}, or a list of them'
        raise ProtocolError(f"not a call: {error.message}", pointer=pointer, hint=hint) from None
    return (*thoughts, *calls)


def _read_call(raw: JSON) -> ToolCall:
    call = require_object(raw)
    arguments = call.get("arguments")
    if type(arguments) is str:
        arguments = parse(arguments)
    return ToolCall("", read_string(call, "name"), require_object(arguments, "arguments"))


def _split_results(value: str, waiting: list[str]) -> tuple[ToolResult, ...]:
    """Split joined results if there are as many as calls; else the whole text is the first result."""
    texts = value.split(SEPARATOR) if len(waiting) > 1 else [value]
    if len(texts) != max(1, len(waiting)):
        texts = [value]
    return tuple(ToolResult("", None, (Text(text),)) for text in texts)


def split_thoughts(value: str) -> list[Part]:
    """Return the reasoning in `<think>` at the start of a text, and the text after it."""
    found = _THOUGHTS.match(value)
    if found is None:
        return [Text(value)] if value else []
    rest = value[found.end() :]
    return [*([Reasoning(found[1])] if found[1] else []), *([Text(rest)] if rest else [])]


def with_thoughts(thoughts: str, text: str, losses: Losses, *, is_call: bool = False) -> str:
    """Return a text with reasoning in `<think>` before it.

    A trainer finds the reasoning by its marks. If the reasoning or the text contains one, the parts are read differently,
    which is a loss; EncodeError if `text` is a call, which could not be read at all.
    """
    written = f"{_OPEN}{thoughts}{_CLOSE}{text}" if thoughts else text
    expected: list[Part] = [*([Reasoning(thoughts)] if thoughts else []), *([Text(text)] if text else [])]
    if split_thoughts(written) == expected:
        return written
    if is_call:
        raise EncodeError(
            "the reasoning before a call contains </think>",
            pointer="/messages",
            hint="remove this example, or choose another format",
        )
    losses.add("/messages", "reasoning boundary", "weakened", "a text contains a mark of reasoning", "warning")
    return written


def _encode(example: Example) -> EncodedRow:
    require_learnable(example)
    plain, losses = plain_example(example, _CARRIED, "ShareGPT")
    plain = alternate(plain, losses)
    system = "\n\n".join(message.text for message in plain.messages if message.role == "system")
    turns = [_write_turn(message, losses) for message in plain.messages if message.role != "system"]
    return EncodedRow({"conversations": turns, "system": system, "tools": dumps(flat_tools(plain, losses))}, losses)


def _write_turn(message: Message, losses: Losses) -> Object:
    """Return a message as a turn.

    Several results share a turn, so a result that contains the separator is reported as a loss.
    """
    if is_result_message(message):
        texts = [part.text for part in message.parts if isinstance(part, ToolResult)]
        if any(SEPARATOR in text for text in texts):
            losses.add("/messages", "result boundary", "weakened", "a result contains the separator of results")
        return {"from": "observation", "value": SEPARATOR.join(texts)}
    if message.role == "user":
        return {"from": "human", "value": message.text}
    thoughts = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    calls = [{"name": part.name, "arguments": part.arguments} for part in message.parts if isinstance(part, ToolCall)]
    if not calls:
        return {"from": "gpt", "value": with_thoughts(thoughts, message.text, losses)}
    text = dumps(calls if len(calls) > 1 else calls[0])
    return {"from": "function_call", "value": with_thoughts(thoughts, text, losses, is_call=True)}


def flat_tools(example: Example, losses: Losses) -> list[Object]:
    """Return declarations of name, description and parameters; the trainer requires parameters with properties.

    Raise EncodeError for a tool that has no such declaration.
    """
    found: list[Object] = []
    for index, tool in enumerate(example.tools):
        written = write_tool(tool, losses, f"/tools/{index}")
        if written is None:
            raise EncodeError(f"the tool {tool.name} cannot be written", pointer=f"/tools/{index}")
        found.append({**written["function"], "parameters": _with_properties(tool, index, losses)})
    return found


def _with_properties(tool: Tool, index: int, losses: Losses) -> Object:
    schema = tool.input_schema or {}
    if type(schema.get("properties")) is dict:
        return schema
    losses.add(f"/tools/{index}/input_schema", "schema", "rewritten", "parameters need an object of properties", "info")
    return {"type": "object", **schema, "properties": {}}


def _matches(row: Object) -> int:
    turns = row.get("conversations")
    if not isinstance(turns, list):
        return 0
    kinds = {turn.get("from") for turn in turns if isinstance(turn, dict) and isinstance(turn.get("from"), str)}
    return 8 if kinds & _TURNS else 1


FORMAT = TrainingFormat(
    name="llamafactory",
    title="LLaMA-Factory, formatting sharegpt",
    decode=_decode,
    encode=_encode,
    matches=_matches,
    settings=(
        'dataset_info.json: "formatting": "sharegpt", '
        '"columns": {"messages": "conversations", "system": "system", "tools": "tools"}'
    ),
)
