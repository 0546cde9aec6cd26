"""ToolACE (read only): functions as JSON in the system text, calls as `[Name(argument="value")]`.

Names may contain spaces. The turns are user, assistant and tool.
"""

from __future__ import annotations

import ast
from typing import Any

from ...ir.errors import ProtocolError
from ...ir.parts import Part, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.tools import Tool
from ...stream.strict import parse
from ...wire.fields import read_optional_string, read_string, require_object
from ..examples import Example, TrainingFormat, make_example
from .chat_rows import read_turns
from .type_names import standard_schema

_CONSTANTS = {"true": True, "false": False, "null": None}
_MAX_TRIES = 8  # places where the list of functions may start
_MAX_CALL = 1024 * 1024  # characters of the arguments of one call, which are read in Python


def _decode(row: Object) -> Example:
    """Return a row as an example; the tools are part of the system prompt.

    Raises `ProtocolError` for an invalid row.
    """
    system = read_optional_string(row, "system") or ""
    text, tools = _split_system(system)
    names = frozenset(tool.name for tool in tools)
    messages = [Message("system", (Text(text),))] if text else []
    waiting = 0
    for index, (kind, value) in enumerate(read_turns(row)):
        if kind == "user":
            messages.append(Message("user", (Text(value),)))
        elif kind == "assistant":
            parts = _read_answer(value, names, index)
            waiting = sum(isinstance(part, ToolCall) for part in parts)
            messages.append(Message("assistant", parts))
        elif kind == "tool":
            messages.append(Message("user", _read_results(value, waiting)))
        else:
            raise ProtocolError(
                f"unknown turn {kind!r}", pointer=f"/conversations/{index}/from", hint="use user, assistant or tool"
            )
    return make_example(messages, tools)


def _split_system(system: str) -> tuple[str, list[Tool]]:
    """Return the system text without its list of functions, and the tools.

    Raises `ProtocolError` if there is no list, or an entry is not a function.
    """
    start = system.find("[{")
    for _ in range(_MAX_TRIES):
        end = _closing_bracket(system, start, "[]{}", '"') if start >= 0 else None
        if end is None:
            break
        raw = _parse_or_none(system[start : end + 1])
        if type(raw) is list:
            try:
                tools = [_read_tool(one) for one in raw]
            except ProtocolError as error:
                raise ProtocolError(f"not a function: {error.message}", pointer="/system") from None
            return f"{system[:start].rstrip()}\n{system[end + 1 :].lstrip()}".strip(), tools
        start = system.find("[{", start + 1)
    raise ProtocolError("the system text has no list of functions in JSON", pointer="/system")


def _parse_or_none(text: str) -> JSON:
    try:
        return parse(text)
    except ProtocolError:
        return None


def _read_tool(raw: JSON) -> Tool:
    tool = require_object(raw)
    given = tool.get("parameters") or tool.get("arguments") or {}
    schema = standard_schema(require_object(given, "parameters"))
    schema["type"] = "object"
    return Tool(read_string(tool, "name"), read_optional_string(tool, "description"), schema)


def _read_answer(value: str, names: frozenset[str], index: int) -> tuple[Part, ...]:
    """Return an assistant turn as calls, or as text.

    Text in brackets that cannot be parsed raises `ProtocolError` if it begins with the name of a tool.
    """
    text = value.strip()
    opens = text.startswith("[") and text.endswith("]") and "(" in text
    if not opens:
        return (Text(value),)
    name = text[1 : text.index("(")].strip()
    try:
        return tuple(read_python_calls(text))
    except ProtocolError as error:
        if name not in names:
            return (Text(value),)  # a text in brackets
        raise ProtocolError(error.message, pointer=f"/conversations/{index}/value", hint=error.hint) from None


def read_python_calls(text: str) -> list[ToolCall]:
    """Read `[Name(argument=value, …), …]`; a name may contain any characters except brackets, commas and quotes.

    Raise ProtocolError for other text, and for a call without its closing bracket.

    >>> [(call.name, call.arguments) for call in read_python_calls("[Get Rate(pair='EUR/USD', days=3)]")]
    [('Get Rate', {'pair': 'EUR/USD', 'days': 3})]
    """
    inner, calls = text.strip()[1:-1], []
    position = 0
    while position < len(inner):
        opening = inner.find("(", position)
        if opening < 0:
            raise ProtocolError("unexpected text after the calls", hint="write [Name(argument=value)]")
        name = inner[position:opening].strip(" \n,")
        closing = _closing_bracket(inner, opening, "()[]{}", "'\"")
        if closing is None:
            raise ProtocolError("a call has no closing bracket", hint="write [Name(argument=value)]")
        calls.append(ToolCall("", name, _read_arguments(inner[opening + 1 : closing])))
        position = closing + 1
        if not inner[position:].strip(" \n,"):
            break
    return calls


def _closing_bracket(text: str, opening: int, pairs: str, quotes: str) -> int | None:
    """Return the position of the bracket that closes the one at `opening`, or None. Brackets in strings do not count."""
    depth, quote, escaped = 0, "", False
    for position in range(opening, len(text)):
        character = text[position]
        if escaped:
            escaped = False
        elif quote:
            escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in quotes:
            quote = character
        elif character in pairs[::2]:
            depth += 1
        elif character in pairs[1::2]:
            depth -= 1
            if not depth:
                return position
    return None


def _read_arguments(text: str) -> Object:
    """Parse Python keyword arguments of literals.

    Raises `ProtocolError` for anything else and for texts above `_MAX_CALL`.
    """
    if len(text) > _MAX_CALL:
        raise ProtocolError(f"the arguments of a call exceed {_MAX_CALL} characters")
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("arguments need names")
        return {_keyword(keyword): _literal(keyword.value) for keyword in call.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise ProtocolError(f"not arguments of a call: {reason}", hint="write Name(argument=value)") from None


def _keyword(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise ValueError("arguments need names")
    return keyword.arg


def _literal(node: ast.expr) -> Any:
    """Evaluate a literal; also the constants of JSON. Raise ValueError for anything else."""
    match node:
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise ValueError("a value is not a literal")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("keys of objects must be strings")


def _read_results(value: str, calls: int) -> tuple[ToolResult, ...]:
    """Read a list of results, one for each call; anything else is one text."""
    given = _parse_or_none(value)
    if type(given) is list and len(given) == calls > 0:
        return tuple(_read_result(one) for one in given)
    return (ToolResult("", None, (Text(value),)),)


def _read_result(raw: JSON) -> ToolResult:
    name = raw.get("name") if type(raw) is dict else None
    value = raw.get("results", raw) if type(raw) is dict else raw
    return ToolResult("", name if type(name) is str else None, structured=value)


def _matches(row: Object) -> int:
    turns = row.get("conversations")
    if not isinstance(turns, list) or not isinstance(row.get("system"), str):
        return 0
    kinds = {turn.get("from") for turn in turns if isinstance(turn, dict) and isinstance(turn.get("from"), str)}
    return 9 if kinds and kinds <= {"user", "assistant", "tool"} else 0


FORMAT = TrainingFormat(name="toolace", title="ToolACE (read only)", decode=_decode, encode=None, matches=_matches)
