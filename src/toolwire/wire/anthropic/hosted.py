"""Hosted tools on Messages: server tools.

    {"type": "web_search_20250305", "name": "web_search", "max_uses", "allowed_domains", "blocked_domains", "user_location"}
    {"type": "web_fetch_20250910", "name": "web_fetch", …}    {"type": "code_execution_20250825", "name": "code_execution"}
    {"type": "server_tool_use", "id": "srvtoolu_…", "name", "input": {"query" | "url" | "code" | "command": …}}
    {"type": "web_search_tool_result", "tool_use_id", "content": [{"type": "web_search_result", "url", "title", …}]}

A text has `citations`, each of which belongs to the whole block. Results of a search have an encrypted content, which
only Anthropic can read. Source: anthropic 2.10.0, types/web_search_*.py, web_fetch_*.py, *code_execution_*.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.hosted import Citation, HostedKind, HostedRun, HostedTool, WebPage, count_runs
from ...ir.parts import Extra, Opaque
from ...ir.pointer import JSON, Object
from ...ir.response import Usage
from ...ir.text import dumps
from ...ir.tools import Tool
from ..hosted import (
    Citations,
    HostedCodec,
    issue_id,
    list_objects,
    read_citations,
    read_location,
    read_strings,
    read_text_field,
    seal_text,
    unseal_text,
    write_location,
)

NAME = "anthropic"
_DECLARED = re.compile(r"(web_search|web_fetch|code_execution)_\d{8}").fullmatch
# The oldest version of each that is not in beta: every model with the tool accepts it.
_TYPES = {"web_search": "web_search_20250305", "web_fetch": "web_fetch_20250910"}
_CODE = "code_execution_20250825"
_PLACE = dict.fromkeys(("type", "city", "region", "country", "timezone"))
_TOOL = {**dict.fromkeys(("type", "name", "max_uses", "allowed_domains", "blocked_domains")), "user_location": _PLACE}
# `caller` names the run of code that made a call, which is no part of the result.
_RESULT = dict.fromkeys(("type", "tool_use_id", "caller"))
_FOUND = dict.fromkeys(("type", "url", "title", "encrypted_content", "page_age", "error_code"))
_DOCUMENT = {"type": None, "title": None, "citations": None, "source": dict.fromkeys(("type", "media_type", "data"))}
_PAGE = {**dict.fromkeys(("type", "url", "retrieved_at", "error_code")), "content": _DOCUMENT}
_OUTPUT = dict.fromkeys(("type", "stdout", "stderr", "return_code", "abort_reason", "error_code"))
_CITATION = dict.fromkeys(("type", "url", "source", "title", "cited_text", "encrypted_index", "search_result_index"))
_WRITTEN = frozenset({"max_uses", "allowed_domains", "blocked_domains"})
_INPUTS = {"web_search": "query", "web_fetch": "url", "code_execution": "code"}
_NAMES: dict[str, HostedKind] = {
    "web_search": "web_search",
    "web_fetch": "web_fetch",
    "code_execution": "code_execution",
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
}
_RESULTS: dict[str, HostedKind] = {f"{name}_tool_result": kind for name, kind in _NAMES.items()}
_CONTENTS = {"web_search": _FOUND, "web_fetch": _PAGE, "code_execution": _OUTPUT}
_ERRORS = {
    "web_search": ("invalid_tool_input", "unavailable", "max_uses_exceeded", "too_many_requests", "query_too_long"),
    "web_fetch": ("invalid_tool_input", "url_not_accessible", "unavailable", "max_uses_exceeded", "too_many_requests"),
    "code_execution": ("invalid_tool_input", "unavailable", "too_many_requests", "execution_time_exceeded"),
}


def _read_tool(raw: Object) -> HostedTool | None:
    match = _DECLARED(str(raw.get("type")))
    if match is None:
        return None
    kind: HostedKind = match[1]  # type: ignore[assignment]
    uses = raw.get("max_uses")
    return HostedTool(
        kind,
        uses if type(uses) is int else None,
        read_strings(raw.get("allowed_domains")),
        read_strings(raw.get("blocked_domains")),
        read_location(raw.get("user_location")),
    )


def _write_tool(tool: HostedTool) -> tuple[Tool, frozenset[str]]:
    if tool.kind == "code_execution":
        return _declare({"type": _CODE, "name": tool.kind}), frozenset()
    out: Object = {"type": _TYPES[tool.kind], "name": tool.kind}
    if tool.max_uses is not None:
        out["max_uses"] = tool.max_uses
    if tool.allowed_domains:
        out["allowed_domains"] = [*tool.allowed_domains]
    elif tool.blocked_domains:  # "Cannot be used alongside `allowed_domains`"
        out["blocked_domains"] = [*tool.blocked_domains]
    if tool.location is not None and tool.kind == "web_search":
        out["user_location"] = {"type": "approximate", **write_location(tool.location)}
    return _declare(out), _WRITTEN | {"location"} if tool.kind == "web_search" else _WRITTEN


def _declare(raw: Object) -> Tool:
    return Tool(raw["name"], kind="builtin", extra={NAME: raw})


def _read_run(part: Opaque) -> HostedRun | None:
    block = part.value
    if part.type == "server_tool_use":
        kind = _NAMES.get(str(block.get("name")))
        if kind is None:
            return None
        return HostedRun(read_text_field(block, "id"), kind, _read_inputs(kind, block.get("input")), phase="call")
    kind = _RESULTS.get(part.type)
    if kind is None:
        return None
    run = HostedRun(read_text_field(block, "tool_use_id"), kind, phase="result")
    content: JSON = block.get("content")
    if type(content) is dict and "error_code" in content:
        return replace(run, error=str(content["error_code"]))
    if kind == "web_search":
        return replace(run, sources=tuple(map(_read_source, list_objects(content))))
    if type(content) is not dict:
        return run
    return _read_page(run, content) if kind == "web_fetch" else _read_output(run, content)


def _read_inputs(kind: HostedKind, raw: JSON) -> tuple[str, ...]:
    """Return the query, the URL or the program of a call; a command of the text editor is its JSON text."""
    for name in (_INPUTS[kind], "command"):
        value = read_text_field(raw, name)
        if value and not (name == "command" and type(raw) is dict and "path" in raw):
            return (value,)
    return (dumps(raw),) if raw else ()


def _read_source(raw: Object) -> WebPage:
    text = unseal_text(raw.get("encrypted_content"))
    age = read_text_field(raw, "page_age") or None
    return WebPage(read_text_field(raw, "url"), read_text_field(raw, "title"), text or "", age)


def _read_page(run: HostedRun, content: Object) -> HostedRun:
    document: JSON = content.get("content")
    if type(document) is not dict:
        document = {}
    source: JSON = document.get("source")
    is_text = type(source) is dict and source.get("type") == "text"
    text = read_text_field(source, "data") if is_text else ""  # a PDF is base64
    page = WebPage(read_text_field(content, "url"), read_text_field(document, "title"), text)
    return replace(run, sources=(page,))


def _read_output(run: HostedRun, content: Object) -> HostedRun:
    """Read the output of code, of a shell command, or of the text editor, whose result has other fields."""
    if "stdout" not in content and "stderr" not in content:
        shown = {name: value for name, value in content.items() if name != "type" and value is not None}
        return replace(run, output=dumps(shown) if shown else "")
    failed = content.get("return_code") not in (0, None)
    errors = read_text_field(content, "stderr")
    output = read_text_field(content, "stdout")
    if not failed:
        return replace(run, output=output + errors)
    return replace(run, output=output, error=errors or f"exit status {content['return_code']}")


def _write_run(run: HostedRun, run_id: str) -> list[Opaque]:
    block_id = issue_id("srvtoolu", run_id)
    separator = " " if run.kind != "code_execution" else "\n"
    value = run.inputs[0] if len(run.inputs) == 1 else separator.join(run.inputs)
    call = {"type": "server_tool_use", "id": block_id, "name": run.kind, "input": {_INPUTS[run.kind]: value}}
    kind = f"{run.kind}_tool_result"
    result = {"type": kind, "tool_use_id": block_id, "content": _write_content(run)}
    return [Opaque(NAME, "server_tool_use", call), Opaque(NAME, kind, result)]


def _write_content(run: HostedRun) -> JSON:
    """Write the content of a result. The failure of a program is a result, too; an unknown error is `unavailable`."""
    if run.kind == "code_execution" and (run.error is None or run.error not in _ERRORS[run.kind]):
        return {
            "type": "code_execution_result",
            "stdout": run.output,
            "stderr": run.error or "",
            "return_code": 0 if run.error is None else 1,
            "content": [],
        }
    if run.error is not None:
        code = run.error if run.error in _ERRORS[run.kind] else "unavailable"
        return {"type": f"{run.kind}_tool_result_error", "error_code": code}
    if run.kind == "web_search":
        return [_write_source(source) for source in run.sources]
    page = run.sources[0] if run.sources else WebPage(run.inputs[0] if run.inputs else "")
    document: Object = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": page.text},
        "title": page.title or None,
        "citations": None,
    }
    return {"type": "web_fetch_result", "url": page.url, "content": document, "retrieved_at": None}


def _write_source(source: WebPage) -> Object:
    return {
        "type": "web_search_result",
        "url": source.url,
        "title": source.title or source.url,
        "encrypted_content": seal_text(source.text),
        "page_age": source.age,
    }


def _read_text(extra: Extra) -> Citations:
    """Return the citations of web pages; a citation of a document of the request has no URL."""
    return read_citations(extra.get(NAME, {}).get("citations"), "/citations", _read_citation, _CITATION)


def _read_citation(raw: Object) -> Citation | None:
    url = read_text_field(raw, "url") or read_text_field(raw, "source")
    return Citation(url, read_text_field(raw, "title"), read_text_field(raw, "cited_text")) if url else None


def _write_text(citations: Sequence[Citation]) -> Extra:
    if not citations:
        return {}
    written = [
        {
            "type": "web_search_result_location",
            "url": citation.url,
            "title": citation.title or citation.url,
            "cited_text": citation.text,
            "encrypted_index": seal_text(""),
        }
        for citation in citations
    ]
    return {NAME: {"citations": written}}


def _write_usage(usage: Usage, runs: Sequence[HostedRun]) -> Usage:
    numbers = count_runs(runs)
    counts = {f"{kind}_requests": numbers.get(kind, 0) for kind in ("web_search", "web_fetch")}
    own = usage.extra.get(NAME, {})
    return replace(usage, extra={**usage.extra, NAME: {**own, "server_tool_use": counts}})


HOSTED = HostedCodec(
    read_tool=_read_tool,
    write_tool=_write_tool,
    kinds=frozenset({"web_search", "web_fetch", "code_execution"}),
    tool_shape=_TOOL,
    parts={
        "server_tool_use": {**dict.fromkeys(("type", "id", "name", "input", "caller")), "cache_control": None},
        **{kind: {**_RESULT, "content": _CONTENTS[hosted]} for kind, hosted in _RESULTS.items()},
    },
    read_run=_read_run,
    write_run=_write_run,
    shows=frozenset({"web_search", "web_fetch", "code_execution"}),
    scopes=frozenset({(NAME, "citations")}),
    read_text=_read_text,
    covers_text=True,
    write_text=_write_text,
    write_usage=_write_usage,
)
