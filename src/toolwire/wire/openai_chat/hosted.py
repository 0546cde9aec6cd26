"""Hosted tools on Chat: only web search, as the field `web_search_options` of a request, and only on some models.

The search has no part in the answer. The message has `annotations` with positions in its content. OpenRouter also sends
the excerpt of the page as `content`. Source: openai 3.51.0, types/chat/completion_create_params.py (WebSearchOptions).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.events import ResponseEnd
from ...ir.hosted import Citation, HostedRun, HostedTool
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ..hosted import (
    UNREQUESTED,
    Citations,
    HostedCodec,
    read_citations,
    read_location,
    read_position,
    read_text_field,
    write_location,
)

NAME = "openai_chat"
OPTIONS = "web_search_options"
_MESSAGE = UNREQUESTED
_PLACE = dict.fromkeys(("type", "city", "region", "country", "timezone"))
_TOOL = {OPTIONS: {"search_context_size": None, "user_location": {**_PLACE, "approximate": _PLACE}}}
_CITATION = {"type": None, "url_citation": dict.fromkeys(("url", "title", "content", "start_index", "end_index"))}


def _read_tool(raw: Object) -> HostedTool | None:
    options: JSON = raw.get(OPTIONS)
    if type(options) is not dict:
        return None
    location: JSON = options.get("user_location")
    if type(location) is dict and type(location.get("approximate")) is dict:
        location = location["approximate"]
    size = options.get("search_context_size")
    return HostedTool("web_search", location=read_location(location), context_size=size if type(size) is str else None)


def _write_tool(tool: HostedTool) -> tuple[Tool, frozenset[str]]:
    options: Object = {}
    if tool.location is not None:
        options["user_location"] = {"type": "approximate", "approximate": write_location(tool.location)}
    if tool.context_size is not None:
        options["search_context_size"] = tool.context_size
    declared = Tool(OPTIONS, kind="builtin", extra={NAME: {OPTIONS: options}})
    return declared, frozenset({"location", "context_size"})


def _read_end(end: ResponseEnd, text: str) -> tuple[list[HostedRun], Citations]:
    """Return the citations of the first choice's message."""
    del text
    raw: JSON = end.extra.get(_MESSAGE, {}).get("annotations")
    return [], read_citations(raw, "/annotations", _read_citation, _CITATION)


def _read_citation(raw: Object) -> Citation | None:
    cited: JSON = raw.get("url_citation")
    url = read_text_field(cited, "url")
    if not url:
        return None
    start, end = read_position(cited, "start_index"), read_position(cited, "end_index")
    return Citation(url, read_text_field(cited, "title"), read_text_field(cited, "content"), start, end)


def _write_end(end: ResponseEnd, text: str, runs: Sequence[HostedRun], citations: Sequence[Citation]) -> ResponseEnd:
    del text, runs
    if not citations:
        return end
    written = [
        {
            "type": "url_citation",
            "url_citation": {
                "start_index": citation.start,
                "end_index": citation.end,
                "url": citation.url,
                "title": citation.title or citation.url,
            },
        }
        for citation in citations
    ]
    fields = {**end.extra.get(_MESSAGE, {}), "annotations": written}
    return replace(end, extra={**end.extra, _MESSAGE: fields})


HOSTED = HostedCodec(
    read_tool=_read_tool,
    write_tool=_write_tool,
    kinds=frozenset({"web_search"}),
    tool_shape=_TOOL,
    scopes=frozenset({(_MESSAGE, "annotations")}),
    read_end=_read_end,
    write_end=_write_end,
)
