"""Convert arguments in the shape of the lowered schema back to the original schema, whole or incrementally.

It works property by property: a string that is carried unchanged passes through at once; any other value waits for its
own end only. If the shape of the whole object differs, everything waits for the end of the call.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.events import CallDelta, CallEnd, Event
from ..ir.text import dumps
from ..schema.codec import FieldCodec, apply_codec
from ..schema.lowering import Lowered
from ..stream.scanner import Scanner
from ..stream.strict import parse

__all__ = ["ArgumentLifter"]


class ArgumentLifter:
    """Lift one call of a stream. Emitted text is never retracted, and adds up to the lifted arguments."""

    __slots__ = ("_key", "_lowered", "_properties", "_scanner", "_sent_length", "_started", "_streaming_name")

    def __init__(self, key: int, lowered: Lowered) -> None:
        self._key = key
        self._lowered = lowered
        self._properties = None if lowered.codec is None else lowered.codec.properties
        self._scanner = Scanner()
        self._streaming_name: str | None = None  # the argument that passes through, by its name on the target
        self._sent_length = 0  # length of the part already sent
        self._started = False  # the opening brace was sent

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        """Emit complete arguments in the original shape, and strings that pass through unchanged.

        If the whole object has another shape (`_properties` is None), everything waits for `end`.
        """
        if self._properties is None:
            return ()
        out = [self._complete_field(name, raw) for name, raw in self._scanner.feed(event.text)]
        partial = self._scanner.partial
        if partial is not None:
            out.append(self._partial_field(*partial))
        text = "".join(out)
        return (CallDelta.of(self._key, text),) if text else ()

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        """End the call: emit the closing brace, or all arguments if none was emitted before."""
        if event.arguments is None:
            return (event,)
        arguments = self._lowered.lift(event.arguments)
        if not self._started:
            text = dumps(arguments)
        elif self._scanner.complete:
            text = "}"
        else:  # the scanner failed where the strict parser did not
            return (replace(event, arguments=None, raw=event.raw, state="invalid"),)
        return (CallDelta.of(self._key, text), replace(event, arguments=arguments, raw=None))

    def _field_codec(self, name: str) -> FieldCodec:
        assert self._properties is not None
        return self._properties.get(name) or FieldCodec(name, name, None, False)

    def _field_prefix(self, field: FieldCodec) -> str:
        mark, self._started = "," if self._started else "{", True
        return f"{mark}{dumps(field.name)}:"

    def _complete_field(self, name: str, raw: str) -> str:
        """Return the text that completes an argument; empty if its value means that it is absent."""
        if name == self._streaming_name:
            rest, self._streaming_name = raw[self._sent_length :], None
            return rest
        field = self._field_codec(name)
        value = parse(raw)
        if field.is_filled and (value is None or value == field.absent):
            return ""
        lifted = value if field.codec is None else apply_codec(field.codec.lift, value)
        return self._field_prefix(field) + (raw if field.codec is None else dumps(lifted))

    def _partial_field(self, name_as_json: str, piece: str) -> str:
        """Return the text of an incomplete argument: only a string that is carried unchanged can pass through."""
        if self._streaming_name is not None:
            self._sent_length += len(piece)
            return piece
        name = parse(name_as_json)
        field = self._field_codec(name)
        if field.codec is not None or field.absent is not None or not piece.startswith('"'):
            return ""
        self._streaming_name, self._sent_length = name, len(piece)
        return self._field_prefix(field) + piece
