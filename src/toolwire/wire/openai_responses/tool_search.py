"""Tool search on Responses, run by the provider ("server") or by the client.

    {"type": "tool_search", "execution": "server" | "client", "description", "parameters"}
    {"type": "tool_search_call", "execution", "call_id", "arguments": {…}, "status"}
    {"type": "tool_search_output", "execution", "call_id", "tools": [declarations], "status"}

A search that the client runs is a tool, a call and a result of the kind "search", without a name on this wire. Items of a
search that the provider ran are opaque. Source: openai 3.49.0, ToolSearchToolParam, ResponseToolSearchCall.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Opaque, ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.tools import SEARCH_TOOLS, HostedSearchCall, HostedSearchResult, Tool
from ..codec import HostedSearchPart, SearchCodec, unknown_fields
from ..fields import read_extra, write_extra
from .content import NAME
from .tools import read_tools, write_tools

_FORM = "openai_responses~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_CALL = frozenset({"type", "execution", "call_id", "arguments"})
_OUTPUT = frozenset({"type", "execution", "call_id", "tools"})
_ITEM = frozenset({"type", "id", "execution", "call_id", "status", "arguments", "tools"})
_ENTRY = frozenset({"type", "name", "description", "parameters", "strict", "output_schema", "defer_loading", "tools"})


def is_client_search(item: Object) -> bool:
    """Return whether an item belongs to a search that the client runs; only such items need a call id."""
    call_id, execution = item.get("call_id"), item.get("execution")
    return type(call_id) is str and bool(call_id) and execution in ("client", None)


def read_search_call(raw: Object) -> ToolCall | None:
    """Read a call that the client has to run, or return None for any other item; an incomplete one is truncated."""
    arguments = raw.get("arguments")
    if not is_client_search(raw) or type(arguments) is not dict:
        return None
    extra = read_extra(raw, _CALL, NAME)
    if raw.get("execution") is None:
        extra[_FORM] = {**extra.get(_FORM, {}), ":execution": _form_of(raw, "execution")}
    if raw.get("status") == "incomplete":
        extra[_FORM] = {**extra.get(_FORM, {}), ":arguments": arguments}
        return ToolCall(raw["call_id"], SEARCH_TOOLS, raw="", state="truncated", kind="search", extra=extra)
    return ToolCall(raw["call_id"], SEARCH_TOOLS, arguments, kind="search", extra=extra)


def read_search_output(raw: Object) -> ToolResult | None:
    """Read the result of a search that the client ran, or return None. The declarations are kept as form."""
    if not is_client_search(raw):
        return None
    try:
        found = _names(read_tools(raw))
    except ProtocolError:
        return None
    extra = read_extra(raw, _OUTPUT, NAME)
    form: Object = {":tools": raw.get("tools", "absent")}
    if raw.get("execution") is None:
        form[":execution"] = _form_of(raw, "execution")
    extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return ToolResult(raw["call_id"], kind="search", extra=extra, found=found)


def read_output_tools(part: ToolResult | Opaque) -> tuple[Tool, ...]:
    """Return the functions that an item of a search declares."""
    if isinstance(part, ToolResult):
        declared: JSON = part.extra.get(_FORM, {}).get(":tools")
    else:
        declared = part.value.get("tools") if part.type == "tool_search_output" else None
    try:
        tools = read_tools({"tools": declared}) if type(declared) is list else ()
    except ProtocolError:
        return ()
    return tuple([tool for tool in tools if tool.kind != "builtin"])


def _names(tools: tuple[Tool, ...]) -> tuple[str, ...]:
    return tuple([tool.name for tool in tools if tool.kind != "builtin"])


def write_search_call(call: ToolCall) -> Object:
    """Write a call of a search; its arguments are an object, also if they were text."""
    out: Object = {"type": "tool_search_call", "execution": "client", "call_id": call.id}
    form = call.extra.get(_FORM, {})
    out["arguments"] = form.get(":arguments", {}) if call.arguments is None else call.arguments
    _restore_execution(out, form)
    return write_extra(out, call.extra, NAME)


def _form_of(raw: Object, field: str) -> str:
    return "null" if field in raw else "absent"


def _restore_execution(out: Object, form: Object) -> None:
    """Leave the execution out, or null, if it was read so."""
    if form.get(":execution") == "null":
        out["execution"] = None
    elif ":execution" in form:
        del out["execution"]


def write_search_output(result: ToolResult, declared: Mapping[str, Tool], losses: Losses, path: str) -> Object:
    """Write the result of a search with the declarations of the tools that it found.

    The original declarations are written back if the names are the same. Its text and an error flag are losses.
    """
    form = result.extra.get(_FORM, {})
    if result.is_error:
        losses.add(f"{path}/is_error", "is_error", "dropped", "Responses outputs have no error flag", "error")
    if replace(result, found=()).text:
        detail = "the result of a search holds only the declarations of the found tools"
        losses.add(path, "text of a search result", "dropped", detail, "info")
    out: Object = {"type": "tool_search_output", "execution": "client", "call_id": result.call_id}
    if ":tools" not in form:
        out["status"] = "completed"
    out["tools"] = form.get(":tools")
    extra = result.extra
    if ":tools" not in form or _names(read_output_tools(result)) != result.found:
        out["tools"] = write_tools(tuple(_found_tools(result, declared, losses, path)), losses)
        extra = {**extra, NAME: {key: value for key, value in extra.get(NAME, {}).items() if key != "tools"}}
    elif form[":tools"] == "absent":
        del out["tools"]
    _restore_execution(out, form)
    return write_extra(out, extra, NAME)


def _found_tools(result: ToolResult, declared: Mapping[str, Tool], losses: Losses, path: str) -> list[Tool]:
    for name in result.found:
        if name not in declared:
            detail = f"{name!r} is not declared; sent without parameters"
            losses.add(f"{path}/found", "found tool", "weakened", detail)
    return [declared.get(name) or Tool(name, deferred=True) for name in result.found]


def _method_of(declaration: Object) -> str | None:
    is_search = declaration.get("type") == "tool_search" and declaration.get("execution") != "client"
    return "" if is_search else None


def _declare(method: str) -> Tool:
    del method  # the provider has one
    return Tool("tool_search", kind="builtin", extra={NAME: {"type": "tool_search"}})


def _read(part: Opaque) -> HostedSearchPart | None:
    """Read a part of a tool search: its call or its result, or None for any other part."""
    item = part.value
    if part.type == "tool_search_call":
        arguments = item.get("arguments")
        arguments = arguments if type(arguments) is dict else {}
        is_complete = item.get("status") != "in_progress"
        return HostedSearchCall(str(item.get("call_id") or item.get("id") or ""), arguments, "", is_complete)
    if part.type == "tool_search_output":
        found = _names(read_output_tools(part))
        error = "unavailable" if item.get("status") == "incomplete" and not found else None
        return HostedSearchResult(str(item.get("call_id") or ""), found, error)
    return None


def _unread(part: Opaque) -> Iterator[str]:
    item = part.value
    yield from unknown_fields(item, _ITEM)
    for index, entry in enumerate(item.get("tools") or ()):
        yield from unknown_fields(entry, _ENTRY, f"/tools/{index}")
        inner = entry.get("tools") if type(entry) is dict else None
        for number, tool in enumerate(inner or ()):
            yield from unknown_fields(tool, _ENTRY, f"/tools/{index}/tools/{number}")


def _write_call(call: HostedSearchCall, *, is_output: bool) -> Opaque:
    item = {"type": "tool_search_call", **_identify("tsc", call.id, is_output=is_output), "arguments": call.arguments}
    item["status"] = "completed" if call.is_complete else "in_progress"
    return Opaque(NAME, "tool_search_call", item)


def _write_result(result: HostedSearchResult, tools: Sequence[Tool], *, is_output: bool) -> Opaque:
    item = {"type": "tool_search_output", **_identify("tso", result.call_id, is_output=is_output)}
    item["status"] = "completed" if result.error is None else "incomplete"
    item["tools"] = write_tools(tuple(tools), Losses())
    return Opaque(NAME, "tool_search_output", item)


def _identify(prefix: str, call_id: str, *, is_output: bool) -> Object:
    """Return the ids of an item. In a request it has none: the provider would look up an item with an id."""
    own_id: Object = {"id": f"{prefix}_{call_id}"} if is_output else {}
    return {**own_id, "execution": "server", "call_id": None}


SEARCH = SearchCodec(
    method_of=_method_of,
    fields=("type", "execution"),
    declare=_declare,
    read=_read,
    unread=_unread,
    write_call=_write_call,
    write_result=_write_result,
)
