"""Tool declarations and the tool choice.

    {"type": "function", "name", "description", "parameters"}    {"type": "google_search"}    {"type": "mcp_server", "url", …}
    generation_config.tool_choice: "auto" | "any" | "none" | "validated" | {"allowed_tools": {"mode", "tools": [names]}}

`parameters` is JSON Schema. Every other type is a built-in tool, also one that is newer than this package.
"""

from __future__ import annotations

from itertools import compress
from operator import attrgetter

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.tools import Tool, ToolChoice
from ..fields import (
    decode_list,
    read_extra,
    read_optional_string,
    read_string,
    report_tool_fields,
    require_object,
    write_builtin,
    write_extra,
)
from .content import FORM, LABEL, NAME

_FUNCTION = frozenset({"type", "name", "description", "parameters"})
_CHOICE = "gemini_interactions/allowed_tools"
_MODES = ("auto", "any", "none", "validated")


def read_tool(raw: JSON) -> Tool:
    """Read one declaration; a type other than `function` is a built-in tool. Raise ProtocolError if it is invalid."""
    kind = read_string(require_object(raw), "type")
    if kind != "function":
        return Tool(kind, kind="builtin", extra={NAME: raw})
    schema = raw.get("parameters")
    extra = read_extra(raw, _FUNCTION, NAME)
    return Tool(
        read_string(raw, "name"),
        read_optional_string(raw, "description"),
        None if schema is None else require_object(schema, "parameters"),
        extra=extra,
    )


_UNWRITABLE = ("output_schema", "strict", "namespace", "deferred", "examples", "grammar", "cache")
_unwritable = attrgetter(*_UNWRITABLE)


def write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write one declaration; fields that declarations do not have here, and tools of other providers, are losses."""
    if tool.kind == "builtin":
        return write_builtin(tool, NAME, LABEL, losses, path)
    if any(_unwritable(tool)):
        report_tool_fields(compress(_UNWRITABLE, _unwritable(tool)), LABEL, losses, path)
    out: Object = {"type": "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.input_schema is not None:
        out["parameters"] = tool.input_schema
    return write_extra(out, tool.extra, NAME)


def read_choice(value: JSON) -> ToolChoice | None:
    """Read the tool choice, or None. `any` with one allowed tool is the choice of that tool.

    Raise ProtocolError for an unknown mode.
    """
    if value is None:
        return None
    if type(value) is str:
        return _make_choice(value, (), {})
    allowed = require_object(value).get("allowed_tools")
    extra = read_extra(value, ("allowed_tools",), NAME)
    fields = {} if allowed is None else require_object(allowed, "allowed_tools")
    read_extra(fields, ("mode", "tools"), _CHOICE, extra)
    try:
        mode = read_optional_string(fields, "mode")
        names = tuple(decode_list(fields, "tools", _read_name))
    except ProtocolError as error:
        raise error.within("allowed_tools") from None
    if mode is None:
        extra[FORM] = {**extra.get(FORM, {}), ":mode": "absent"}
    extra[FORM] = {**extra.get(FORM, {}), ":choice": "empty" if allowed is None else "allowed"}
    return _make_choice(mode or "auto", names, extra)


def _read_name(value: JSON) -> str:
    return read_string({"name": value}, "name")


def _make_choice(mode: str, names: tuple[str, ...], extra: Extra) -> ToolChoice:
    """Build a choice; the mode of allowed tools is kept as form where two of them mean the same."""
    if mode not in _MODES:
        raise ProtocolError(f"unknown tool choice {mode!r}", hint=f"use {', '.join(_MODES)}")
    if mode == "none":
        return ToolChoice("none", names, extra=extra)
    if mode == "any":
        if len(names) == 1:
            return ToolChoice("tool", names, extra=extra)
        return ToolChoice("allowed", names, True, extra) if names else ToolChoice("required", extra=extra)
    if names:
        return ToolChoice("allowed", names, extra={**extra, FORM: {":mode": mode, **extra.get(FORM, {})}})
    return ToolChoice("validated" if mode == "validated" else "auto", extra=extra)


def write_choice(request: Request, losses: Losses) -> JSON:
    """Return the tool choice, or None without one; a request for one call at a time is a loss.

    The API refuses a choice without functions: "Function calling config is set without function_declarations." (vercel/ai,
    prepare-google-interactions-tools.ts). The bridge has fitted such a request.
    """
    if request.parallel is False:
        losses.add(join("parallel"), "one call at a time", "dropped", f"{LABEL} has no setting for parallel calls")
    choice = request.choice
    if choice is None:
        return None
    form = choice.extra.get(FORM, {})
    mode = choice.mode
    if mode == "tool" or (mode == "allowed" and choice.required):
        word = "any"
    elif mode == "allowed":
        word = "validated"  # with "auto", generateContent ignores the list
    else:
        word = "any" if mode == "required" else mode
    if not choice.names and form.get(":choice") != "allowed":
        return word if ":choice" not in form else write_extra({}, choice.extra, NAME)
    allowed: Object = {"mode": form.get(":mode", word), "tools": [*choice.names]}
    if allowed["mode"] == "absent":
        del allowed["mode"]
    if not choice.names:
        del allowed["tools"]
    return write_extra({"allowed_tools": write_extra(allowed, choice.extra, _CHOICE)}, choice.extra, NAME)
