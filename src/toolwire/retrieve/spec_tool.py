"""Convert an API specification, a row of an API collection, to a tool."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from ..ir.tools import Effect, Tool

MAX_SIGNATURE = 4_000  # characters that Python's parser reads; a longer text is not a signature
_MAX_NAME = 64  # the longest tool name that all providers accept
_MAX_PARAMETERS = 500  # per object; beyond the largest APIs, a file with more is damaged or hostile
_MAX_DEPTH = 4  # objects inside arguments; deeper ones become objects without properties
_TYPES = {
    "string": "string",
    "str": "string",
    "integer": "integer",
    "int": "integer",
    "number": "number",
    "float": "number",
    "double": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "array": "array",
    "list": "array",
    "object": "object",
    "dict": "object",
}
_TYPED_TEXT = re.compile(r"\s*(?:([A-Za-z]+)\s*(?::|\(|$))?\s*(.*)", re.DOTALL)
_REQUIRED = re.compile(r"(?<!\s)\s*+\[required\]\s*+", re.IGNORECASE)
_READ_REQUEST = re.compile(r"\s*(GET|HEAD)\s+/")


def is_spec(value: JSON) -> bool:
    """Return True for an object with the fields of a spec."""
    if type(value) is not dict or ("name" not in value and "api_name" not in value):
        return False
    return "api_name" in value or "signature" in value or "doc" in value or type(value.get("parameters")) is list


def spec_tool(spec: Mapping[str, Any]) -> Tool:
    """Convert a specification; a request that only reads (GET) has the effect `read`, all others `write`.

    Raises `SchemaError` if it has no name, or a field has the wrong type.
    """
    is_zoo = "api_name" in spec
    title = _read_text(spec, "api_name" if is_zoo else "name")
    if not title.strip():
        raise SchemaError("the spec has no name", hint="add `name`, or `api_name` as in the API zoo")
    call = _read_text(spec, "api_call" if is_zoo else "signature")
    if is_zoo:
        description = ". ".join(
            filter(None, (title, *(_read_text(spec, key) for key in ("functionality", "description"))))
        )
        schema = _arguments_schema(spec.get("api_arguments"))
    else:
        description = _read_text(spec, "doc") or _read_text(spec, "description")
        schema = _list_schema(spec["parameters"]) if "parameters" in spec else _signature_schema(call)
    effect: Effect = "read" if _READ_REQUEST.match(call) else "write"
    original = {"name": title, "call": call, "id": spec.get("id")}
    original = {key: value for key, value in original.items() if type(value) is str and value}
    return Tool(spec_name(title), description or None, schema, effect=effect, extra={"api_spec": original})


def spec_name(title: str) -> str:
    """Return a name that every provider accepts: letters, digits, `_`, `-` and `.`; long ones end in a hash."""
    name = re.sub(r"[^A-Za-z0-9.]+", lambda found: "-" if found.group() == "-" else "_", title)
    name = re.sub(r"(?<!_)_*+\.[_.]*+", ".", name).strip("_.-")
    if name and len(name) <= _MAX_NAME:
        return name
    return f"{name[: _MAX_NAME - 9] or 'api'}_{sha256(title.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _read_text(spec: Mapping[str, Any], key: str) -> str:
    """Return a text field, a list of texts joined, or '' if it is missing. Raises `SchemaError` for another type."""
    value = spec.get(key)
    if value is None:
        return ""
    if type(value) is list and all(type(part) is str for part in value):
        return ", ".join(value)
    if type(value) is not str:
        raise SchemaError(f"{key} must be a text, got {type(value).__name__}", pointer=f"/{key}")
    return value


def _arguments_schema(arguments: Any, depth: int = 0) -> Object:
    """Convert the arguments of an entry of the API zoo: a text, a list of values, or an object per parameter."""
    if type(arguments) is not dict:  # "N/A", a list of names, or nothing
        arguments = dict.fromkeys(map(str, arguments)) if type(arguments) is list else {}
    properties: Object = {}
    required: list[str] = []
    for name, argument in list(arguments.items())[:_MAX_PARAMETERS]:
        properties[name], is_required = _convert_argument(argument, depth)
        if is_required:
            required.append(name)
    schema: Object = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _convert_argument(argument: Any, depth: int) -> tuple[Object, bool]:
    """Return the schema of an argument and whether it is required.

    An argument is a text ("Required. string: …"), a list of values, a description with `data_type`, or an object of
    arguments; anything else has an empty schema.
    """
    if type(argument) is str:
        is_required = bool(_REQUIRED.match(argument))
        matched = _TYPED_TEXT.fullmatch(_REQUIRED.sub("", argument, count=1))
        kind, rest = matched.groups() if matched else (None, argument)
        known = _TYPES.get((kind or "").lower())
        text = rest if known else argument
        return _describe({"type": known} if known else {}, text.strip(" ()")), is_required
    if type(argument) is list:
        return ({"enum": argument} if argument else {}), False
    if type(argument) is dict and ("data_type" in argument or "description" in argument):
        kind = _TYPES.get(str(argument.get("data_type", "")).lower())
        values = argument.get("possible_values") or argument.get("valid_values") or argument.get("options")
        schema: Object = {"type": kind} if kind else {}
        if (
            kind == "string"
            and type(values) is list
            and all(type(value) is str and ":" not in value for value in values)
        ):
            schema["enum"] = values
        return _describe(schema, argument.get("description")), argument.get("required") is True
    if type(argument) is dict and depth < _MAX_DEPTH:
        return _arguments_schema(argument, depth + 1), False
    return {}, False


def _list_schema(parameters: Any) -> Object:
    """Convert a list of `{name, description, type}`; entries without a name are skipped.

    Raises `SchemaError` for a value that is not a list.
    """
    if type(parameters) is not list:
        raise SchemaError(f"parameters must be a list, got {type(parameters).__name__}", pointer="/parameters")
    named = [row for row in parameters[:_MAX_PARAMETERS] if type(row) is dict and type(row.get("name")) is str]
    converted = {
        row["name"]: _convert_argument({"description": "", "data_type": row.get("type"), **row}, 0) for row in named
    }
    schema: Object = {"type": "object", "properties": {name: argument for name, (argument, _) in converted.items()}}
    required = [name for name, (_, is_required) in converted.items() if is_required]
    return {**schema, "required": required} if required else schema


def _describe(schema: Object, text: Any) -> Object:
    return {**schema, "description": text} if type(text) is str and text else schema


def _signature_schema(signature: str) -> Object:
    """Return the schema of a Python signature; a text that is no signature accepts any arguments.

    Defaults that are not literals are left out.
    """
    definition = _parse_signature(signature)
    if definition is None:
        return {"type": "object"}
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    properties: Object = {}
    for argument, default in pairs:
        schema = _annotation_schema(argument.annotation)
        value = None if default is None else _literal(default)
        properties[argument.arg] = schema if value is None else {**schema, "default": value}
    required = [argument.arg for argument, default in pairs if default is None]
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if arguments.kwarg is None:
        schema["additionalProperties"] = False
    return schema


def _parse_signature(signature: str) -> ast.FunctionDef | None:
    """Parse a Python signature, whose name may contain dots; return None if it is invalid."""
    text = signature.strip().removeprefix("def ").rstrip(":")
    name, parenthesis, rest = text.partition("(")
    if not parenthesis or len(signature) > MAX_SIGNATURE:
        return None
    name = name.replace(".", "_").strip()
    try:
        (definition,) = ast.parse(f"def {name}({rest}: ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return definition if isinstance(definition, ast.FunctionDef) else None


def _annotation_schema(annotation: ast.expr | None) -> Object:
    """Return the schema of a type annotation, or an empty schema for an unknown type."""
    match annotation:
        case ast.Name(id=name) if name in _TYPES:
            return {"type": _TYPES[name]}
        case ast.Constant(value=str(name)) if name in _TYPES:
            return {"type": _TYPES[name]}
        case ast.Subscript(value=ast.Name(id="list" | "List"), slice=item):
            return {"type": "array", "items": _annotation_schema(item)}
        case ast.Subscript(value=ast.Name(id="dict" | "Dict")):
            return {"type": "object"}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=item):
            values = item.elts if isinstance(item, ast.Tuple) else [item]
            return {"enum": [_literal(value) for value in values]}
        case ast.Subscript(value=ast.Name(id="Optional"), slice=item):
            return {"anyOf": [_annotation_schema(item), {"type": "null"}]}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return {"anyOf": [_annotation_schema(left), _annotation_schema(right)]}
        case ast.Constant(value=None):
            return {"type": "null"}
        case _:
            return {}


def _literal(value: ast.expr) -> JSON:
    """Return the value of a JSON literal, None for any other expression."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if type(found) in (bool, int, float, str) else None
