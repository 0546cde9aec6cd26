"""Convert arguments in the shape of the lowered schema back to the original schema, whole or incrementally.

It works property by property: a value that is carried unchanged passes through at once; any other value waits for its
own end only. If the shape of the whole object differs, everything waits for the end of the call.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.events import CallDelta, CallEnd, Event
from ..ir.text import dumps
from ..schema.lowering.lowered import Lowered
from .lift_properties import PropertyLifter

__all__ = ["ArgumentLifter"]


class ArgumentLifter:
    """Lift one call of a stream. Emitted text is never retracted, and adds up to the lifted arguments."""

    __slots__ = ("_fields", "_key", "_lowered")

    def __init__(self, key: int, lowered: Lowered) -> None:
        properties = None if lowered.codec is None else lowered.codec.properties
        self._key = key
        self._lowered = lowered
        self._fields = None if properties is None else PropertyLifter(properties)  # None: all of it waits for the end

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        """Emit complete arguments in the original shape, and values that pass through unchanged."""
        text = "" if self._fields is None else self._fields.feed(event.text)
        return (CallDelta.of(self._key, text),) if text else ()

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        """End the call: emit the closing brace, or all arguments if none was emitted before."""
        if event.arguments is None:
            return (event,)
        arguments = self._lowered.lift(event.arguments)
        if self._fields is None or not self._fields.started:
            text = dumps(arguments)
        elif self._fields.complete:
            text = "}"
        else:  # the scanner failed where the strict parser did not
            return (replace(event, arguments=None, raw=event.raw, state="invalid"),)
        return (CallDelta.of(self._key, text), replace(event, arguments=arguments, raw=None))
