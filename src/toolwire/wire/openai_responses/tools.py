"""Tool declarations and tool choice on Responses: flat, where Chat nests.

    {"type": "function", "name", "description", "parameters", "strict", "output_schema", "defer_loading", …}
    {"type": "custom", "name", "description", "format": {"type": "grammar", "syntax", "definition"}}
    {"type": "namespace", "name", "description", "tools": […]}        each tool in it becomes a Tool with that namespace
    {"type": "tool_search", "execution": "client", "description", "parameters"}        a Tool of the kind "search"

An absent `strict` means "strict where the schema allows it" on this wire and only here. Its absence is therefore kept
as a field that other wires do not have, and a tool from another wire without `strict` is sent with `false`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra
from ...ir.pointer import JSON, Object, join
from ...ir.tools import SEARCH_TOOLS, ChoiceMode, Grammar, Tool, ToolChoice
from ..fields import (
    decode_list,
    read_boolean,
    read_extra,
    read_optional_string,
    read_string,
    require_object,
    type_error,
    write_builtin,
    write_extra,
)
from .content import NAME
from .typed_tools import read_typed_tool

_FORM = "openai_responses~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_NAMESPACE = "openai_responses/namespace"
_FORMAT = "openai_responses/format"
_CHOICE = "openai_responses/choice"
_NAMESPACE_FORM = "openai_responses/namespace~"
_FUNCTION = frozenset({"type", "name", "description", "parameters", "strict", "output_schema", "defer_loading"})
_CUSTOM = frozenset({"type", "name", "description", "format", "defer_loading"})
_SEARCH = frozenset({"type", "execution", "description", "parameters"})
# "rejects client-executed tool_search without a description": pydantic-ai 2.66.0, models/openai.py
_SEARCH_DESCRIPTION = "Search for more tools by a description of the task."


def read_tools(raw: Object, key: str = "tools") -> tuple[Tool, ...]:
    return tuple(tool for group in decode_list(raw, key, _read_entry) for tool in group)


def _read_entry(raw: JSON) -> list[Tool]:
    """Read one entry: a tool, or the tools of a namespace. A namespace with built-in tools is kept whole."""
    kind = require_object(raw).get("type")
    if kind == "namespace" and type(raw.get("tools")) is list and raw["tools"]:
        name = read_string(raw, "name")
        space = read_extra(raw, ("type", "name", "tools"), _NAMESPACE)
        if "description" not in raw:
            space[_NAMESPACE_FORM] = {**space.get(_NAMESPACE_FORM, {}), ":description": "absent"}
        tools = decode_list(raw, "tools", _read_tool)
        if all(tool.kind not in ("builtin", "typed") for tool in tools):
            return [_add_namespace(tool, name, space) for tool in tools]
    return [_read_tool(raw)]


def _add_namespace(tool: Tool, name: str, space: Extra) -> Tool:
    """Copy a tool into a namespace; `space` holds the namespace's own fields, for writing it back."""
    return Tool(
        tool.name,
        tool.description,
        tool.input_schema,
        tool.output_schema,
        tool.strict,
        tool.kind,
        namespace=name,
        grammar=tool.grammar,
        deferred=tool.deferred,
        extra={**tool.extra, **space},
    )


