"""Restore the arguments of a call: lift them to the original schema, unwrap freeform input, hold back uncertain deltas.

Arguments in the shape of the lowered schema are converted whole or incrementally, property by property. A value that
is carried unchanged passes through as it arrives; any other value waits for its own end. Each character is scanned
once, so the result does not depend on the fragments in which the text arrives.

A freeform tool may have been sent as a function with one argument; its call becomes freeform again. In a stream the
text inside `{"input": "…"}` is passed on as it arrives: the text between the quotes of that JSON string is exactly the
escaped form that delta events carry.

Deltas are held back if their text is not known to be right before the end of the call.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.events import CallDelta, CallEnd, Event
from ...ir.text import dumps, unescape
from ...schema.lowering.codec import FieldCodec, apply_codec
from ...schema.lowering.lowered import Lowered
from ...stream.scanner import Scanner
from ...stream.strict import parse
from ..fitting.freeform import WRAPPED_INPUT


class PropertyLifter:
    """Lift the text of one object; after a text that cannot be converted (`failed`), nothing more is returned."""

    __slots__ = ("_names", "_properties", "_scanner", "_sent_length", "_waiting", "failed", "started", "streaming")

    def __init__(self, properties: dict[str, FieldCodec]) -> None:
        self.failed = False
        self.started = False  # the opening brace was returned
        self.streaming = False  # the value in progress passes through
        self._properties = properties
        self._scanner = Scanner()
        self._names: set[str] = set()  # properties that are complete and converted
        self._waiting = ""  # the name, as JSON, of a value in progress that waits for its end
        self._sent_length = 0  # length of the returned part of the value in progress

    @property
    def complete(self) -> bool:
        """True after the closing brace, which is not returned: the caller ends the text."""
        return self._scanner.complete and not self.failed

    @property
    def count(self) -> int:
        """The number of converted properties."""
        return len(self._names)

    def feed(self, text: str) -> str:
        """Return the converted text that is certain now; set `failed` at text that cannot be converted."""
        if self.failed:
            return ""
        out: list[str] = []
        try:
            for name, raw in self._scanner.feed(text):
                out.append(self._complete_field(name, raw))
                self._names.add(name)
            if self._scanner.partial is not None:
                out.append(self._partial_field(*self._scanner.partial))
        except ProtocolError:  # the scanner checks only the outline of names and values
            self.failed = True
        self.failed = self.failed or self._scanner.invalid
        return "".join(out)

    def _field_codec(self, name: str) -> FieldCodec:
        return self._properties.get(name) or FieldCodec(name, name, None, is_filled=False)

    def _field_prefix(self, field: FieldCodec) -> str:
        mark, self.started = "," if self.started else "{", True
        return f"{mark}{dumps(field.name)}:"

    def _complete_field(self, name: str, raw: str) -> str:
        """Return the text that completes a property; empty if its value means that it is absent."""
        if self.streaming:
            self.streaming = False
            return raw[self._sent_length :]
        field = self._field_codec(name)
        value = parse(raw)
        if field.is_filled and (value is None or value == field.absent):
            return ""
        return self._field_prefix(field) + (raw if field.codec is None else dumps(apply_codec(field.codec.lift, value)))

    def _partial_field(self, name_as_json: str, piece: str) -> str:
        """Return the text of an incomplete property, if its value is carried unchanged and cannot mean absence.

        Return "" for any other.
        """
        if self.streaming:
            self._sent_length += len(piece)
            return piece
        if name_as_json == self._waiting:
            return ""
        name = parse(name_as_json)
        if name in self._names:  # the second property of this name
            self.failed = True
            return ""
        field = self._field_codec(name)
        # `null` means absence, so only the start of a string, object or array is certain
        if field.codec is not None or field.absent is not None or piece[:1] not in ('"', "{", "["):
            self._waiting = name_as_json
            return ""
        self.streaming, self._sent_length = True, len(piece)
        return self._field_prefix(field) + piece


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
        """End the call: emit the closing brace, or all arguments if none was emitted before.

        The call is `invalid` if the emitted text cannot be completed.
        """
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


_OPENING = re.compile(r'\s*\{\s*"' + WRAPPED_INPUT + r'"\s*:\s*"')
_MAX_OPENING = 1000  # with any amount of optional space
# Text that can be passed on: no control characters, no incomplete escape, no half of a surrogate pair.
_INSIDE = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\(?:[^u\x00-\x1f]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*+"
)
_MAX_ESCAPE = 12  # characters: a surrogate pair as two escapes of six. More is not an incomplete escape


class FreeformUnwrapper:
    """Unwrap one call of a stream: hold back the opening, pass the inside on, drop the rest."""

    __slots__ = ("_emitted", "_feed", "_key", "_pending")

    def __init__(self, key: int) -> None:
        self._key = key
        self._pending = ""  # a piece of the opening, or of an escape sequence
        self._emitted: list[bytes] = []
        self._feed = self._feed_opening

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        return self._feed(event.text)

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        """End the call and emit the input that was held back; it is `invalid` if the argument is missing or differs.

        A truncated call stays truncated.
        """
        emitted = unescape(b"".join(self._emitted))
        full_input = None if event.arguments is None else event.arguments.get(WRAPPED_INPUT)
        if not isinstance(full_input, str) or not full_input.startswith(emitted):
            state = "truncated" if event.state == "truncated" else "invalid"
            return (replace(event, arguments=None, raw=emitted, state=state),)
        end = replace(event, arguments=None, raw=full_input)
        missing_input = full_input[len(emitted) :]
        return (CallDelta.of(self._key, missing_input), end) if missing_input else (end,)

    def _feed_opening(self, text: str) -> tuple[Event, ...]:
        """Hold the text back until the opening `{"input": "` is complete; give up if it is too long."""
        self._pending += text
        opening = _OPENING.match(self._pending)
        if opening is not None:
            inside, self._pending = self._pending[opening.end() :], ""
            self._feed = self._feed_inside
            return self._feed_inside(inside)
        if len(self._pending) > _MAX_OPENING:
            self._feed = self._feed_rest
        return ()

    def _feed_inside(self, text: str) -> tuple[Event, ...]:
        """Pass on the string's content, and hold back an incomplete escape sequence; stop at the closing quote."""
        text = self._pending + text
        end = _INSIDE.match(text).end()  # type: ignore[union-attr]  # the pattern matches everywhere
        self._pending = text[end:]
        if self._pending[:1] not in ("", "\\") or len(self._pending) > _MAX_ESCAPE:
            self._feed = self._feed_rest
        if not end:
            return ()
        self._emitted.append(text[:end].encode())
        return (CallDelta(self._key, self._emitted[-1]),)

    def _feed_rest(self, text: str) -> tuple[Event, ...]:
        """Ignore the closing quote and anything unexpected after it; `end` determines the remaining input."""
        return ()


