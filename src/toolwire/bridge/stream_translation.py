"""Translate a stream from one wire to another, chunk by chunk.

stream = translate_stream(source="anthropic", target="openai_chat", request=body)
for data in upstream:
    client.write(stream.feed(data))
client.write(stream.close())
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.errors import ConfigError, ToolwireError, TruncatedStream
from ..ir.events import Event, ResponseStart, StreamFault
from ..ir.losses import Losses
from ..ir.pointer import JSON
from ..ir.response import Fault, UpstreamError
from ..wire import get
from .answer_converter import DELTAS, AnswerConverter
from .exchange import Exchange
from .limit_tools import keep_all
from .preparation import prepare
from .stored import drop_stored
from .translation import parse_body

__all__ = ["StreamTranslation", "translate_stream"]


def translate_stream(*, source: str, target: str, request: JSON | bytes | str | None = None) -> StreamTranslation:
    """Return a translator for one stream: feed it bytes of `source`, and it returns bytes of `target`."""
    return StreamTranslation(source, target, request)


class StreamTranslation:
    """The translation of one stream from wire to wire.

    A stream that breaks (truncated, or invalid on its wire) becomes an error event of the target wire, never a normal
    end; `error` then holds the cause.
    """

    __slots__ = ("_converter", "_decoder", "_encoder", "_is_same_wire", "error", "losses")

    def __init__(self, source: str, target: str, request: JSON | bytes | str | None = None) -> None:
        self.losses = Losses()
        self.error: ToolwireError | None = None
        self._is_same_wire = source == target
        if self._is_same_wire:
            codec = get(source)
            if request is not None:
                codec.decode_request(parse_body(request))
            return
        reader, writer = get(source), get(target)
        canonical = None if request is None else writer.decode_request(parse_body(request))
        exchange = Exchange()
        if canonical is not None:
            exchange = prepare(drop_stored(canonical, reader.name), reader, choose=keep_all).exchange
        self._decoder = reader.stream_decoder()
        self._encoder = writer.stream_encoder(canonical)
        self._converter = AnswerConverter(exchange, writer, self.losses)
        self._decoder.losses = self._encoder.losses = self.losses

    def feed(self, data: bytes) -> bytes:
        """Translate more bytes; return nothing after an error."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ConfigError(f"a stream must be bytes, got {type(data).__name__}")
        if self._is_same_wire or self.error is not None:
            return b"" if self.error is not None else data
        try:
            events = self._decoder.feed(data)
            return self._write(events) if events else b""
        except ToolwireError as error:
            return self._fail(error)

    def close(self) -> bytes:
        """End the source. A truncated stream ends in an error event."""
        if self._is_same_wire or self.error is not None:
            return b""
        try:
            return self._write(self._decoder.close())
        except ToolwireError as error:
            return self._fail(error)

    def _write(self, events: Iterable[Event]) -> bytes:
        """Convert and encode the events; a malformed call becomes `error`."""
        encode, convert, restore_delta = self._encoder.feed, self._converter.feed, self._converter.restore_delta
        out: list[bytes] = []
        try:
            for event in events:
                for converted in restore_delta(event) if type(event) in DELTAS else convert(event):
                    out.append(encode(converted))
        except ToolwireError as error:
            return b"".join(out) + self._fail(error)
        if self._converter.fault is not None:
            self.error = UpstreamError(self._converter.fault)
        return b"".join(out)

    def _fail(self, error: ToolwireError) -> bytes:
        self.error = error
        code = "stream_truncated" if isinstance(error, TruncatedStream) else "stream_broken"
        fault = StreamFault(Fault("server", error.message, 502, code, retryable=True))
        start = b"" if self._converter.has_started else self._encoder.feed(ResponseStart())
        return start + self._encoder.feed(fault)
