"""Pass requests and streams between equal wires without encoding them again. No I/O.

A client's body is sent to an endpoint of its own wire with only the model replaced. A stream's JSON stays unchanged, and
its errors become events of the client's wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from ...bridge.translation.exchange import DELTAS
from ...ir.errors import ToolwireError, TruncatedStream
from ...ir.events import Event, ResponseEnd, ResponseStart, StreamFault, WholePart
from ...ir.parts import ToolCall
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault
from ...ir.text import escape_separators, to_bytes
from ...stream.event_stream import cut_messages
from ...stream.framing import SSEDecoder
from ...stream.strict import parse_object
from ...wire.models.capabilities import ModelCapabilities
from ...wire.protocol import Limits, StreamEncoder, Wire
from ...wire.streaming.encoder import framing_of
from .endpoint import Endpoint
from .endpoint_request import redact_secrets

# at the start of an object, members with plain values, up to the model
_LEADING_MODEL = re.compile(
    rb'\s*+\{(?:\s*+"(?!model")[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[-+.\w]++)\s*+,)*+\s*+"model"\s*+:\s*+("(?:[^"\\]|\\.)*+")'
)

_encode_name = lru_cache(256)(to_bytes)  # of models, which are few
# By model: the last start of a body, up to its model, and the replaced one. Clients write all of theirs in the same way.
_known_starts: dict[str, tuple[bytes, bytes]] = {}
_NO_START = (b"", b"")
_MAX_START = 256  # bytes; SDKs send the model among the first fields
_MAX_STARTS = 256  # models


def accepts_request(
    endpoint: Endpoint,
    wire: str,
    has_field: Callable[[str], bool],
    find_choice: Callable[[], JSON],
    has_more_tools: Callable[[int], bool],
    capabilities: ModelCapabilities | None = None,
) -> bool:
    """Return whether a request on `wire` needs no change for the endpoint, apart from the model and call ids.

    `has_field` checks for a field of the request, `find_choice` returns its `tool_choice`, and `has_more_tools` compares
    its number of tools with the wire's limit. `capabilities` describe the model; by default, the endpoint's are used.
    """
    known = endpoint.capabilities if capabilities is None else capabilities
    max_tools = max_same_wire_tools(endpoint, known)
    return (
        endpoint.wire.name == wire
        and not endpoint.changes_streams
        and endpoint.vendor.dialect is None
        and not any(map(has_field, endpoint.renamed_fields))
        and (known.choice_by_schema is None or find_choice() in (None, "auto", "none"))
        and (max_tools is None or not has_more_tools(max_tools))
    )


def max_same_wire_tools(endpoint: Endpoint, capabilities: ModelCapabilities) -> int | None:
    """Return the maximum number of tools in a request on the endpoint's own wire, or None if no source states one.

    Many servers of Chat accept more tools than OpenAI, and a router's limit depends on the model. A request with too
    many is refused by such a server, not reduced here.
    """
    if capabilities.tools is not None:
        return capabilities.tools
    is_stated = endpoint.wire.name in endpoint.vendor.stated_tool_limits
    return endpoint.wire.limits.tools if is_stated else None


def has_valid_ids(request: Request, limits: Limits) -> bool:
    """Check that the ids of the calls in the history are within the limits."""
    ids = [part.id for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    return all(len(call_id) <= limits.id_length and re.fullmatch(limits.id, call_id) for call_id in ids)


def replace_model(body: bytes, document: Object, model: str) -> bytes:
    """Return `body`, whose parsed form is `document`, with another model, and everything else byte for byte.

    If the model comes after a nested value, which is unusual, the document is encoded again.
    """
    if document.get("model") == model:
        return body
    if "model" not in document:
        return body  # it is in the path
    replaced = replace_leading_model(body, model)
    return to_bytes({**document, "model": model}) if replaced is None else replaced


def replace_leading_model(body: bytes, model: str) -> bytes | None:
    """Replace the model if it comes before any nested value, as clients write it; otherwise return None.

    The pattern reads nothing after the model, so another body with the same start has the same match.
    """
    start, replaced = _known_starts.get(model, _NO_START)
    if start and body.startswith(start):
        return replaced + body[len(start) :]
    match = _LEADING_MODEL.match(body)
    if match is None:
        return None
    start, replaced = body[: match.end(1)], body[: match.start(1)] + _encode_name(model)
    if len(start) <= _MAX_START:
        if len(_known_starts) >= _MAX_STARTS:
            _known_starts.clear()
        _known_starts[model] = start, replaced
    return replaced + body[match.end(1) :]


def find_leading_model(body: bytes) -> tuple[int, int] | None:
    """Return the start and the end of the model's encoded name if it comes before any nested value, otherwise None."""
    match = _LEADING_MODEL.match(body)
    return None if match is None else match.span(1)


