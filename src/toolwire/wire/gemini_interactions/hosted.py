"""Hosted tools on Interactions: Google Search, URL context and code execution.

    {"type": "google_search", "search_types"?}    {"type": "url_context"}    {"type": "code_execution"}              tools
    {"type": "google_search_call", "id", "arguments": {"queries"}}    {"type": "google_search_result", "call_id", "result"}
    {"type": "url_context_call", "id", "arguments": {"urls"}}         {"type": "url_context_result", "result": [{"url", "status"}]}
    {"type": "code_execution_call", "id", "arguments": {"code", "language"}}    {"type": "code_execution_result", "result"}
    {"type": "url_citation", "url", "title", "start_index", "end_index"}                     an annotation of a text

Positions in a text count its bytes in UTF-8. The results of a search are suggestions, a page of HTML for the user of
Google; the pages are only in the citations. Source: google-genai 3.3.0, _gaos/types/interactions (urlcitation.py,
googlesearchresult.py, urlcontextresult.py, codeexecutionresultstep.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.hosted import Citation, HostedKind, HostedRun, HostedTool, WebPage
from ...ir.parts import Extra, Opaque
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ..hosted import (
    Citations,
    HostedCodec,
    issue_id,
    list_objects,
    read_citations,
    read_position,
    read_strings,
    read_text_field,
)
from .content import NAME

_TYPES: dict[str, HostedKind] = {
    "google_search": "web_search",
    "url_context": "web_fetch",
    "code_execution": "code_execution",
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_INPUTS = {"web_search": "queries", "web_fetch": "urls", "code_execution": "code"}
_CALLS = {f"{name}_call": kind for name, kind in _TYPES.items()}
_RESULTS = {f"{name}_result": kind for name, kind in _TYPES.items()}
_PREFIXES = {"web_search": "gs", "web_fetch": "uc", "code_execution": "ce"}
# A signature belongs to the model that made it.
_CALL = dict.fromkeys(("type", "id", "signature", "search_type"))
_CITATION = dict.fromkeys(("type", "url", "title", "start_index", "end_index"))
_SEARCH_RESULT = dict.fromkeys(("search_suggestions", "url", "title"))
_RESULT = dict.fromkeys(("type", "call_id", "signature", "is_error"))


def _read_tool(raw: Object) -> HostedTool | None:
    kind = _TYPES.get(str(raw.get("type")))
    if kind is None or (kind == "web_search" and raw.get("search_types") not in (None, [], ["web_search"])):
        return None
    return HostedTool(kind)


def _write_tool(tool: HostedTool) -> tuple[Tool, frozenset[str]]:
    name = _NAMES[tool.kind]
    return Tool(name, kind="builtin", extra={NAME: {"type": name}}), frozenset()


def _read_run(part: Opaque) -> HostedRun | None:
    step = part.value
    kind = _CALLS.get(part.type)
    if kind is not None:
        arguments: JSON = step.get("arguments")
        inputs = read_strings(arguments.get(_INPUTS[kind])) if type(arguments) is dict else ()
        return HostedRun(read_text_field(step, "id"), kind, inputs, phase="call")
    kind = _RESULTS.get(part.type)
    if kind is None:
        return None
    run_id, result = read_text_field(step, "call_id"), step.get("result")
    is_error = step.get("is_error") is True
    if kind == "code_execution":
        text = (
            result if type(result) is str else "".join(read_text_field(item, "text") for item in list_objects(result))
        )
        if is_error:
            return HostedRun(run_id, kind, error=text or "the code failed", phase="result")
        return HostedRun(run_id, kind, output=text, phase="result")
    pages = [entry for entry in list_objects(result) if read_text_field(entry, "url")]
    failed = [entry for entry in pages if entry.get("status") not in (None, "success")]
    sources = tuple([WebPage(entry["url"], read_text_field(entry, "title")) for entry in pages if entry not in failed])
    error = str(failed[0]["status"]) if failed and not sources else "unavailable" if is_error else None
    return HostedRun(run_id, kind, sources=sources, error=error, phase="result")


def _write_run(run: HostedRun, run_id: str) -> list[Opaque]:
    """Write the call and the result of a run."""
    name, made_id = _NAMES[run.kind], issue_id(_PREFIXES[run.kind], run_id)
    result: JSON
    if run.kind == "code_execution":
        arguments: Object = {"code": "\n".join(run.inputs), "language": "python"}
        result = "\n".join([text for text in (run.output, run.error) if text])
    else:
        arguments = {_INPUTS[run.kind]: [*run.inputs]}
        result = _write_pages(run)
    call: Object = {"type": f"{name}_call", "id": made_id, "arguments": arguments}
    answer: Object = {"type": f"{name}_result", "call_id": made_id, "result": result}
    if run.error is not None:
        answer["is_error"] = True
    return [Opaque(NAME, call["type"], call), Opaque(NAME, answer["type"], answer)]


def _write_pages(run: HostedRun) -> list[JSON]:
    if run.kind == "web_search":
        return [{"url": source.url, "title": source.title or source.url} for source in run.sources]
    if run.error is not None:
        return [{"url": url, "status": "error"} for url in run.inputs]
    return [{"url": source.url, "status": "success"} for source in run.sources]


def _read_text(extra: Extra) -> Citations:
    """Return the citations of web pages; other annotations name files, places and parts of a recording."""
    return read_citations(extra.get(NAME, {}).get("annotations"), "/annotations", _read_citation, _CITATION)


def _read_citation(raw: Object) -> Citation | None:
    url, title = read_text_field(raw, "url"), read_text_field(raw, "title")
    if raw.get("type") != "url_citation" or not url:
        return None
    return Citation(url, title, "", read_position(raw, "start_index"), read_position(raw, "end_index"))


def _write_text(citations: Sequence[Citation]) -> Extra:
    if not citations:
        return {}
    written: list[JSON] = [
        {
            "type": "url_citation",
            "url": citation.url,
            "title": citation.title or citation.url,
            "start_index": citation.start,
            "end_index": citation.end,
        }
        for citation in citations
    ]
    return {NAME: {"annotations": written}}


HOSTED = HostedCodec(
    read_tool=_read_tool,
    write_tool=_write_tool,
    kinds=frozenset({"web_search", "web_fetch", "code_execution"}),
    tool_shape=dict.fromkeys(("type", "search_types")),
    parts={
        **{
            f"{name}_call": {**_CALL, "arguments": dict.fromkeys(("language", _INPUTS[kind]))}
            for name, kind in _TYPES.items()
        },
        "google_search_result": {**_RESULT, "result": _SEARCH_RESULT},
        "url_context_result": {**_RESULT, "result": dict.fromkeys(("url", "status"))},
        "code_execution_result": {**_RESULT, "result": dict.fromkeys(("type", "text"))},
    },
    read_run=_read_run,
    write_run=_write_run,
    shows=frozenset({"web_search", "web_fetch", "code_execution"}),
    scopes=frozenset({(NAME, "annotations")}),
    read_text=_read_text,
    counts_bytes=True,
    write_text=_write_text,
)
