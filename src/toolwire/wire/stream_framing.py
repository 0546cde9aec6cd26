"""The framing of each wire's streams, as data: for code that forwards events without encoding them again.

Separate because codecs know their framing themselves; forwarders need only these facts.
"""

from __future__ import annotations

from ..ir.value import Value

__all__ = ["StreamFraming", "framing_of"]


class StreamFraming(Value, frozen=True):
    """The media type of a stream, the bytes that end an event, and the marker after the last one."""

    media_type: str = "text/event-stream"
    terminators: tuple[bytes, ...] = (b"\n\n", b"\r\n\r\n", b"\r\r")
    end_marker: bytes = b""  # clients may wait for it


_EVENTS = StreamFraming()
_FRAMINGS = {
    "openai_chat": StreamFraming(end_marker=b"data: [DONE]\n\n"),
    "ollama": StreamFraming("application/x-ndjson", (b"\n",)),
}


def framing_of(wire: str) -> StreamFraming:
    """Return the framing of a wire, by its name; server-sent events by default."""
    return _FRAMINGS.get(wire, _EVENTS)
