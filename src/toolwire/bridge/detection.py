"""Detect the wire and kind of a document."""

from __future__ import annotations

import re

from ..ir.errors import ProtocolError
from ..ir.pointer import JSON
from ..ir.value import Value
from ..stream.array import ArrayDecoder
from ..stream.ndjson import NDJSONDecoder
from ..stream.sse import SSEDecoder
from ..stream.strict import as_bytes, parse
from ..wire import get, mcp, names
from ..wire.protocol import Kind

__all__ = ["NAME_THE_WIRE", "Detected", "detect", "is_stream"]

NAME_THE_WIRE = "name its wire and kind"  # a hint; a caller with a parameter for it replaces it


class Detected(Value, frozen=True):
    """`wire` is a name for `toolwire.wire.get`, or "mcp" for declarations in MCP's bare shape."""

    wire: str
    kind: Kind


def detect(body: JSON | bytes | str) -> Detected:
    """Detect the wire and kind of a document: parsed, as JSON text, or as the bytes of a stream.

    >>> detect({"contents": [{"parts": [{"text": "hi"}]}]})
    Detected(wire='gemini', kind='request')
    """
    kinds: tuple[Kind, ...] = ("request", "response", "tools", "error")
    if isinstance(body, (bytes, str)):
        data = as_bytes(body)
        if is_stream(data):
            body, kinds = _first_event(data), ("stream",)
        else:
            body = parse(data)
    found = _best_match(body, kinds)
    if found is None and kinds == ("stream",) and (error := _best_match(body, ("error",))):
        found = Detected(error.wire, "stream")  # the stream failed before its first event
    if found is None:
        raise ProtocolError("the document matches no known wire", hint=NAME_THE_WIRE)
    return found


def _best_match(body: JSON, kinds: tuple[Kind, ...]) -> Detected | None:
    """Return the wire and kind whose scorer gives the highest score, or None if all scores are 0."""
    best, best_score = None, 0
    for name in (*names(), mcp.NAME):
        scorers = mcp.DETECTION if name == mcp.NAME else get(name).detection
        for kind in kinds:
            scorer = scorers.get(kind)
            score = 0 if scorer is None else scorer(body)
            if score > best_score:
                best, best_score = Detected(name, kind), score
    return best


def is_stream(data: bytes) -> bool:
    """Return whether the data is server-sent events, Gemini's chunks in one array, or newline-delimited JSON."""
    start = data[:256].lstrip(_BLANK)
    return (
        start.startswith((b"data:", b"event:", b":", b"id:", b"retry:"))
        or _ARRAY(start) is not None
        or _LINES(data.lstrip(_BLANK)) is not None
    )


_BLANK = b"\xef\xbb\xbf \r\n"
_ARRAY = re.compile(rb'\[\s*\{\s*"(?:candidates|promptFeedback|usageMetadata)"').match
_LINES = re.compile(rb"\{[^\r\n]*\}[ \t]*[\r\n]\s*\{").match  # a second document after the first


def _first_event(data: bytes) -> JSON:
    """Return the first event of a stream that identifies its wire; a ping or `[DONE]` does not."""
    if _ARRAY(data.lstrip(_BLANK)) is not None:
        elements = ArrayDecoder().feed(data)
        return parse(elements[0]) if elements else {"candidates": []}
    if _LINES(data.lstrip(_BLANK)) is not None:
        return parse(NDJSONDecoder().feed(data)[0])
    decoder = SSEDecoder()
    for _, payload in [*decoder.feed(data), *decoder.close()]:
        if payload.strip() != b"[DONE]":
            value = parse(payload)
            if type(value) is dict and value.get("type") != "ping":
                return value
    raise ProtocolError("the stream has no events")