def _read_tool(raw: JSON) -> Tool:
    """Read a declaration; a type other than function and custom is a built-in tool, or a search of the client.

    The usual five fields take a fast path. Raise ProtocolError if it is invalid.
    """
    kind = require_object(raw).get("type")
    if kind == "function" and len(raw) == 5:
        name, description_text, schema, strict = (
            raw.get("name"),
            raw.get("description"),
            raw.get("parameters"),
            raw.get("strict"),
        )
        if (
            type(name) is str
            and type(description_text) is str
            and description_text
            and type(schema) is dict
            and schema
            and type(strict) is bool
        ):
            return Tool(name, description_text, schema, strict=strict)
    if kind == "custom":
        return _read_custom(raw)
    if kind == "tool_search" and raw.get("execution") == "client":
        return _read_search(raw)
    if kind != "function":
        return read_typed_tool(raw) or Tool(read_string(raw, "type"), kind="builtin", extra={NAME: raw})
    parameters = raw.get("parameters")
    if parameters is not None and type(parameters) is not dict:
        raise type_error("a JSON Schema object", parameters, "parameters")
    output_schema = raw.get("output_schema")
    extra = read_extra(raw, _FUNCTION, NAME)
    if "parameters" not in raw:
        extra[_FORM] = {**extra.get(_FORM, {}), ":parameters": "absent"}
    if raw.get("strict") is None:
        extra.setdefault(NAME, {})[":strict"] = "strict where the schema allows it"
    return Tool(
        read_string(raw, "name"),
        read_optional_string(raw, "description"),
        parameters,
        require_object(output_schema, "output_schema") if output_schema is not None else None,
        read_boolean(raw, "strict"),
        deferred=read_boolean(raw, "defer_loading"),
        extra=extra,
    )


def _read_custom(raw: Object) -> Tool:
    """Read a freeform tool; a format other than a grammar is kept as a field of this wire or as form."""
    extra = read_extra(raw, _CUSTOM, NAME)
    grammar, form = None, raw.get("format")
    if form is not None:
        kind = require_object(form, "format").get("type")
        if kind == "grammar":
            grammar = Grammar(read_string(form, "syntax"), read_string(form, "definition"))
            read_extra(form, ("type", "syntax", "definition"), _FORMAT, extra)
        elif kind == "text" and len(form) == 1:
            extra[_FORM] = {**extra.get(_FORM, {}), ":format": "text"}
        else:
            extra.setdefault(NAME, {})["format"] = form
    deferred = read_boolean(raw, "defer_loading")
    description = read_optional_string(raw, "description")
    return Tool(read_string(raw, "name"), description, kind="freeform", grammar=grammar, deferred=deferred, extra=extra)


def _read_search(raw: Object) -> Tool:
    """Read the declaration of a search that the client runs, which has no name; odd fields go into `extra`."""
    extra = read_extra(raw, _SEARCH, NAME)
    parameters = raw.get("parameters")
    if parameters and type(parameters) is not dict:
        extra.setdefault(NAME, {})["parameters"] = parameters
    if "description" not in raw:
        extra[_FORM] = {**extra.get(_FORM, {}), ":description": "absent"}
    schema = parameters if type(parameters) is dict and parameters else None
    return Tool(SEARCH_TOOLS, read_optional_string(raw, "description"), schema, kind="search", extra=extra)


def read_discovered_tools(body: JSON) -> tuple[Tool, ...]:
    """Return the tools that a tool search or an MCP listing found: in a response, a list of items, or one item.

    Raise ProtocolError if there is none.
    """
    items = body.get("output", [body]) if type(body) is dict else body
    tools: list[Tool] = []
    for item in items if type(items) is list else ():
        kind = item.get("type") if type(item) is dict else None
        if kind == "tool_search_output":
            tools += read_tools(item)
        elif kind == "mcp_list_tools":
            tools += decode_list(item, "tools", _read_mcp_tool)
    if not tools:
        raise ProtocolError("found no tool_search_output or mcp_list_tools item", pointer="/output")
    return tuple(tools)


def _read_mcp_tool(raw: JSON) -> Tool:
    """Read a tool of an MCP listing, which has MCP's fields in this wire's spelling."""
    schema = require_object(raw).get("input_schema")
    return Tool(
        read_string(raw, "name"),
        read_optional_string(raw, "description"),
        None if schema is None else require_object(schema, "input_schema"),
        extra=read_extra(raw, ("name", "description", "input_schema"), NAME),
    )


