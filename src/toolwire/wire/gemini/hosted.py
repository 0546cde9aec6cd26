"""Hosted tools on generateContent: Google Search, URL context and code execution.

    {"googleSearch": {}}  {"urlContext": {}}  {"codeExecution": {}}                                     entries of `tools`
    {"executableCode": {"code", "language"}}  {"codeExecutionResult": {"outcome", "output"}}            parts
    {"toolCall": {"toolType", "args"}}  {"toolResponse": {…}}                  parts, with includeServerSideToolInvocations
    "groundingMetadata": {"webSearchQueries", "groundingChunks", "groundingSupports"}, "urlContextMetadata": {"urlMetadata"}

Searches and fetched pages are metadata of the candidate. A segment of `groundingSupports` counts the bytes of the text in
UTF-8. Source: google-genai 3.3.0, types.py (GroundingMetadata, Segment, UrlContextMetadata, CodeExecutionResult).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.events import ResponseEnd
from ...ir.hosted import Citation, HostedKind, HostedRun, HostedTool, WebPage
from ...ir.parts import Opaque
from ...ir.pointer import JSON, Object
from ...ir.response import Stop
from ...ir.tools import Tool
from ..hosted import (
    Citations,
    HostedCodec,
    KnownFields,
    count_bytes,
    count_characters,
    list_objects,
    read_position,
    read_strings,
    read_text_field,
    unknown_pointers,
)
from .field_names import NAME, to_camel_case

_CANDIDATE = "gemini/candidate"
_KINDS: dict[str, HostedKind] = {
    "googleSearch": "web_search",
    "googleSearchRetrieval": "web_search",
    "urlContext": "web_fetch",
    "codeExecution": "code_execution",
}
_NAMES = {"web_search": "googleSearch", "web_fetch": "urlContext", "code_execution": "codeExecution"}
_CALLS: dict[str, HostedKind] = {"GOOGLE_SEARCH_WEB": "web_search", "URL_CONTEXT": "web_fetch"}
_TOOL: KnownFields = {
    **{name: {} for name in _KINDS},
    "googleSearch": dict.fromkeys(("excludeDomains", "exclude_domains")),
}
# A signature belongs to the model that made it, and the suggestions are a page of HTML for the user of Google.
_PART = dict.fromkeys(("thoughtSignature", "thought_signature"))
_CALL = dict.fromkeys(("id", "toolType", "tool_type", "args", "response"))
_GROUNDING = {
    **dict.fromkeys(("webSearchQueries", "searchEntryPoint")),
    "groundingChunks": {"web": dict.fromkeys(("uri", "title", "domain"))},
    "groundingSupports": {
        **dict.fromkeys(("groundingChunkIndices", "confidenceScores")),
        "segment": dict.fromkeys(("startIndex", "endIndex", "partIndex", "text")),
    },
}
_PAGES = {"urlMetadata": dict.fromkeys(("retrievedUrl", "urlRetrievalStatus"))}
_SUCCESS = "URL_RETRIEVAL_STATUS_SUCCESS"


def _read_tool(raw: Object) -> HostedTool | None:
    name = next(iter(raw), "")
    kind = _KINDS.get(name)
    if kind is None:
        return None
    options = to_camel_case(raw[name]) if type(raw[name]) is dict else {}
    return HostedTool(kind, blocked_domains=read_strings(options.get("excludeDomains")))


def _write_tool(tool: HostedTool) -> tuple[Tool, frozenset[str]]:
    """Declare the tool. `excludeDomains` is a field of Vertex AI only (google-genai, `_GoogleSearch_to_mldev`)."""
    name = _NAMES[tool.kind]
    return Tool(name, kind="builtin", extra={NAME: {name: {}}}), frozenset()


def _read_run(part: Opaque) -> HostedRun | None:
    fields = to_camel_case(part.value)
    raw: JSON = fields.get(part.type)
    if type(raw) is not dict:
        return None
    run_id = read_text_field(raw, "id")
    if part.type == "executableCode":
        return HostedRun(run_id, "code_execution", (read_text_field(raw, "code"),), phase="call")
    if part.type == "codeExecutionResult":
        output = read_text_field(raw, "output")
        if raw.get("outcome") in ("OUTCOME_OK", None):
            return HostedRun(run_id, "code_execution", output=output, phase="result")
        return HostedRun(run_id, "code_execution", error=output or str(raw["outcome"]), phase="result")
    if part.type not in ("toolCall", "toolResponse"):
        return None
    raw = to_camel_case(raw)
    kind = _CALLS.get(str(raw.get("toolType")))
    if kind is None:
        return None
    arguments: JSON = raw.get("args")
    inputs = next((read_strings(value) for value in arguments.values()), ()) if type(arguments) is dict else ()
    return HostedRun(run_id, kind, inputs, phase="call" if part.type == "toolCall" else "result")


def _write_run(run: HostedRun, run_id: str) -> list[Opaque]:
    """Write a run of code; the others are metadata (`_write_end`)."""
    if run.kind != "code_execution":
        return []
    del run_id  # the parts follow each other
    code: Object = {"executableCode": {"language": "PYTHON", "code": "\n".join(run.inputs)}}
    text = "\n".join([part for part in (run.output, run.error) if part])
    outcome = "OUTCOME_OK" if run.error is None else "OUTCOME_FAILED"
    result: Object = {"codeExecutionResult": {"outcome": outcome, "output": text}}
    return [Opaque(NAME, "executableCode", code), Opaque(NAME, "codeExecutionResult", result)]


def _read_end(end: ResponseEnd, text: str) -> tuple[list[HostedRun], Citations]:
    """Return the searches, the fetched pages and the citations of the first candidate."""
    stop = end.stops[0] if end.stops else None
    fields = {} if stop is None else stop.extra.get(_CANDIDATE, {})
    runs: list[HostedRun] = []
    citations: list[Citation] = []
    grounding: JSON = fields.get("groundingMetadata")
    if type(grounding) is dict:
        grounding = to_camel_case(grounding)
        chunks = [_read_chunk(chunk) for chunk in list_objects(grounding.get("groundingChunks"))]
        queries = read_strings(grounding.get("webSearchQueries"))
        sources = tuple([chunk for chunk in chunks if chunk.url])
        citations = _read_supports(grounding, chunks, text)
        if "webSearchQueries" in grounding or (sources and not citations):
            runs.append(HostedRun("", "web_search", queries, sources))
    pages: JSON = fields.get("urlContextMetadata")
    if type(pages) is dict:
        for entry in list_objects(to_camel_case(pages).get("urlMetadata")):
            page = to_camel_case(entry)
            url, status = read_text_field(page, "retrievedUrl"), page.get("urlRetrievalStatus")
            error = None if status in (_SUCCESS, None) else "url_not_accessible"
            runs.append(HostedRun("", "web_fetch", (url,), () if error else (WebPage(url),), error=error))
    unread = unknown_pointers(grounding, _GROUNDING, "/stop/groundingMetadata")
    return runs, (citations, [*unread, *unknown_pointers(pages, _PAGES, "/stop/urlContextMetadata")])


def _read_chunk(chunk: Object) -> WebPage:
    web: JSON = chunk.get("web")
    return WebPage(read_text_field(web, "uri"), read_text_field(web, "title"))


def _read_supports(grounding: Object, chunks: Sequence[WebPage], text: str) -> list[Citation]:
    """Return a citation for each source of each passage; positions in bytes become positions in characters."""
    data = text.encode("utf-8", "surrogatepass")
    citations: list[Citation] = []
    for entry in list_objects(grounding.get("groundingSupports")):
        support = to_camel_case(entry)
        raw: JSON = support.get("segment")
        segment = to_camel_case(raw) if type(raw) is dict else {}
        start = count_characters(data, read_position(segment, "startIndex"))
        end = count_characters(data, read_position(segment, "endIndex"))
        numbers = support.get("groundingChunkIndices")
        for number in numbers if type(numbers) is list else ():
            if type(number) is int and 0 <= number < len(chunks) and chunks[number].url:
                citations.append(Citation(chunks[number].url, chunks[number].title, "", start, end))
    return citations


def _write_end(end: ResponseEnd, text: str, runs: Sequence[HostedRun], citations: Sequence[Citation]) -> ResponseEnd:
    """Add the searches, pages and citations to the first candidate."""
    searches = [run for run in runs if run.kind == "web_search"]
    pages = [run for run in runs if run.kind == "web_fetch"]
    fields: Object = {}
    if searches or citations:
        fields["groundingMetadata"] = _write_grounding(text, searches, citations)
    if pages:
        fields["urlContextMetadata"] = {"urlMetadata": [_write_page(run) for run in pages]}
    if not fields:
        return end
    first = (end.stops[0] if end.stops else None) or Stop("stop")
    first = replace(first, extra={**first.extra, _CANDIDATE: {**first.extra.get(_CANDIDATE, {}), **fields}})
    return replace(end, stops=(first, *end.stops[1:]))


def _write_grounding(text: str, searches: Sequence[HostedRun], citations: Sequence[Citation]) -> Object:
    """Write the sources of all searches and citations once each, and the cited passages."""
    titles: dict[str, str] = {}
    for source in [source for run in searches for source in run.sources] + [*citations]:
        titles[source.url] = titles.get(source.url) or source.title
    numbers = {url: number for number, url in enumerate(titles)}
    passages: dict[tuple[int, int], list[JSON]] = {}
    for citation in citations:
        found = passages.setdefault((citation.start, citation.end), [])
        if numbers[citation.url] not in found:
            found.append(numbers[citation.url])
    supports: list[JSON] = []
    for (start, end), indices in passages.items():
        segment = {
            "startIndex": count_bytes(text, start),
            "endIndex": count_bytes(text, end),
            "text": text[start:end],
        }
        supports.append({"segment": segment, "groundingChunkIndices": indices})
    chunks: list[JSON] = [{"web": {"uri": url, "title": title or url}} for url, title in titles.items()]
    out: Object = {"groundingChunks": chunks, "groundingSupports": supports}
    if searches:
        out["webSearchQueries"] = [query for run in searches for query in run.inputs]
    return out


def _write_page(run: HostedRun) -> Object:
    url = run.inputs[0] if run.inputs else ""
    return {"retrievedUrl": url, "urlRetrievalStatus": _SUCCESS if run.error is None else "URL_RETRIEVAL_STATUS_ERROR"}


HOSTED = HostedCodec(
    read_tool=_read_tool,
    write_tool=_write_tool,
    # "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function calling."
    beside_functions=("gemini/toolConfig", "includeServerSideToolInvocations"),
    kinds=frozenset({"web_search", "web_fetch", "code_execution"}),
    tool_shape=_TOOL,
    parts={
        "executableCode": {**_PART, "executableCode": dict.fromkeys(("id", "code", "language"))},
        "codeExecutionResult": {**_PART, "codeExecutionResult": dict.fromkeys(("id", "outcome", "output"))},
        "toolCall": {**_PART, "toolCall": _CALL},
        "toolResponse": {**_PART, "toolResponse": _CALL},
    },
    read_run=_read_run,
    write_run=_write_run,
    shows=frozenset({"web_search", "web_fetch", "code_execution"}),
    scopes=frozenset({(_CANDIDATE, "groundingMetadata"), (_CANDIDATE, "urlContextMetadata")}),
    read_end=_read_end,
    write_end=_write_end,
)
