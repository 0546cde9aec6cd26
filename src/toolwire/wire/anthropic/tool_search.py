"""Anthropic's tool search, which the provider runs.

    {"type": "tool_search_tool_regex_20251119" | "tool_search_tool_bm25_20251119", "name": "tool_search_tool_…"}
    {"type": "server_tool_use", "id": "srvtoolu_…", "name": "tool_search_tool_…", "input": {"query": …} | {"pattern": …}}
    {"type": "tool_search_tool_result", "tool_use_id", "content": {"tool_references": […]} | {"error_code": …}}

Source: anthropic 2.8.0, ToolSearchToolBm25_20251119Param, ServerToolUseBlock, ToolSearchToolResultBlock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...ir.parts import Opaque
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ...ir.tools import HostedSearchCall, HostedSearchResult, Tool
from ..search_codec import HostedSearchPart, SearchCodec, unknown_fields
from .blocks import NAME

__all__ = ["SEARCH"]

_METHOD = re.compile(r"tool_search_tool_(regex|bm25)(?:_\d{8})?").fullmatch
_DEFAULT_METHOD = "bm25"  # queries in natural language, as other providers' searches have them
_DATE = "20251119"
_ID_PREFIX = "srvtoolu_"  # "String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
_ERRORS = frozenset({"invalid_tool_input", "unavailable", "too_many_requests", "execution_time_exceeded"})


def _method_of(declaration: Object) -> str | None:
    match = _METHOD(str(declaration.get("type")))
    return None if match is None else match[1]


def _declare(method: str) -> Tool:
    name = f"tool_search_tool_{method or _DEFAULT_METHOD}"
    return Tool(name, kind="builtin", extra={NAME: {"type": f"{name}_{_DATE}", "name": name}})


def _read(part: Opaque) -> HostedSearchPart | None:
    block = part.value
    if part.type == "server_tool_use" and (match := _METHOD(str(block.get("name")))) is not None:
        arguments = block.get("input")
        return HostedSearchCall(str(block.get("id", "")), arguments if type(arguments) is dict else {}, match[1])
    if part.type == "tool_search_tool_result":
        content = block.get("content")
        found, error = _read_content(content if type(content) is dict else {})
        return HostedSearchResult(str(block.get("tool_use_id", "")), found, error)
    return None


def _read_content(content: Object) -> tuple[tuple[str, ...], str | None]:
    """Return the names of the found tools, or the code of an error."""
    references: JSON = content.get("tool_references")
    names = [reference.get("tool_name") for reference in references or () if type(reference) is dict]
    error = content.get("error_code")
    return tuple(name for name in names if type(name) is str), None if error is None else str(error)


def _unread(part: Opaque) -> Iterator[str]:
    block, content = part.value, part.value.get("content")
    if part.type == "server_tool_use":
        yield from unknown_fields(block, ("type", "id", "name", "input"))
        return
    yield from unknown_fields(block, ("type", "tool_use_id", "content"))
    yield from unknown_fields(content, ("type", "tool_references", "error_code"), "/content")
    references = content.get("tool_references") if type(content) is dict else None
    for index, reference in enumerate(references or ()):
        yield from unknown_fields(reference, ("type", "tool_name"), f"/content/tool_references/{index}")


def _write_call(call: HostedSearchCall, *, is_output: bool) -> Opaque:
    del is_output
    name = f"tool_search_tool_{call.method or _DEFAULT_METHOD}"
    block = {"type": "server_tool_use", "id": _legal_id(call.id), "name": name, "input": _query(call.arguments)}
    return Opaque(NAME, "server_tool_use", block)


def _query(arguments: Object) -> Object:
    """Return the input of a search: a query, in place of the paths that other providers' searches have."""
    if type(arguments.get("query")) is str:
        return arguments
    if type(arguments.get("pattern")) is str:  # of a search by regular expressions
        return {"query": arguments["pattern"]}
    paths = arguments.get("paths")
    names = [path for path in paths if type(path) is str] if type(paths) is list else []
    return {"query": " ".join(names) or dumps(arguments)}


def _write_result(result: HostedSearchResult, tools: Sequence[Tool], *, is_output: bool) -> Opaque:
    del is_output
    if result.error is None:
        references = [{"type": "tool_reference", "tool_name": tool.name} for tool in tools]
        content: Object = {"type": "tool_search_tool_search_result", "tool_references": references}
    else:
        code = result.error if result.error in _ERRORS else "unavailable"
        content = {"type": "tool_search_tool_result_error", "error_code": code}
    block = {"type": "tool_search_tool_result", "tool_use_id": _legal_id(result.call_id), "content": content}
    return Opaque(NAME, "tool_search_tool_result", block)


def _legal_id(call_id: str) -> str:
    if call_id.startswith(_ID_PREFIX):
        return call_id
    return _ID_PREFIX + re.sub(r"[^a-zA-Z0-9_]", "_", call_id)


SEARCH = SearchCodec(
    method_of=_method_of,
    fields=("type", "name"),
    declare=_declare,
    read=_read,
    unread=_unread,
    write_call=_write_call,
    write_result=_write_result,
)
