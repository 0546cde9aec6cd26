"""Convert the text of a structured answer, in the shape of the lowered schema, back to the original schema.

Like the arguments of a call (lift.py), the text is converted property by property: a value that is carried unchanged
passes through as it arrives, any other value waits for its own end only. If the shape of the whole value differs, the
text waits for its end. Text is converted in one pass over its characters, so the result does not depend on the chunks
in which it arrives.

The model may write something else: a truncated answer, prose, a refusal. Such text is neither withheld nor completed.
From the first character that cannot be converted, it is passed on unchanged, and `problem` has the reason.
"""

from __future__ import annotations

from ...ir.errors import ProtocolError
from ...ir.events import Event, TextDelta, TextEnd
from ...ir.losses import Losses
from ...ir.text import dumps
from ...schema.lowering.codec import FieldCodec
from ...schema.lowering.lowered import Lowered
from ...stream.scanner import Scanner
from ...stream.strict import parse
from .arguments import PropertyLifter

_SPACE = " \t\r\n"
_JSON_STARTS = '{["-0123456789tfn'


class AnswerLifter:
    """Lift the texts of one answer, and report those that are not of the requested form."""

    __slots__ = ("_losses", "_lowered", "_open_texts")

    def __init__(self, lowered: Lowered, losses: Losses) -> None:
        self._lowered = lowered
        self._losses = losses
        self._open_texts: dict[int, tuple[OutputLifter, str]] = {}  # by key: the lifter of the text, and its path

    def start(self, key: int, path: str) -> None:
        self._open_texts[key] = OutputLifter(key, self._lowered), path

    def feed(self, event: TextDelta) -> tuple[Event, ...]:
        text = self._open_texts.get(event.key)
        return (event,) if text is None else text[0].feed(event)

    def end(self, event: TextEnd) -> tuple[Event, ...]:
        """End a text: return its last events, and report a text that is not of the requested form."""
        text = self._open_texts.pop(event.key, None)
        if text is None:
            return (event,)
        lifter, path = text
        events = lifter.end(event)
        if lifter.problem is not None:
            self._losses.add(path, "answer", "weakened", lifter.problem)
        return events

    def flush(self) -> list[Event]:
        """Return the withheld text before a fault, which leaves its texts without an end."""
        events = [event for key in list(self._open_texts) for event in self.end(TextEnd(key))]
        return [event for event in events if type(event) is TextDelta]

    def lift(self, text: str, path: str) -> str:
        """Like `start`, `feed` and `end`, for a whole text."""
        self.start(0, path)
        events = [*self.feed(TextDelta.of(0, text)), *self.end(TextEnd(0))]
        return "".join([event.text for event in events if type(event) is TextDelta])


class OutputLifter:
    """Lift one text of a stream. Emitted text is never retracted. `problem` is set if the text is not as requested."""

    __slots__ = ("_convert", "_key", "_pieces", "problem")

    def __init__(self, key: int, lowered: Lowered) -> None:
        self.problem: str | None = None
        self._key = key
        self._pieces: list[str] = []  # the whole text
        self._convert = _make_converter(lowered)

    def feed(self, event: TextDelta) -> tuple[Event, ...]:
        """Emit the part of the text that can be converted now."""
        if self._convert.failed:
            return (event,)
        self._pieces.append(event.text)
        text = self._convert.feed(self._pieces)
        return (TextDelta.of(self._key, text),) if text else ()

    def end(self, event: TextEnd) -> tuple[Event, ...]:
        """End the text: emit the rest of it, converted if it is complete."""
        text = "" if self._convert.failed else self._convert.end(self._pieces)
        if self._convert.failed and "".join(self._pieces).strip(_SPACE):
            self.problem = "the answer is not complete JSON of the requested form; the rest is passed on unchanged"
        return (TextDelta.of(self._key, text), event) if text else (event,)


def _make_converter(lowered: Lowered) -> _WholeLifter | _WrapperLifter | _ObjectLifter:
    codec = lowered.codec
    if codec is not None and codec.properties is not None:
        return _ObjectLifter(codec.properties)
    return _WholeLifter(lowered) if codec is None or codec.wrapper is None else _WrapperLifter(codec.wrapper)


