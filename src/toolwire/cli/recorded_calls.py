"""Count the tool calls in recordings: traces of runs and exchanges, HAR files, JSON Lines, single documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError, ProtocolError, ToolwireError
from .tool_documents import har_entries, is_recording, parse_file, read_bytes

__all__ = ["RecordedCalls"]

_KEYS = ("request", "response", "body", "payload", "json", "content", "postData", "text", "answer", "output")
_MAX_DEPTH = 5
_TRACE = b'"toolwire_trace"'


class RecordedCalls:
    """The calls of recordings, by the name of the tool.

    A call is in the answer of the model, and again in every later request of its conversation. It is counted once: calls
    with the same id, name and arguments are equal.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.requests = 0
        self._known: set[bytes] = set()

    def add_file(self, file: str) -> None:
        """Add a recording. Raise ConfigError if it has no request, answer or call."""
        data = read_bytes(file)
        before = (self.requests, self.counts.total())
        found = self._add_trace(file, data) if _TRACE in data[:4096].partition(b"\n")[0] else self._add_data(file, data)
        if not found and before == (self.requests, self.counts.total()):
            hint = "give a trace, a HAR file, or JSON Lines of requests and answers"
            raise ConfigError(f"{file} has no requests or answers of a model", hint=hint)

    def _add_data(self, file: str, data: bytes) -> bool:
        if (entries := har_entries(file, data)) is not None:
            return self._add_all(entries)
        if is_recording(file, data):
            return self._add_all(line for line in data.split(b"\n") if line.strip())
        return self._add_document(parse_file(file, data))

    def _add_all(self, documents: Iterable[Any], depth: int = 0) -> bool:
        found = [self._add_document(document, depth) for document in documents]  # all of them, not up to the first
        return any(found)

    def _add_trace(self, file: str, data: bytes) -> bool:
        """Add the calls of a run, or the request and the answer of an exchange."""
        from ..run.traces.format import CallStarted, RequestSent, decode_trace
        from ..run.traces.recordings import exchange_of

        name = Path(file).name
        header, events = decode_trace(data.splitlines(keepends=True), name)
        if header.kind == "exchange":
            exchange = exchange_of(header, events, name).ingress
            answer = b"" if exchange.answer is None else exchange.answer.data
            return self._add_all((exchange.data, answer))
        for event in events:
            if isinstance(event, RequestSent):
                self.requests += not event.purpose
            elif isinstance(event, CallStarted) and type(event.call) is dict:
                call = event.call
                self._add_call(str(call.get("name")), call.get("id"), call.get("arguments", call.get("raw")))
        return True

    def _add_document(self, document: Any, depth: int = 0) -> bool:
        """Add the calls of a request, an answer or a stream; also of one inside a document."""
        from ..bridge.translation.detection import detect, is_stream

        try:
            if isinstance(document, str):
                document = document.encode("utf-8", "replace")
            if isinstance(document, bytes):
                if is_stream(document):
                    return self._add_stream(detect(document).wire, document)
                document = parse_file("", document) if document.lstrip()[:1] == b"{" else None
            if type(document) is not dict:
                return False
            kind, wire = _detect_answer(document)
        except ToolwireError:
            return False
        if kind == "":
            inside = [document[key] for key in _KEYS if type(document.get(key)) in (dict, str)]
            return depth < _MAX_DEPTH and self._add_all(inside, depth + 1)
        return self._add_decoded(kind, wire, document)

    def _add_decoded(self, kind: str, wire: str, document: Any) -> bool:
        from ..wire import get

        try:
            if kind == "request":
                parts = [part for message in get(wire).decode_request(document).messages for part in message.parts]
                self.requests += 1
            else:
                parts = list(get(wire).decode_response(document).parts)
        except ToolwireError:  # a truncated or invalid document
            return False
        self._add_parts(parts)
        return True

    def _add_stream(self, wire: str, data: bytes) -> bool:
        from ..ir.folding import fold
        from ..wire import get

        decoder = get(wire).stream_decoder()
        self._add_parts(fold([*decoder.feed(data), *decoder.close()]).parts)
        return True

    def _add_parts(self, parts: Iterable[Any]) -> None:
        from ..ir.parts import ToolCall

        for part in parts:
            if isinstance(part, ToolCall):
                self._add_call(part.name, part.id, part.raw if part.arguments is None else part.arguments)

    def _add_call(self, name: str, call_id: Any, arguments: Any) -> None:
        from ..run.values.keys import canonical_json

        key = sha256(canonical_json([name, call_id, arguments])).digest()
        if key not in self._known:
            self._known.add(key)
            self.counts[name] += 1


def _detect_answer(document: Any) -> tuple[str, str]:
    """Return the kind and wire of a request or an answer; empty for any other document."""
    from ..bridge.translation.detection import detect

    try:
        found = detect(document)
    except ProtocolError:
        return "", ""
    return (found.kind, found.wire) if found.kind in ("request", "response") else ("", "")
