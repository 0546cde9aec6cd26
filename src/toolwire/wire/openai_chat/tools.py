"""Tool declarations and tool choice on Chat Completions.

    {"type": "function", "function": {"name", "description", "parameters", "strict"}}
    {"type": "custom", "custom": {"name", "description", "format": {"type": "grammar", "grammar": {"syntax", "definition"}}}}

The deprecated `functions` and `function_call` are read as `tools` and `tool_choice`, and written back in their original
form. So is a bare function, `{"name", "description", "parameters"}`, as many programs store their tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from operator import attrgetter

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.tools import ChoiceMode, Grammar, Tool, ToolChoice
from ..fields import (
    decode_list,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    report_tool_fields,
    require_object,
    type_error,
    write_builtin,
    write_extra,
)
from .content import NAME, has_cache_control, take_cache_control

_OUTER = frozenset({"type", "function", "custom"})
_extra = attrgetter("extra")
_FUNCTION = frozenset({"name", "description", "parameters", "strict"})
_CUSTOM = frozenset({"name", "description", "format"})


def declares_functions(request: Request) -> bool:
    """Return whether a request uses the deprecated `functions`: then its answer has one `function_call`."""
    extras = [*filter(None, map(_extra, request.tools))]
    return any(":tool" in extra.get(f"{NAME}~", {}) for extra in extras) if extras else False


def is_bare_function(raw: Object) -> bool:
    """Return True for a function without the `type` and the object around it."""
    return (
        _OUTER.isdisjoint(raw)
        and type(raw.get("name")) is str
        and not {"parameters", "description"}.isdisjoint(raw)
        and {"input_schema", "inputSchema", "parametersJsonSchema"}.isdisjoint(raw)
    )


def read_tool(raw: JSON) -> Tool:
    """Read a declaration; a type other than function and custom is a built-in tool."""
    if is_bare_function(require_object(raw)):
        return read_function(raw, {f"{NAME}~": {":bare": True}})
    kind = raw.get("type", "function" if "function" in raw else None)
    if kind == "function":
        extra = read_extra(raw, _OUTER, NAME) if len(raw) != 2 or "type" not in raw else {}
        if "type" not in raw:
            extra[f"{NAME}~"] = {**extra.get(f"{NAME}~", {}), ":type": "absent"}
        return read_function(require_object(raw.get("function"), "function"), extra, "function")
    if kind == "custom":
        return _read_custom(raw)
    return Tool(read_string(raw, "type"), kind="builtin", extra={NAME: raw})


def read_function(function: Object, extra: Extra, *pointer: str) -> Tool:
    """Read the object of a function; `pointer` locates it in the declaration, for errors.

    Raise ProtocolError if it is invalid.
    """
    parameters = function.get("parameters")
    if parameters is not None and type(parameters) is not dict:
        raise type_error("a JSON Schema object", parameters, *pointer, "parameters")
    try:
        name = read_string(function, "name")
        description = read_optional_string(function, "description")
        strict = read_boolean(function, "strict")
    except ProtocolError as error:
        raise error.within(*pointer) from None
    known_count = (description is not None) + (parameters is not None) + (strict is not None) + 1
    if known_count != len(function):  # it has other fields
        extra = read_extra(function, _FUNCTION, f"{NAME}/function", extra)
    cache = (take_cache_control(extra) or take_cache_control(extra, f"{NAME}/function")) if extra else None
    return Tool(name, description, parameters, strict=strict, cache=cache, extra=extra)


def _read_custom(raw: Object) -> Tool:
    """Read a freeform tool; a format other than a grammar is kept as a field of this wire or as form."""
    custom = require_object(raw.get("custom"), "custom")
    extra = read_extra(custom, _CUSTOM, f"{NAME}/function", read_extra(raw, _OUTER, NAME))
    grammar = None
    form = custom.get("format")
    if form is not None:
        kind = require_object(form, "custom", "format").get("type")
        if kind == "grammar":
            rules = require_object(form.get("grammar"), "custom", "format", "grammar")
            grammar = Grammar(read_string(rules, "syntax"), read_string(rules, "definition"))
            read_extra(form, ("type", "grammar"), f"{NAME}/format", extra)
            read_extra(rules, ("syntax", "definition"), f"{NAME}/grammar", extra)
        elif kind == "text" and len(form) == 1:
            extra.setdefault(f"{NAME}~", {})[":format"] = "text"
        else:
            extra.setdefault(f"{NAME}/function", {})["format"] = form
    return Tool(
        read_string(custom, "name"),
        read_optional_string(custom, "description"),
        kind="freeform",
        grammar=grammar,
        extra=extra,
    )


def write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider.

    Fields that Chat lacks are losses.
    """
    if tool.kind == "builtin":
        return write_builtin(tool, NAME, "Chat", losses, path)
    _report_unwritable(tool, losses, path)
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    extra = tool.extra
    if tool.kind == "freeform":
        if tool.grammar is not None:
            rules: Object = {"syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
            rules = write_extra(rules, extra, f"{NAME}/grammar")
            out["format"] = write_extra({"type": "grammar", "grammar": rules}, extra, f"{NAME}/format")
        elif ":format" in extra.get(f"{NAME}~", {}):
            out["format"] = {"type": "text"}
        return write_extra({"type": "custom", "custom": write_extra(out, extra, f"{NAME}/function")}, extra, NAME)
    if tool.input_schema is not None:
        out["parameters"] = tool.input_schema
    if tool.strict is not None:
        out["strict"] = tool.strict
    if not extra:
        return {"type": "function", "function": out}
    out = write_extra(out, extra, f"{NAME}/function")
    form = extra.get(f"{NAME}~", {})
    if ":bare" in form:
        return out
    if ":type" in form:
        return write_extra({"function": out}, extra, NAME)
    return write_extra({"type": "function", "function": out}, extra, NAME)


_UNWRITABLE = ("output_schema", "namespace", "deferred", "examples", "cache")
_unwritable = attrgetter(*_UNWRITABLE)


def _report_unwritable(tool: Tool, losses: Losses, path: str) -> None:
    if any(values := _unwritable(tool)):
        names = [*compress(_UNWRITABLE, values)]
        if "cache" in names and has_cache_control(tool.extra):
            names.remove("cache")
        report_tool_fields(names, "Chat", losses, path)


_MODES: dict[str, ChoiceMode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_choice(value: JSON) -> ToolChoice:
    """Read `tool_choice`: a mode, an object with a name, or the allowed tools; an object is also kept as form.

    Raise ProtocolError for an unknown mode or an invalid entry.
    """
    if type(value) is str:
        mode = _MODES.get(value)
        if mode is None:
            raise type_error('"auto", "none", "required" or an object', value, "tool_choice")
        extra: Extra = {f"{NAME}~": {":choice": value}} if value == "any" else {}
        return ToolChoice(mode, extra=extra)
    kind = require_object(value, "tool_choice").get("type")
    if type(kind) is str and kind in _MODES:  # {"type": "auto"}, as Anthropic writes it and some routers accept it
        mode = _MODES[kind]
        given = {"names": (), "mode": mode, "value": value}
        extra = read_extra(value, ("type",), f"{NAME}/choice", {f"{NAME}/choice~": given})
        return ToolChoice(mode, extra=extra)
    if kind != "allowed_tools":
        name = _entry_name(value, "tool_choice")
        flat = kind in ("function", "custom") and type(value.get("name")) is str
        extra = read_extra(value, ("type", str(kind), "name") if flat else ("type", str(kind)), f"{NAME}/choice")
        inner = value.get(kind)
        if type(inner) is dict:
            read_extra(inner, ("name",), f"{NAME}/choice", extra)
        return ToolChoice("tool", (name,), extra={**extra, **_original_form(value, name)})
    allowed = require_object(value.get("allowed_tools"), "tool_choice", "allowed_tools")
    try:
        names = tuple(decode_list(allowed, "tools", _entry_name))
    except ProtocolError as error:
        raise error.within("tool_choice", "allowed_tools") from None
    if allowed.get("mode", "auto") not in ("auto", "required"):
        raise type_error('"auto" or "required"', allowed["mode"], "tool_choice", "allowed_tools", "mode")
    extra = read_extra(value, ("type", "allowed_tools"), f"{NAME}/choice")
    read_extra(allowed, ("mode", "tools"), f"{NAME}/choice", extra)
    for entry in allowed.get("tools") or ():
        read_extra(entry, ("type", "function", "custom", "name"), f"{NAME}/choice", extra)
        for inner in (entry.get("function"), entry.get("custom")):
            if type(inner) is dict:
                read_extra(inner, ("name",), f"{NAME}/choice", extra)
    return ToolChoice("allowed", names, allowed.get("mode") == "required", {**extra, **_original_form(value, *names)})


def _original_form(value: Object, *names: str) -> Extra:
    """Keep a choice as it was written; it is written back if the names are still the same."""
    return {f"{NAME}/choice~": {"names": names, "value": value}}


def _entry_name(entry: JSON, *pointer: str) -> str:
    """Return the name of a function; for a server's own tool its type, which is the name of its declaration here.

    Raise ProtocolError if it has none.
    """
    try:
        kind = read_string(require_object(entry), "type")
        if kind not in ("function", "custom"):
            return kind
        inner = entry if type(entry.get("name")) is str else entry.get(kind)  # flat, as on Responses
        return read_string(require_object(inner, kind), "name")
    except ProtocolError as error:
        raise error.within(*pointer) from None


def read_legacy_choice(value: JSON) -> ToolChoice:
    """Read the legacy field `function_call`; form `:choice` restores it."""
    form: Extra = {f"{NAME}~": {":choice": "function_call"}}
    if value in ("auto", "none"):
        return ToolChoice(value, extra=form)
    name = read_string(require_object(value, "function_call"), "name")
    return ToolChoice("tool", (name,), extra=read_extra(value, ("name",), f"{NAME}/function_call", form))


def write_choice(choice: ToolChoice, tools: tuple[Tool, ...], out: Object, losses: Losses) -> None:
    """Write `tool_choice`, or the legacy `function_call`, into `out`; an unchanged choice is written as it was read."""
    given, form = choice.extra.get(f"{NAME}/choice~"), choice.extra.get(f"{NAME}~", {})
    if given is not None and given["names"] == choice.names and given.get("mode", choice.mode) == choice.mode:
        out["tool_choice"] = given["value"]
    elif form.get(":choice") == "function_call":
        named = {"name": choice.names[0]} if choice.names else {}
        out["function_call"] = (
            write_extra(named, choice.extra, f"{NAME}/function_call") if choice.mode == "tool" else choice.mode
        )
    else:
        out["tool_choice"] = _encode_choice(choice, {tool.name: tool.kind for tool in tools}, form, losses)


def _encode_choice(choice: ToolChoice, kinds: Mapping[str, str], form: Object, losses: Losses) -> JSON:
    """Return the value of `tool_choice`; `kinds` gives the kind of each tool by name. `validated` is a loss."""
    if choice.mode == "tool":
        return _named_choice(choice.names[0], kinds)
    if choice.mode == "allowed":
        mode, entries = "required" if choice.required else "auto", [_named_choice(name, kinds) for name in choice.names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": entries}}
    if choice.mode == "validated":
        losses.add(join("choice"), "validated", "weakened", "Chat validates with `strict` on each tool", "warning")
        return "auto"
    return form.get(":choice", choice.mode)


def _named_choice(name: str, kinds: Mapping[str, str]) -> Object:
    if kinds.get(name) == "builtin":
        return {"type": name}
    kind = "custom" if kinds.get(name) == "freeform" else "function"
    return {"type": kind, kind: {"name": name}}