# Forward a stream between equal wires: its JSON unchanged, its errors as the client's own events. No I/O.
#
# The bytes are unchanged, too, with two exceptions. Characters at which clients split lines are escaped
# (`ir.text.escape_separators`). A stream that only our decoder can read, such as a document in place of events, is
# encoded again, if its first event shows that.
#
# A broken stream ends in an error event, never in a normal end; `fault` is then set. A stream that breaks after the
# end of the answer, where only a token count and the final marker can be missing, is complete.


class ForwardedStream:
    """A stream between equal wires: events are forwarded unchanged, and observed."""

    def __init__(
        self,
        wire: Wire,
        find_request: Callable[[], Request | None],
        observe: Callable[[Event], None] | None = None,
        secrets: tuple[str, ...] = (),
        choices: int = 1,
        observe_deltas: Callable[[Iterable[Any]], None] | None = None,
    ) -> None:
        """Create the stream.

        `find_request` returns the decoded request if it is known, which only a stream that fails needs. `observe` gets
        every event but faults and deltas, `observe_deltas` all deltas that follow each other. `secrets`, such as our
        key, are removed from errors. `choices` is the number of requested answers.
        """
        self.fault: Fault | None = None
        self.ended = False
        self._decoder = wire.stream_decoder()
        self._wire = wire
        self._find_request = find_request
        self._choices = choices if framing_of(wire.name).end_marker else 1
        self._observe = observe
        self._observe_deltas = observe_deltas
        self._framing = framing_of(wire.name)
        self._secrets = secrets
        self._pending: list[bytes] = []  # the start of an incomplete event
        self._messages = bytearray()  # the same, of a binary stream
        self._tail = b""  # its last bytes: an end mark may be split
        self._has_forwarded = False  # a complete event was forwarded
        self._encoder: StreamEncoder | None = None  # of a stream that is encoded again
        self._has_new_part = False  # the data that is fed completes a whole part, such as a picture
        self.part_bytes = 0  # of events with whole parts

    def feed(self, data: bytes) -> bytes:
        """Observe the events in `data`, and return the bytes of the complete ones for the client.

        If the upstream reports an error, our key is removed from it. A stream that cannot be decoded gets an error event,
        and nothing is returned after it.
        """
        if self.fault is not None:
            return b""
        try:
            events = self._decoder.feed(data)
            self._observe_events(events)
            self._observe_events(self._decoder.feed(b""))  # raises errors after the last event
            if self._is_encoded_again():
                return self._encode(events)
        except ToolwireError as error:
            return self.fail(stream_fault(error))
        if not self._framing.terminators:
            return self._complete_messages(data)
        output = escape_separators(self._redact(self._complete_events(data)))
        if self._has_new_part:
            self._has_new_part = False
            self.part_bytes += len(output)
        return output

    def close(self) -> bytes:
        """Return the last bytes for the client. If only the end marker is missing, add it: clients wait for it.

        A truncated stream gets an error event.
        """
        if self.fault is not None:
            return b""
        pending = b"".join(self._pending)
        try:
            events = self._decoder.close()
            check_choices_ended(events, self._choices)
            self._observe_events(events)
            if self._is_encoded_again():
                return self._encode(events)
        except ToolwireError as error:
            return self.fail(stream_fault(error))
        is_late = any(isinstance(event, ResponseEnd) for event in events)
        if not is_late or not self._framing.end_marker:
            return escape_separators(self._redact(pending))
        pending = escape_separators(pending)
        return (pending + b"\n\n" if _is_complete_event(pending) else b"") + self._framing.end_marker

    def _is_encoded_again(self) -> bool:
        """Return whether clients of this wire cannot read the stream as it is, and have received nothing of it yet."""
        if self._encoder is None and not self._has_forwarded and getattr(self._decoder, "is_unreadable", False):
            self._encoder = self._wire.stream_encoder(self._find_request())
        return self._encoder is not None

    def _encode(self, events: Iterable[Event]) -> bytes:
        assert self._encoder is not None
        if self.fault is not None:
            return self.fail(self.fault)
        return b"".join([self._encoder.feed(event) for event in events])

    def _complete_events(self, data: bytes) -> bytes:
        """Return the bytes up to the end of the last complete event, with those held back before. Hold back the rest."""
        if data.endswith(self._framing.terminators):
            out = b"".join([*self._pending, data]) if self._pending else data
            self._pending, self._tail, self._has_forwarded = [], b"", True
            return out
        previous_tail = self._tail
        joined = previous_tail + data
        cut = max(
            [joined.rfind(end) + len(end) for end in self._framing.terminators if end in joined], default=0
        ) - len(previous_tail)
        if cut <= 0:
            self._pending.append(data)
            self._tail = joined[-3:]
            return b""
        out = b"".join([*self._pending, data[:cut]])
        self._pending = [data[cut:]] if cut < len(data) else []
        self._tail = data[cut:][-3:]
        self._has_forwarded = True
        return out

    def _complete_messages(self, data: bytes) -> bytes:
        """Return the complete messages of a binary stream. A fault with one of our secrets is encoded again.

        Its checksum would be wrong after a replacement in the bytes.
        """
        self._messages += data
        output = cut_messages(self._messages)
        if self.fault is not None and self._redact(output) != output:
            return self.fail(self.fault)
        self._has_forwarded = self._has_forwarded or bool(output)
        if self._has_new_part:
            self._has_new_part = False
            self.part_bytes += len(output)
        return output

    def _redact(self, data: bytes) -> bytes:
        if self.fault is not None:
            for secret in self._secrets:
                data = data.replace(secret.encode(), b"[key]")
        return data

    def _observe_events(self, events: Iterable[Event]) -> None:
        """Pass events to the observers, and note the fault of a failed stream and the end of a complete one."""
        for kind, run in groupby(events, type):
            if kind in DELTAS:  # nearly all events
                if self._observe_deltas is not None:
                    self._observe_deltas(run)
                continue
            for event in run:
                self._observe_event(event)

    def _observe_event(self, event: Event) -> None:
        """Note a fault without secrets, or pass the event to the observer and note an end or a whole part."""
        if isinstance(event, StreamFault):
            self.fault = redact_secrets(self._secrets, event.fault)
            return
        if self._observe is not None:
            self._observe(event)
        if isinstance(event, ResponseEnd):
            self.ended = True
        elif isinstance(event, WholePart):
            self._has_new_part = True

    def fail(self, fault: Fault) -> bytes:
        self.fault = fault
        encoder = self._wire.stream_encoder(self._find_request())
        start = encoder.feed(ResponseStart())
        has_started = self._has_forwarded or self._encoder is not None
        return (b"" if has_started else start) + encoder.feed(StreamFault(fault))


def expected_choices(request: Request | None, wire: Wire) -> int:
    """Return the number of answers that must have ended when a stream ends without its final marker.

    It is 1 for wires without such a marker, and for a request that cannot be decoded.
    """
    return request.params.n or 1 if request is not None and framing_of(wire.name).end_marker else 1


def check_choices_ended(events: Sequence[Event], choices: int) -> None:
    """Raise TruncatedStream for a stream with too few answers.

    Without a final marker, no other check notices an answer that has not begun.
    """
    for event in events:
        if isinstance(event, ResponseEnd) and len(event.stops) < choices:
            raise TruncatedStream(
                f"the stream stopped after {len(event.stops)} of {choices} answers", hint="retry the request"
            )


def _is_complete_event(data: bytes) -> bool:
    """Check whether only the trailing blank line is missing."""
    try:
        return bool([parse_object(payload) for _, payload in SSEDecoder().feed(data + b"\n\n")])
    except ToolwireError:
        return False


def stream_fault(error: ToolwireError) -> Fault:
    """Convert the error of a broken stream to a fault."""
    code = "stream_truncated" if isinstance(error, TruncatedStream) else "stream_broken"
    return Fault("server", error.message, 502, code, retryable=True)