def argument_events(end: CallEnd) -> tuple[Event, ...]:
    """Return the arguments of `end` as one delta, then `end`."""
    text = end.raw if end.raw is not None else dumps(end.arguments or {})
    return (CallDelta.of(end.key, text), end) if text else (end,)


class HeldArguments:
    """Hold a call until its end, because a repair may replace its text. `lifter` then lifts the arguments."""

    __slots__ = ("_lifter",)

    def __init__(self, lifter: ArgumentLifter | None) -> None:
        self._lifter = lifter

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        return ()

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        return argument_events(event) if self._lifter is None else self._lifter.end(event)


class NullGuard:
    """Hold `null`, which some models write for "no arguments", so that a client that expects an object gets one.

    Everything else passes with its first fragment that cannot become `null`.
    """

    __slots__ = ("_held", "is_open")

    def __init__(self) -> None:
        self._held = ""
        self.is_open = False  # the text is not `null`; later deltas need no guard

    def feed(self, event: CallDelta) -> tuple[Event, ...]:
        """Return no event while the text may become `null`; else the held text and `event` as one delta."""
        if not self._held and event.escaped[:1] == b"{":
            self.is_open = True
            return (event,)
        text = self._held + event.text
        if "null".startswith(text.strip()):
            self._held = text
            return ()
        self.is_open = True
        held, self._held = self._held, ""
        return (CallDelta.of(event.key, text),) if held else (event,)

    def end(self, event: CallEnd) -> tuple[Event, ...]:
        return argument_events(event) if self._held else (event,)