def is_loaded_later(tool: Tool, tools: Sequence[Tool]) -> bool:
    """Return whether a tool is declared in the result of a search, not in `tools`: the client loads it itself."""
    place = tool.extra.get(_FORM, {}).get(":place")
    if not tool.deferred or place == "tools":
        return False
    return place == "output" or any(other.kind == "search" for other in tools)


def write_declared_tools(tools: tuple[Tool, ...], losses: Losses) -> list[Object]:
    """Write the declarations of a request, without the tools that results of searches declare."""
    later = {index for index, tool in enumerate(tools) if tool.deferred and is_loaded_later(tool, tools)}
    return write_tools(tools, losses, later)


def write_tools(tools: tuple[Tool, ...], losses: Losses, skipped: Collection[int] = ()) -> list[Object]:
    """Write the declarations; consecutive tools of one namespace share an entry.

    `skipped` are the indices of tools to leave out. Tools and fields that Responses lacks are losses.
    """
    out: list[Object] = []
    space: Object | None = None  # the namespace that is open
    for index, tool in enumerate(tools):
        if index in skipped:
            continue
        written = _write_tool(tool, losses, f"/tools/{index}")
        if written is None:
            continue
        if tool.namespace is None:
            space = None
            out.append(written)
            continue
        if space is None or space["name"] != tool.namespace:
            space = {"type": "namespace", "name": tool.namespace, "description": "", "tools": []}
            if _NAMESPACE_FORM in tool.extra:
                del space["description"]  # its form holds the original description, if it had one
            space = write_extra(space, tool.extra, _NAMESPACE)
            out.append(space)
        space["tools"].append(written)
    return out


