"""Anthropic's events in Bedrock's binary stream (InvokeModelWithResponseStream), in both directions.

    :event-type chunk    {"bytes": base64 of the JSON of one event, "p": padding}

The events are those of the Messages API, so only the framing is converted. An error is an exception of the stream, in
Bedrock's form.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence

from ...ir.errors import ProtocolError, TruncatedStream
from ...ir.events import Event, StreamFault
from ...ir.losses import Losses
from ...ir.pointer import Object
from ...ir.response import Fault
from ...ir.text import to_line
from ...stream.event_stream import EventMessage, EventStreamDecoder, encode_event, encode_exception, is_event_stream
from ...stream.framing import SSEDecoder
from ...stream.strict import parse_object
from .. import get
from ..protocol import StreamDecoder, Wire

_ENVELOPE = "bedrock"  # the wire whose errors these streams have
_ERROR_TYPE = "x-amzn-errortype"


class ChunkFrames:
    """Convert server-sent events of a wire to chunks."""

    def __init__(self, wire: str = "anthropic") -> None:
        self._wire = get(wire)
        self._decoder = SSEDecoder()

    def feed(self, data: bytes) -> bytes:
        return b"".join([self._write(name, document) for name, document in self._decoder.feed(data)])

    def close(self) -> bytes:
        return b""

    def _write(self, name: bytes, document: bytes) -> bytes:
        if name == b"error":
            return write_exception(self._wire.decode_error(None, parse_object(document)))
        return encode_event("chunk", b'{"bytes":"%b"}' % b64encode(document))


def as_server_sent_events(data: bytes) -> bytes:
    """Return the events of a stream of chunks as server-sent events, or nothing for a damaged stream."""
    messages = EventStreamDecoder()
    try:
        events = [parse_object(message.payload) for message in messages.feed(data)]
        documents = [b64decode(event["bytes"]) for event in events if type(event.get("bytes")) is str]
    except (ProtocolError, binascii.Error, ValueError):
        return b""
    return b"".join([b"data: %b\n\n" % document for document in documents])


def readable_pieces(pieces: Sequence[tuple[float, bytes]], wire: str) -> Sequence[tuple[float, bytes]]:
    """Return the timed pieces of a stream on `wire`; chunks as server-sent events, because base64 hides secrets."""
    data = b"".join([piece for _, piece in pieces])
    if wire == _ENVELOPE or not is_event_stream(data):
        return pieces
    return [(pieces[-1][0], as_server_sent_events(data))]


def write_exception(fault: Fault) -> bytes:
    """Return the exception of a stream for a fault; its type begins with a small letter there."""
    _, body, headers = get(_ENVELOPE).encode_error(fault)
    kind = headers[_ERROR_TYPE]
    return encode_exception(kind[:1].lower() + kind[1:], to_line(body))


class ChunkStreamDecoder:
    """Decode chunks with the decoder of the wire of their events."""

    def __init__(self, wire: Wire) -> None:
        self._messages = EventStreamDecoder()
        self._events: StreamDecoder = wire.stream_decoder()
        self._is_document: bool | None = None  # a whole answer in place of a stream; None before the first byte
        self._over = False
        self._broken: ProtocolError | None = None

    @property
    def losses(self) -> Losses:
        return self._events.losses

    @losses.setter
    def losses(self, losses: Losses) -> None:
        self._events.losses = losses

    @property
    def item_count(self) -> int:
        count: int = getattr(self._events, "item_count", 0)  # a codec of others may not count
        return count

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that `data` completes. Events before an error come first; the next call raises it."""
        if self._broken is not None:
            raise self._broken
        if self._is_document is None and data:
            self._is_document = data[:1] == b"{"  # no length of a message begins with this byte
        if self._is_document:
            return self._events.feed(data)
        events: list[Event] = []
        try:
            for message in self._messages.feed(data):
                if not self._over:
                    events += self._read(message)
        except ProtocolError as error:
            self._broken = error
            if not events:
                raise
        return events

    def close(self) -> list[Event]:
        """End the input. Raise TruncatedStream before the end of the answer; after it, a cut message is ignored."""
        if self._broken is not None:
            raise self._broken
        try:
            self._messages.close()
        except TruncatedStream:
            pass
        return [] if self._over else self._events.close()

    def _read(self, message: EventMessage) -> list[Event]:
        kind = message.text(":exception-type") or message.text(":error-code")
        if kind:
            self._over = True
            body: Object = (
                parse_object(message.payload) if message.payload else {"message": message.text(":error-message")}
            )
            return [StreamFault(get(_ENVELOPE).decode_error(None, body, {_ERROR_TYPE: kind}))]
        if message.text(":event-type") != "chunk":
            return []
        data = parse_object(message.payload).get("bytes")
        try:
            document = b64decode(data if type(data) is str else "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ProtocolError("a chunk is not base64", pointer="/bytes", status=502) from error
        return self._events.feed(b"data: %b\n\n" % document.replace(b"\n", b" "))