class _WholeLifter:
    """Converts a text whose value has another shape as a whole; it waits for the end."""

    __slots__ = ("_is_json", "_lowered", "_starts", "failed")

    def __init__(self, lowered: Lowered) -> None:
        self.failed = False
        self._is_json = False  # the first character can begin the value
        self._lowered = lowered
        self._starts = "{" if lowered.schema.get("type") == "object" else _JSON_STARTS

    def feed(self, pieces: list[str]) -> str:
        """Withhold JSON; pass other text on from its first character."""
        start = "" if self._is_json else pieces[-1].lstrip(_SPACE)
        if start:
            self._is_json = start[0] in self._starts
            self.failed = not self._is_json
        return "".join(pieces) if self.failed else ""

    def end(self, pieces: list[str]) -> str:
        """Return the converted value, or the text itself if conversion changes nothing or is impossible (`failed`)."""
        text = "".join(pieces)
        try:
            value = parse(text)
        except ProtocolError:
            self.failed = True
            return text
        lifted = self._lowered.lift(value)
        return text if lifted == value else dumps(lifted)


class _WrapperLifter:
    """Takes an unchanged value out of the object that it is wrapped in, as it arrives."""

    __slots__ = ("_complete", "_name", "_scanner", "_sent_length", "failed")

    def __init__(self, name: str) -> None:
        self.failed = False
        self._name = name
        self._scanner = Scanner()
        self._sent_length = 0  # length of the part of the value already sent
        self._complete = False  # the value is complete: no other property may follow

    def feed(self, pieces: list[str]) -> str:
        """Return the part of the value in the last piece; if conversion fails, the text that was not sent."""
        out: list[str] = []
        try:
            for name, raw in self._scanner.feed(pieces[-1]):
                out.append(self._add_value(name, raw[self._sent_length :]))
                self._complete = True
            if self._scanner.partial is not None:
                name_as_json, piece = self._scanner.partial
                out.append(self._add_value(parse(name_as_json), piece))
        except ProtocolError:
            self.failed = True
        self.failed = self.failed or self._scanner.invalid
        if self.failed and not self._sent_length:
            return "".join(pieces)
        return "".join(out) + (_text_after(pieces, 1) if self.failed else "")

    def end(self, pieces: list[str]) -> str:
        """Return the text itself if there was no value."""
        self.failed = not self._scanner.complete
        return "" if self._sent_length else "".join(pieces)

    def _add_value(self, name: str, text: str) -> str:
        if name != self._name or self._complete:
            self.failed = True
            return ""
        self._sent_length += len(text)
        return text


class _ObjectLifter:
    """Converts the text of an object property by property."""

    __slots__ = ("_fields", "failed")

    def __init__(self, properties: dict[str, FieldCodec]) -> None:
        self.failed = False
        self._fields = PropertyLifter(properties)

    def feed(self, pieces: list[str]) -> str:
        """Convert the last piece of the text."""
        out = self._fields.feed(pieces[-1])
        self.failed = self._fields.failed
        return out + self._rest(pieces) if self.failed else out

    def end(self, pieces: list[str]) -> str:
        """Return the closing brace, or the rest of a truncated text as it is."""
        if self._fields.complete:
            return "}" if self._fields.started else "{}"
        self.failed = True
        return self._rest(pieces)

    def _rest(self, pieces: list[str]) -> str:
        """Return the text after the last converted property, or all of it if nothing was sent."""
        if self._fields.streaming:
            return ""  # all of it was sent
        return _text_after(pieces, self._fields.count) if self._fields.started else "".join(pieces)


def _text_after(pieces: list[str], count: int) -> str:
    """Return the text after the value of the property number `count`, counted from one."""
    text = "".join(pieces)
    scanner = Scanner()
    _, raw = scanner.feed(text)[count - 1]
    # the end of a scalar is known only with the character after it
    return text[scanner.ends[count - 1] - (raw[-1] not in '"}]') :]
