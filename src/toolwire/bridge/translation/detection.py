"""Detect the wire and kind of a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from ...ir.errors import ProtocolError, ToolwireError
from ...ir.parts import Opaque, Part, ToolCall
from ...ir.pointer import JSON
from ...ir.response import Response
from ...ir.value import Value
from ...stream.event_stream import EventStreamDecoder, is_event_stream
from ...stream.framing import ArrayDecoder, NDJSONDecoder, SSEDecoder
from ...stream.strict import as_bytes, parse
from ...wire import get, mcp, names
from ...wire.protocol import Kind, Wire

NAME_THE_WIRE = "name its wire and kind"  # a hint; a caller with a parameter for it replaces it


class Detected(Value, frozen=True):
    """`wire` is a name for `toolwire.wire.get`, or "mcp" for declarations in MCP's bare shape.

    The kind "message" is an assistant's message without the response around it, or its content or items.
    """

    wire: str
    kind: Kind | Literal["message"]


def detect(body: JSON | bytes | str) -> Detected:
    """Detect the wire and kind of a document: parsed, as JSON text, as an SDK's object, or as the bytes of a stream.

    Raise ProtocolError if it matches no wire.

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
    else:
        body = to_document(body)
    match = _best_match(body, kinds)
    if match is None and kinds == ("stream",) and (error := _best_match(body, ("error",))):
        match = Detected(error.wire, "stream")  # the stream failed before its first event
    if match is None:
        match = _detect_message(body)
    if match is None:
        raise ProtocolError("the document matches no known wire", hint=NAME_THE_WIRE)
    return match


def to_document(body: JSON) -> JSON:
    """Return the document of an SDK's object, or of a list of them; any other value as it is.

    The official SDKs return pydantic models, with an absent field as None and, at Google, with names in snake case.
    """
    if type(body) is list:
        return list(map(to_document, body))
    dump = getattr(body, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else body


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


def _detect_message(body: JSON) -> Detected | None:
    """Return the wire that reads the most calls in a bare message, or None.

    Then fewer unread parts decide, and then the score of a request with the message.
    """
    best, best_score = None, (0, 0, 0)
    for name in names():
        wire = get(name)
        for messages in _as_messages(body):
            parts = _read_parts(messages, wire)
            if parts:
                calls = sum(isinstance(part, ToolCall) for part in parts)
                unread = sum(isinstance(part, Opaque) for part in parts)
                score = (calls, -unread, wire.detection["request"]({wire.conversation: messages}))
                if best is None or score > best_score:
                    best, best_score = Detected(name, "message"), score
    return best


def read_message(body: JSON, wire: Wire) -> Response | None:
    """Return a bare message as a response without a stop, or None if it is no assistant's message on this wire."""
    read = (_read_parts(messages, wire) for messages in _as_messages(body))
    parts = next(filter(None, read), None)
    return None if parts is None else Response(parts=parts)


def _as_messages(body: JSON) -> Iterator[list[JSON]]:
    """Yield the conversations that contain only this message: as it is, or around its content, parts or items."""
    if type(body) is dict and body.get("role") in ("assistant", "model"):
        yield [body]
        return
    rows = [body] if type(body) is dict and "role" not in body else body
    if type(rows) is list and rows and all(type(row) is dict for row in rows):
        yield rows
        yield [{"role": "assistant", "content": rows}]
        yield [{"role": "model", "parts": rows}]


def _read_parts(messages: list[JSON], wire: Wire) -> tuple[Part, ...]:
    """Decode messages as the history of a request. Return no parts if one is not an assistant's, or none is readable."""
    try:
        decoded = wire.decode_request({wire.conversation: messages}).messages
    except ToolwireError:
        return ()
    parts = tuple(part for message in decoded for part in message.parts)
    if any(message.role != "assistant" for message in decoded) or all(isinstance(part, Opaque) for part in parts):
        return ()
    return parts


def is_stream(data: bytes) -> bool:
    """Return whether the data is server-sent events, Gemini's chunks in one array, NDJSON, or a binary event stream."""
    if is_event_stream(data):
        return True
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
    """Return the first event of a stream that identifies its wire; a ping or `[DONE]` does not.

    Raise ProtocolError if there is none.
    """
    if is_event_stream(data):
        message = next(iter(EventStreamDecoder().feed(data)), None)
        if message is None:
            raise ProtocolError("the stream has no events")
        kind = message.text(":event-type") or message.text(":exception-type")
        return {kind: parse(message.payload or b"{}")}
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
