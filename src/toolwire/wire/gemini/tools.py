"""Function declarations and function calling configuration.

    tools: [{"functionDeclarations": [{"name", "description", "parametersJsonSchema" | "parameters", …}]},
            {"googleSearch": {}}]
    toolConfig: {"functionCallingConfig": {"mode": AUTO | ANY | NONE | VALIDATED, "allowedFunctionNames": […]}}

A schema is written as `parametersJsonSchema`, which accepts JSON Schema. `parameters`, an OpenAPI subset, is converted
to JSON Schema; it is written only if the schema was read from it and is unchanged (schemas.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import attrgetter

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.tools import Tool, ToolChoice
from ..fields import decode_list, read_optional_string, read_string, report_tool_fields, require_object
from .field_names import NAME, read_fields, to_camel_case, write_fields
from .schemas import read_parameters, read_schema

_FORM = "gemini~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_ENTRY = "gemini/tool"
_TOOLS_FORM = "gemini/tools~"
_CONFIG = "gemini/functionCallingConfig"
_MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
"""Modes of a functionCallingConfig, indexed by their numbers in the protobuf enum."""
_FUNCTION = frozenset({"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"})


def read_tools(raw: Object, extra: Extra | None = None) -> tuple[Tool, ...]:
    """Read the declarations under `tools`; unless there is one list of functions, each tool notes its entry as form.

    An entry without tools is form, kept in `extra` under `gemini/tools~`.
    """
    entries = decode_list(raw, "tools", _read_entry)
    if len(entries) == 1 and entries[0] and all(tool.kind == "function" for tool in entries[0]):
        return tuple(entries[0])  # the usual case: one list of functions
    tools: list[Tool] = []
    for number, entry in enumerate(entries):
        for tool in entry:
            form = {**tool.extra.get(_FORM, {}), ":entry": number}
            tools.append(_with_extra(tool, {**tool.extra, _FORM: form}))
        if not entry and extra is not None:
            extra.setdefault(_TOOLS_FORM, {})[f":{number}"] = raw["tools"][number]
    return tuple(tools)


def _with_extra(tool: Tool, extra: Extra) -> Tool:
    """Copy a tool with another `extra`; the fields that this wire never reads are not copied."""
    return Tool(
        tool.name,
        tool.description,
        tool.input_schema,
        tool.output_schema,
        kind=tool.kind,
        extra=extra,
    )


def _read_entry(raw: JSON) -> list[Tool]:
    """Read one object of the list: declarations, built-in tools, or both. Its spelling is kept with each tool."""
    extra: Extra = {}
    fields = read_fields(raw, to_camel_case(require_object(raw)), _ENTRY, extra, ("functionDeclarations",))
    tools = decode_list(fields, "functionDeclarations", _read_function)
    for key, value in fields.items():
        if key != "functionDeclarations" and value is not None and value != []:
            tools.append(Tool(key, kind="builtin", extra={NAME: {key: value}}))
    form = extra.get(f"{_ENTRY}~", {})
    for key in [key for key in form if any(tool.name == key and tool.kind == "builtin" for tool in tools)]:
        del form[key]  # a built-in tool without options
    if form:
        tools = [_with_extra(tool, {**tool.extra, f"{_ENTRY}~": form}) for tool in tools]
    return tools


def _read_function(raw: JSON) -> Tool:
    if type(raw) is dict and len(raw) == 3 and "parametersJsonSchema" in raw:
        name, words, schema = raw.get("name"), raw.get("description"), raw["parametersJsonSchema"]
        if type(name) is str and words and type(words) is str and schema and type(schema) is dict:
            return Tool(name, words, schema)
    return _read_any_function(raw)


def _read_any_function(raw: JSON) -> Tool:
    """Read a declaration with any fields; `:parameters` and `:response` keep the schemas of the OpenAPI fields."""
    extra: Extra = {}
    fields = read_fields(require_object(raw), _FUNCTION, NAME, extra)
    form: Object = {}
    schema = _read_schema(fields, "parametersJsonSchema", "parameters", form)
    output = _read_schema(fields, "responseJsonSchema", "response", form)
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return Tool(read_string(fields, "name"), read_optional_string(fields, "description"), schema, output, extra=extra)


def _read_schema(fields: Object, field: str, openapi_field: str, form: Object) -> Object | None:
    """Read a schema from the field for JSON Schema, or convert it from the OpenAPI field and keep it in `form`.

    Return None if there is neither.
    """
    raw = fields.get(openapi_field)
    if fields.get(field) is not None:
        if raw is not None:
            form[openapi_field] = raw  # the API rejects both
        return require_object(fields[field], field)
    if raw is None:
        return None
    form[f":{openapi_field}"] = require_object(raw, openapi_field)
    return _CONVERT[openapi_field](raw)


_CONVERT: dict[str, Callable[[Object], Object]] = {"parameters": read_parameters, "response": read_schema}


def write_tools(tools: tuple[Tool, ...], losses: Losses, extra: Extra | None = None) -> list[Object]:
    """Write the declarations, grouped into the entries of `tools` from which they were read.

    A tool that was read from this wire remembers its entry in `extra` as `:entry`, so that the document is written back
    with the same grouping. A built-in tool of another provider is a loss.
    """
    entries: dict[object, Object] = {}
    forms: dict[object, Extra] = {}
    for index, tool in enumerate(tools):
        path = f"/tools/{index}"
        entry = tool.extra.get(_FORM, {}).get(":entry")
        if tool.kind == "builtin":
            if NAME not in tool.extra:
                losses.add(path, "built-in tool", "dropped", f"Gemini has no built-in tool {tool.name!r}", "error")
                continue
            entry = f"builtin {index}" if entry is None else entry
            entries.setdefault(entry, {}).update(tool.extra[NAME])
        else:
            entries.setdefault(entry, {}).setdefault("functionDeclarations", []).append(
                _write_function(tool, losses, path)
            )
        if f"{_ENTRY}~" in tool.extra:
            forms[entry] = tool.extra
    written = [write_fields(fields, forms.get(entry, {}), _ENTRY) for entry, fields in entries.items()]
    for position, raw in (extra or {}).get(_TOOLS_FORM, {}).items():
        written.insert(int(position[1:]), raw)
    return written


_UNWRITABLE = ("strict", "namespace", "deferred", "examples", "grammar", "cache")
_unwritable = attrgetter(*_UNWRITABLE)


def _write_function(tool: Tool, losses: Losses, path: str) -> Object:
    """Write one declaration, and report the fields that Gemini declarations do not have."""
    if any(_unwritable(tool)):
        report_tool_fields(compress(_UNWRITABLE, _unwritable(tool)), "Gemini", losses, path)
    form = tool.extra.get(_FORM, {})
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    _write_schema(tool.input_schema, out, "parametersJsonSchema", "parameters", form)
    _write_schema(tool.output_schema, out, "responseJsonSchema", "response", form)
    return write_fields(out, tool.extra, NAME)


def _write_schema(schema: Object | None, out: Object, field: str, openapi_field: str, form: Object) -> None:
    """Write a schema to the field for JSON Schema, or its unchanged original to the OpenAPI field."""
    original = form.get(f":{openapi_field}")
    if original is not None and _CONVERT[openapi_field](original) == schema:
        out[openapi_field] = original
    elif schema is not None:
        out[field] = schema


def read_choice(config: JSON) -> ToolChoice | None:
    """Read the tool choice from `functionCallingConfig`, or None; raise ProtocolError for an unknown mode.

    An unusual spelling of the mode is kept as form. `ANY` with one name is the choice of a tool.
    """
    if config is None:
        return None
    extra: Extra = {}
    known = ("mode", "allowedFunctionNames")
    config = require_object(config, "toolConfig", "functionCallingConfig")
    fields = read_fields(config, known, _CONFIG, extra, ("allowedFunctionNames",))
    number = fields.get("mode")
    if type(number) is int and 0 <= number < len(_MODES):  # protobuf also accepts the number of an enum value
        fields = {**fields, "mode": _MODES[number]}
    word = read_optional_string(fields, "mode")
    names = tuple(decode_list(fields, "allowedFunctionNames", _name))
    mode = (word or "AUTO").upper()
    if mode not in _MODES:
        pointer = join("toolConfig", "functionCallingConfig", "mode")
        raise ProtocolError(f"unknown mode {word!r}", pointer=pointer, hint="use AUTO, ANY, NONE or VALIDATED")
    if word != mode or mode == "MODE_UNSPECIFIED" or type(number) is int:
        extra[_FORM] = {":mode": config.get("mode")}
    if mode == "NONE":
        return ToolChoice("none", names, extra=extra)
    if mode == "ANY":
        if len(names) == 1:
            return ToolChoice("tool", names, extra=extra)
        return ToolChoice("allowed", names, True, extra) if names else ToolChoice("required", extra=extra)
    if names:
        if mode == "AUTO":
            extra[_FORM] = {":mode": config.get("mode")}
        return ToolChoice("allowed", names, extra=extra)
    return ToolChoice("validated" if mode == "VALIDATED" else "auto", extra=extra)


def _name(value: JSON) -> str:
    return read_string({"name": value}, "name")


def write_choice(request: Request, losses: Losses) -> Object | None:
    """Return the `functionCallingConfig`, or None without a choice; a request for one call at a time is a loss."""
    if request.parallel is False:
        losses.add(join("parallel"), "one call at a time", "dropped", "Gemini has no setting for parallel calls")
    choice = request.choice
    if choice is None:
        return None
    out: Object = {}
    match choice.mode:
        case "auto" | "none" | "validated":
            out["mode"] = choice.mode.upper()
        case "required":
            out["mode"] = "ANY"
        case "tool":
            out["mode"] = "ANY"
        case "allowed":
            out["mode"] = "ANY" if choice.required else "VALIDATED"
    if choice.names:
        out["allowedFunctionNames"] = list(choice.names)
    form = choice.extra.get(_FORM, {})
    if ":mode" in form:
        out["mode"] = form[":mode"]
        if out["mode"] is None:
            del out["mode"]
    return write_fields(out, choice.extra, _CONFIG)