def _write_tool(tool: Tool, losses: Losses, path: str) -> Object | None:
    """Write a declaration; return None and report the loss for a built-in tool of another provider.

    Fields that Responses lacks are losses.
    """
    if tool.kind == "builtin" or (tool.kind == "typed" and NAME in tool.extra):
        return write_builtin(tool, NAME, "Responses", losses, path)
    if tool.kind == "search":
        return _write_search(tool, losses, path)
    if tool.examples:
        losses.add(f"{path}/examples", "examples", "dropped", "Responses declarations have no field for them")
    if tool.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Responses has no cache mark on tools", "info")
    out: Object = {"type": "custom" if tool.kind == "freeform" else "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.kind == "freeform":
        if tool.grammar is not None:
            rules: Object = {"type": "grammar", "syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
            out["format"] = write_extra(rules, tool.extra, _FORMAT)
        elif ":format" in tool.extra.get(_FORM, {}):
            out["format"] = {"type": "text"}
    else:
        _write_function(tool, out)
    if tool.deferred is not None:
        out["defer_loading"] = tool.deferred
    return write_extra(out, tool.extra, NAME)


def _write_search(tool: Tool, losses: Losses, path: str) -> Object:
    """Write the declaration of a search that the client runs; its name is a loss, a description is added."""
    if tool.name != SEARCH_TOOLS:
        losses.add(f"{path}/name", "tool name", "dropped", "a search has no name on Responses", "info")
    out: Object = {"type": "tool_search", "execution": "client"}
    if tool.description is not None:
        out["description"] = tool.description
    elif not {"description", ":description"} & tool.extra.get(_FORM, {}).keys():
        out["description"] = _SEARCH_DESCRIPTION
    if tool.input_schema is not None:
        out["parameters"] = tool.input_schema
    return write_extra(out, tool.extra, NAME)


def _write_function(tool: Tool, out: Object) -> None:
    """Add the schemas and `strict` to `out`; a tool from another wire without `strict` is sent with false."""
    if tool.input_schema is not None:
        out["parameters"] = tool.input_schema
    elif tool.namespace is None and {"parameters", ":parameters"}.isdisjoint(tool.extra.get(_FORM, {})):
        closed: Object = {"required": [], "additionalProperties": False} if tool.strict else {}
        out["parameters"] = {"type": "object", "properties": {}, **closed}
    if tool.strict is not None:
        out["strict"] = tool.strict
    elif ":strict" not in tool.extra.get(NAME, {}):
        out["strict"] = False
    if tool.output_schema is not None:
        out["output_schema"] = tool.output_schema


_MODES: dict[str, ChoiceMode] = {"auto": "auto", "none": "none", "required": "required"}


def read_choice(value: JSON) -> ToolChoice | None:
    """Read `tool_choice`: a mode, a named tool or the allowed tools; most objects are also kept as form.

    Raise ProtocolError for an unknown mode or an invalid entry. Return None without a choice.
    """
    if value is None:
        return None
    if type(value) is str:
        mode = _MODES.get(value)
        if mode is None:
            raise ProtocolError(
                f"unknown tool choice {value!r}", pointer="/tool_choice", hint="use auto, none or required"
            )
        return ToolChoice(mode)
    kind = require_object(value, "tool_choice").get("type")
    if kind in ("function", "custom") and type(value.get("name")) is str:
        extra: Extra = {_FORM: {":choice": "custom"}} if kind == "custom" else {}
        return ToolChoice("tool", (value["name"],), extra=read_extra(value, ("type", "name"), NAME, extra))
    if kind == "allowed_tools":
        try:
            names = tuple(decode_list(value, "tools", _entry_name))
        except ProtocolError as error:
            raise error.within("tool_choice") from None
        known = ("type", "tools", "mode") if value.get("mode") in ("auto", "required") else ("type", "tools")
        extra = {**read_extra(value, known, _CHOICE), **_original_form(value, *names)}
        for entry in value.get("tools") or ():
            if type(entry) is dict and entry.get("type") in ("function", "custom"):
                read_extra(entry, ("type", "name"), _CHOICE, extra)
        return ToolChoice("allowed", names, required=value.get("mode") == "required", extra=extra)
    name = _entry_name(value)
    return ToolChoice(
        "tool", (name,), extra={**read_extra(value, ("type", "name"), _CHOICE), **_original_form(value, name)}
    )


def _original_form(value: Object, *names: str) -> Extra:
    """Keep a choice as it was written; it is written back if the names are still the same."""
    return {f"{_CHOICE}~": {"names": names, "value": value}}


def _entry_name(entry: JSON) -> str:
    """Return the name of a function; for a built-in tool its type, which is the name of its declaration here."""
    kind = read_string(require_object(entry), "type")
    return read_string(entry, "name") if kind in ("function", "custom") else kind


def write_choice(choice: ToolChoice, tools: tuple[Tool, ...], losses: Losses) -> JSON:
    """Return `tool_choice`; a choice that was kept as form is written back if its names are the same.

    A forced search and `validated` are sent as the nearest mode and reported.
    """
    given = choice.extra.get(f"{_CHOICE}~")
    if given is not None and given["names"] == choice.names:
        return given["value"]
    form = choice.extra.get(_FORM, {})
    kinds = {tool.name: tool.kind for tool in tools}
    if form.get(":choice") == "custom":
        kinds.update(dict.fromkeys(choice.names, "freeform"))
    if choice.mode == "tool" and kinds.get(choice.names[0]) == "search":
        detail = "Responses cannot force a search that the client runs; sent as 'required'"
        losses.add(join("choice"), "tool choice", "weakened", detail)
        return "required"
    if choice.mode == "tool":
        return write_extra(_named_choice(choice.names[0], kinds), choice.extra, NAME)
    if choice.mode == "allowed":
        entries = [_named_choice(name, kinds) for name in choice.names]
        return {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": entries}
    if choice.mode == "validated":
        losses.add(join("choice"), "validated", "weakened", "Responses validates with `strict` on each tool")
        return "auto"
    return choice.mode


def _named_choice(name: str, kinds: Mapping[str, str]) -> Object:
    if kinds.get(name) in ("builtin", "typed"):
        return {"type": name}
    if kinds.get(name) == "search":
        return {"type": "tool_search"}
    return {"type": "custom" if kinds.get(name) == "freeform" else "function", "name": name}
