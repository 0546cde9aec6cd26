"""Citations of Cohere's answers. Cohere runs no tools itself.

    "citations": [{"start": 3, "end": 9, "text": "sunny", "type": "TEXT_CONTENT", "content_index": 0,
                   "sources": [{"type": "document", "id": "…", "document": {"url", "title", "snippet", …}}]}]

A citation belongs to the whole message. Its position counts the characters of one element of the content, or of the plan,
so it is dropped if the text is known and has other characters there. A source is a document of the request or the output of
a tool; only one with a URL means something on another wire.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.events import ResponseEnd
from ...ir.hosted import Citation, HostedRun
from ...ir.pointer import JSON, Object, join
from ..hosted import Citations, HostedCodec, list_objects, read_position, read_text_field, unknown_pointers

_MESSAGE = "cohere/message"
_SOURCE = dict.fromkeys(("url", "title", "snippet"))
_SHAPE = {
    **dict.fromkeys(("start", "end", "text", "type", "content_index")),
    "sources": {"type": None, "id": None, "document": _SOURCE, "tool_output": _SOURCE},
}
_MAX_CITATIONS = 10_000  # an answer has a few per sentence; more would be costly to compare with the text


def _read_end(end: ResponseEnd, text: str) -> tuple[list[HostedRun], Citations]:
    """Return the citations of the answer; a citation without a URL has no counterpart on other wires."""
    raw: JSON = end.extra.get(_MESSAGE, {}).get("citations")
    citations: list[Citation] = []
    unread: list[str] = []
    for index, entry in enumerate(raw[:_MAX_CITATIONS] if type(raw) is list else ()):
        found = _read_citation(entry, text) if type(entry) is dict else []
        pointer = join("citations", index)
        citations += found
        unread += unknown_pointers(entry, _SHAPE, pointer) if found else [pointer]
    if raw and (not citations or len(raw) > _MAX_CITATIONS):
        unread = ["/citations"]
    return [], (citations, unread)


def _read_citation(raw: Object, text: str) -> list[Citation]:
    """Return a citation for each source that has a URL."""
    start, end = read_position(raw, "start"), read_position(raw, "end")
    cited = read_text_field(raw, "text")
    if text and text[start:end] != cited:
        start = end = 0
    found: list[Citation] = []
    for source in list_objects(raw.get("sources")):
        document = source.get("document") or source.get("tool_output")
        url = read_text_field(document, "url")
        if url:
            title, snippet = read_text_field(document, "title"), read_text_field(document, "snippet")
            found.append(Citation(url, title, snippet, start, end))
    return found


def _write_end(end: ResponseEnd, text: str, runs: Sequence[HostedRun], citations: Sequence[Citation]) -> ResponseEnd:
    """Add the citations to the message; the page of each is a document."""
    del runs
    if not citations:
        return end
    written = [
        {
            "start": citation.start,
            "end": citation.end,
            "text": text[citation.start : citation.end],
            "sources": [{"type": "document", "id": citation.url, "document": _write_source(citation)}],
            "type": "TEXT_CONTENT",
        }
        for citation in citations
    ]
    fields = {**end.extra.get(_MESSAGE, {}), "citations": written}
    return replace(end, extra={**end.extra, _MESSAGE: fields})


def _write_source(citation: Citation) -> Object:
    source: Object = {"id": citation.url, "url": citation.url, "title": citation.title or citation.url}
    return {**source, "snippet": citation.text} if citation.text else source


HOSTED = HostedCodec(scopes=frozenset({(_MESSAGE, "citations")}), read_end=_read_end, write_end=_write_end)
