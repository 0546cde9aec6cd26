"""xLAM: `query`, `tools` and `answers`, the last two as JSON text. One question and its calls.

The dataset xlam-function-calling-60k declares parameters by their Python types, such as "str, optional"; keywords of
JSON Schema beside the type are kept. There is no place for system messages, results and a final answer.
"""

from __future__ import annotations

from ...ir.errors import EncodeError, ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Text, ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.text import dumps
from ...ir.tools import Tool
from ...wire.fields import decode_list, read_optional_string, read_string, require_object, type_error
from ..examples import EncodedRow, Example, TrainingFormat, is_result_message, make_example
from .chat_rows import Carried, parse_text, plain_example
from .type_names import base_type, is_optional, standard_schema, type_name

_CARRIED = Carried(ids=False, reasoning=False, text_with_calls=False)
_PARAMETERS = frozenset({"properties", "required", "type"})


def _decode(row: Object) -> Example:
    """Return a row as an example of a query and its calls.

    Raises `ProtocolError` for an invalid row or without calls.
    """
    query = read_string(row, "query")
    calls = decode_list({"answers": _read_json(row, "answers")}, "answers", _read_answer)
    tools = decode_list({"tools": _read_json(row, "tools")}, "tools", _read_tool)
    if not calls:
        raise ProtocolError("'answers' is empty", pointer="/answers")
    identifier = row.get("id")
    messages = [Message("user", (Text(query),)), Message("assistant", tuple(calls))]
    return make_example(messages, tools, id="" if identifier is None else str(identifier)[:200])


def _read_json(row: Object, key: str) -> JSON:
    value = row.get(key)
    return parse_text(value, key) if type(value) is str else value


def _read_answer(raw: JSON) -> ToolCall:
    answer = require_object(raw)
    return ToolCall("", read_string(answer, "name"), require_object(answer.get("arguments", {}), "arguments"))


def _read_tool(raw: JSON) -> Tool:
    tool = require_object(raw)
    name = read_string(tool, "name")
    given = require_object(tool.get("parameters") or {}, "parameters")
    schema = standard_schema(given) if _is_schema(given) else _read_parameters(given)
    return Tool(name, read_optional_string(tool, "description"), schema)


def _is_schema(parameters: Object) -> bool:
    """Return whether parameters are a JSON Schema; a parameter may itself be named "type" or "properties"."""
    return parameters.get("type") in ("object", "dict") and type(parameters.get("properties")) is dict


def _read_parameters(parameters: Object) -> Object:
    """Return xLAM's parameters as a JSON Schema object.

    A parameter is required unless `optional`, its type (`str, optional`) or a default makes it optional; `optional:
    false` takes precedence over a default. Raise ProtocolError for a type that is no text.
    """
    properties: Object = {}
    required: list[str] = []
    for name, raw in parameters.items():
        declared = require_object(raw, "parameters", name)
        kind = declared.get("type", "any")
        if type(kind) is not str:
            raise type_error("the name of a type", kind, "parameters", name, "type")
        properties[name] = standard_schema(declared)
        optional = declared.get("optional")
        properties[name].pop("optional", None)
        if optional is not True and not is_optional(kind) and (optional is False or "default" not in declared):
            required.append(name)
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _encode(example: Example) -> EncodedRow:
    plain, losses = plain_example(example, _CARRIED, "xLAM")
    query, calls = _single_turn(plain, losses)
    tools = [_write_tool(tool, f"/tools/{index}", losses) for index, tool in enumerate(plain.tools)]
    answers = [{"name": call.name, "arguments": call.arguments} for call in calls]
    row: Object = {"query": query, "tools": dumps(tools), "answers": dumps(answers)}
    return EncodedRow({"id": example.id, **row} if example.id else row, losses)


def _single_turn(example: Example, losses: Losses) -> tuple[str, list[ToolCall]]:
    """Return the question and its calls; EncodeError for a conversation with more than one of either."""
    turns = [message for message in example.messages if message.role != "system"]
    if len(turns) < len(example.messages):
        losses.add("/messages/0", "system message", "dropped", "xLAM has only a query", "warning")
    calling = [message for message in turns if any(isinstance(part, ToolCall) for part in message.parts)]
    questions = [message for message in turns if message.role == "user" and not is_result_message(message)]
    if len(calling) != 1 or len(questions) != 1 or turns[:2] != [questions[0], calling[0]]:
        raise EncodeError(
            f"xLAM has one question and its calls, got {len(questions)} questions and {len(calling)} turns with calls",
            pointer="/messages",
            hint="choose another format",
        )
    for message in turns[2:]:
        concept = "result" if is_result_message(message) else "final answer"
        losses.add("/messages", concept, "dropped", "xLAM ends with the calls", "warning")
    return questions[0].text, [part for part in calling[0].parts if isinstance(part, ToolCall)]


def _write_tool(tool: Tool, path: str, losses: Losses) -> Object:
    """Return a tool in xLAM's form, and report schema keywords and fields without an equivalent as losses."""
    schema = tool.input_schema or {}
    properties = schema.get("properties")
    required = schema.get("required")
    for keyword in schema:
        if keyword not in _PARAMETERS:
            losses.add(f"{path}/input_schema/{keyword}", "schema", "weakened", f"xLAM has no {keyword} here", "info")
    for field in ("strict", "output_schema", "examples", "namespace"):
        if getattr(tool, field):
            losses.add(f"{path}/{field}", field, "dropped", "xLAM has no field for it", "info")
    parameters = {
        name: _write_parameter(one, type(required) is list and name in required, f"{path}/input_schema", losses)
        for name, one in (properties if type(properties) is dict else {}).items()
    }
    return {"name": tool.name, "description": tool.description or "", "parameters": parameters}


def _write_parameter(schema: JSON, required: bool, path: str, losses: Losses) -> Object:
    """Return a parameter with its type as Python name, `any` with a loss if there is none.

    A required parameter with a default has `optional: false`, because a default alone is read as optional.
    """
    declared: Object = dict(schema) if type(schema) is dict else {}
    kind = declared.get("type")
    if type(kind) is not str or base_type(type_name(kind)) != kind:
        losses.add(path, "schema", "weakened", "xLAM has one named type for each parameter", "warning")
        kind = "any"
    suffix = "" if required else ", optional"
    optional: Object = {"optional": False} if required and "default" in declared else {}
    return {**declared, "type": f"{type_name(kind)}{suffix}", **optional}


FORMAT = TrainingFormat(
    name="xlam",
    title="xLAM function calling, one turn",
    decode=_decode,
    encode=_encode,
    matches=lambda row: 9 if "query" in row and "answers" in row else 0,
)
