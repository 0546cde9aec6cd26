"""Hosted tools on Responses.

    {"type": "web_search", "filters": {"allowed_domains"}, "user_location", "search_context_size"}
    {"type": "code_interpreter", "container": {"type": "auto"}}
    {"type": "web_search_call", "id", "status", "action": {"type": "search" | "open_page" | "find_in_page", …}}
    {"type": "code_interpreter_call", "id", "status", "code", "container_id", "outputs": [{"type": "logs", "logs"}]}

Web search also opens pages, so it stands for web fetch, too. An output text has `annotations` with positions in it.
The response has the number of searches: `"tool_usage": {"web_search": {"num_requests"}, "image_gen": {…}}`.
Source: openai 3.51.0, types/responses/response_function_web_search.py, response_code_interpreter_tool_call.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.events import ResponseEnd
from ...ir.hosted import Citation, HostedRun, HostedTool, WebPage, count_runs
from ...ir.parts import Extra, Opaque
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ..hosted import (
    Citations,
    HostedCodec,
    issue_id,
    list_objects,
    read_citations,
    read_location,
    read_position,
    read_strings,
    read_text_field,
    write_location,
)
from .content import NAME

_SEARCH_TYPES = frozenset(
    {"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"}
)
_TOOL = {
    "type": None,
    "container": {"type": None},
    "filters": dict.fromkeys(("allowed_domains", "blocked_domains")),
    "user_location": dict.fromkeys(("type", "city", "region", "country", "timezone")),
    "search_context_size": None,
}
# The container is a machine of the provider, and an image in the outputs is at an address of its own.
_CODE = {
    **dict.fromkeys(("type", "id", "status", "code", "container_id")),
    "outputs": dict.fromkeys(("type", "logs")),
}
_SEARCH = {
    **dict.fromkeys(("type", "id", "status")),
    "action": {**dict.fromkeys(("type", "url", "query", "queries")), "sources": dict.fromkeys(("type", "url"))},
}
_CITATION = dict.fromkeys(("type", "url", "title", "start_index", "end_index"))
_FAILED = frozenset({"failed", "incomplete"})


def _read_tool(raw: Object) -> HostedTool | None:
    kind = raw.get("type")
    if kind == "code_interpreter":
        return HostedTool("code_execution")
    if kind not in _SEARCH_TYPES:
        return None
    filters: JSON = raw.get("filters")
    size = raw.get("search_context_size")
    return HostedTool(
        "web_search",
        allowed_domains=read_strings(filters.get("allowed_domains")) if type(filters) is dict else (),
        blocked_domains=read_strings(filters.get("blocked_domains")) if type(filters) is dict else (),
        location=read_location(raw.get("user_location")),
        context_size=size if type(size) is str else None,
    )


def _write_tool(tool: HostedTool) -> tuple[Tool, frozenset[str]]:
    if tool.kind == "code_execution":
        raw: Object = {"type": "code_interpreter", "container": {"type": "auto"}}
        return Tool("code_interpreter", kind="builtin", extra={NAME: raw}), frozenset()
    out: Object = {"type": "web_search"}
    if tool.allowed_domains:
        out["filters"] = {"allowed_domains": [*tool.allowed_domains]}
    if tool.location is not None:
        out["user_location"] = {"type": "approximate", **write_location(tool.location)}
    if tool.context_size is not None:
        out["search_context_size"] = tool.context_size
    written = frozenset({"allowed_domains", "location", "context_size"})
    return Tool("web_search", kind="builtin", extra={NAME: out}), written


def _read_run(part: Opaque) -> HostedRun | None:
    item = part.value
    run_id, status = read_text_field(item, "id"), item.get("status")
    error = "unavailable" if status in _FAILED else None
    if part.type == "code_interpreter_call":
        logs = [read_text_field(output, "logs") for output in list_objects(item.get("outputs"))]
        code = read_text_field(item, "code")
        return HostedRun(run_id, "code_execution", (code,) if code else (), (), "".join(logs), error)
    if part.type != "web_search_call":
        return None
    action: JSON = item.get("action")
    if type(action) is not dict:
        return HostedRun(run_id, "web_search", error=error)
    url = read_text_field(action, "url")
    if action.get("type") in ("open_page", "find_in_page"):
        return HostedRun(run_id, "web_fetch", (url,) if url else (), (WebPage(url),) if url else (), error=error)
    queries = read_strings(action.get("queries")) or read_strings(action.get("query"))
    urls = [read_text_field(source, "url") for source in list_objects(action.get("sources"))]
    return HostedRun(run_id, "web_search", queries, tuple([WebPage(found) for found in urls if found]), error=error)


def _write_run(run: HostedRun, run_id: str) -> list[Opaque]:
    status = "failed" if run.error is not None and run.kind != "code_execution" else "completed"
    if run.kind == "code_execution":
        logs = "\n".join([text for text in (run.output, run.error) if text])
        item: Object = {
            "type": "code_interpreter_call",
            "id": issue_id("ci", run_id),
            "status": status,
            "code": "\n".join(run.inputs),
            "container_id": "",  # the container is the other provider's
            "outputs": [{"type": "logs", "logs": logs}],
        }
        return [Opaque(NAME, "code_interpreter_call", item)]
    if run.kind == "web_fetch":
        action: Object = {"type": "open_page", "url": run.inputs[0] if run.inputs else None}
    else:
        sources: list[JSON] = [{"type": "url", "url": source.url} for source in run.sources]
        query = run.inputs[0] if run.inputs else ""
        action = {"type": "search", "query": query, "queries": [*run.inputs], "sources": sources}
    item = {"type": "web_search_call", "id": issue_id("ws", run_id), "status": status, "action": action}
    return [Opaque(NAME, "web_search_call", item)]


_STATES = {
    "web_search_call": ("in_progress", "searching", "completed"),
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
}


def progress_events(part: Opaque) -> list[str]:
    """Return the names of the events of a stream between the start and the end of a completed run."""
    if part.value.get("status") != "completed" or type(part.value.get("id")) is not str:
        return []
    return [f"response.{part.type}.{state}" for state in _STATES.get(part.type, ())]


def _read_text(extra: Extra) -> Citations:
    """Return the citations of web pages; other annotations name files."""
    return read_citations(extra.get(NAME, {}).get("annotations"), "/annotations", _read_citation, _CITATION)


def _read_citation(raw: Object) -> Citation | None:
    url, title = read_text_field(raw, "url"), read_text_field(raw, "title")
    if raw.get("type") != "url_citation" or not url:
        return None
    return Citation(url, title, "", read_position(raw, "start_index"), read_position(raw, "end_index"))


def _write_text(citations: Sequence[Citation]) -> Extra:
    if not citations:
        return {}
    written = [
        {
            "type": "url_citation",
            "start_index": citation.start,
            "end_index": citation.end,
            "url": citation.url,
            "title": citation.title or citation.url,
        }
        for citation in citations
    ]
    return {NAME: {"annotations": written}}


_COUNTS = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
# "When present, tool families with no recorded usage have zero counts" (types/responses/response.py, ToolUsage).
_NO_IMAGES = {**_COUNTS, "input_tokens_details": {"image_tokens": 0, "text_tokens": 0}}


def _write_end(end: ResponseEnd, text: str, runs: Sequence[HostedRun], citations: Sequence[Citation]) -> ResponseEnd:
    """Add the number of searches. An opened page is not counted, and there is no count of programs."""
    del text, citations
    searches = count_runs(runs).get("web_search")
    if not searches:
        return end
    own = end.extra.get(NAME, {})
    usage = {"image_gen": _NO_IMAGES, "web_search": {"num_requests": searches}}
    return replace(end, extra={**end.extra, NAME: {**own, "tool_usage": usage}})


HOSTED = HostedCodec(
    read_tool=_read_tool,
    write_tool=_write_tool,
    kinds=frozenset({"web_search", "web_fetch", "code_execution"}),
    tool_shape=_TOOL,
    parts={"web_search_call": _SEARCH, "code_interpreter_call": _CODE},
    read_run=_read_run,
    write_run=_write_run,
    shows=frozenset({"web_search", "web_fetch", "code_execution"}),
    scopes=frozenset({(NAME, "annotations")}),
    read_text=_read_text,
    write_text=_write_text,
    write_end=_write_end,
)
