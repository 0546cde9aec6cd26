"""Read the output of a run, and the arguments of its calls, while they are generated.

    output, arguments = PartialReader(), ArgumentsReader()
    for event in events:
        found = output.feed(event, plan)         # a PartialOutput, or None
        found = arguments.feed(event, plan)      # an UnfinishedCall, or None

A partial value is plain JSON in the shape of its schema: objects may lack properties, lists may lack items and the last
string may lack its end. Numbers and literals appear only once they are complete. It is not validated: the typed value of
the whole answer is in the `Answer`, and the complete call is a `ToolCall`.

A value is read again after the text has grown by one part in 32, so the total cost is linear in the text.
"""

from __future__ import annotations

import re

import jiter

from ...ir.events import CallDelta, CallEnd, CallStart, Event, ResponseStart, TextDelta, TextEnd, TextStart
from ...ir.pointer import JSON, Object
from ...ir.value import Value
from .output import OutputPlan

_GROWTH = 32  # a text is read again once it has grown by 1/32, so that all readings together stay linear in its size
_FENCE = re.compile(r"\s*```[a-zA-Z]*\s*")
_NUMBER_CHARACTERS = "-+0123456789.eE"


class PartialOutput(Value, frozen=True):
    """The output as far as it was generated, as plain JSON. `attempt` counts the answers of a run, from one."""

    value: JSON
    attempt: int = 1


class UnfinishedCall(Value, frozen=True):
    """The arguments of a call as far as they were generated, as plain JSON. `key` is the key of the call's events."""

    key: int
    id: str
    name: str
    arguments: Object


class _GrowingText:
    """A JSON text that grows, and the last value that was read from it."""

    def __init__(self) -> None:
        self.value: JSON = None
        self._pieces: list[str] = []
        self._size = 0
        self._read_size = 0  # at the last reading

    def feed(self, piece: str) -> JSON:
        """Add a piece; return the value if the text has grown enough to read it again, otherwise None."""
        self._pieces.append(piece)
        self._size += len(piece)
        return self.read() if self._size - self._read_size > self._read_size // _GROWTH else None

    def read(self, *, is_complete: bool = False) -> JSON:
        """Return the value so far; a number at the end is complete only with `is_complete`."""
        self._read_size = self._size
        text = "".join(self._pieces)
        self._pieces = [text]
        fence = _FENCE.match(text)
        text = text[fence.end() :] if fence is not None else text
        return _parse(text if is_complete else text.rstrip(_NUMBER_CHARACTERS))


class PartialReader:
    """Reads the partial output of one run from the events of its responses."""

    def __init__(self) -> None:
        self._attempt = 0
        self._key: int | None = None  # of the text or call that holds the output
        self._text = _GrowingText()

    def feed(self, event: Event, plan: OutputPlan) -> PartialOutput | None:
        """Add an event; return the output if it has changed visibly, else None."""
        if isinstance(event, (TextDelta, CallDelta)):
            return self._report(self._text.feed(event.text), plan) if event.key == self._key else None
        if isinstance(event, (TextEnd, CallEnd)):
            if event.key != self._key:
                return None
            self._key = None
            return self._report(self._text.read(is_complete=True), plan)
        if isinstance(event, (TextStart, CallStart)) and _is_output(event, plan):
            self._key, self._text = event.key, _GrowingText()
        elif isinstance(event, ResponseStart):
            self._attempt += 1
            self._key = None
        return None

    def _report(self, value: JSON, plan: OutputPlan) -> PartialOutput | None:
        if plan.tool is not None:
            value = plan.output.unwrap(value)
        if value is None or value == self._text.value:
            return None
        self._text.value = value
        return PartialOutput(value, self._attempt)


class ArgumentsReader:
    """Reads the partial arguments of a response's calls, except freeform calls and the call that is the output."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[CallStart, _GrowingText]] = {}

    def feed(self, event: Event, plan: OutputPlan | None) -> UnfinishedCall | None:
        """Add an event; return the arguments of its call if they have changed visibly, else None."""
        if isinstance(event, CallStart):
            is_output = plan is not None and plan.is_final_call(event.name)
            if event.kind != "freeform" and event.choice == 0 and not is_output:
                self._open[event.key] = event, _GrowingText()
        elif isinstance(event, CallDelta) and event.key in self._open:
            start, text = self._open[event.key]
            return _report_arguments(start, text, text.feed(event.text))
        elif isinstance(event, CallEnd) and event.key in self._open:
            start, text = self._open.pop(event.key)
            return _report_arguments(start, text, text.read(is_complete=True))
        return None


def _report_arguments(start: CallStart, text: _GrowingText, value: JSON) -> UnfinishedCall | None:
    if type(value) is not dict or value == text.value:
        return None
    text.value = value
    return UnfinishedCall(start.key, start.id, start.name, value)


def _is_output(event: TextStart | CallStart, plan: OutputPlan) -> bool:
    if event.choice != 0:
        return False
    return plan.is_final_call(event.name) if isinstance(event, CallStart) else plan.tool is None


def _parse(text: str) -> JSON:
    """Parse the beginning of a JSON text; None if there is no value yet, or if it is not JSON."""
    try:
        value: JSON = jiter.from_json(text.encode(), partial_mode="trailing-strings", allow_inf_nan=False)
    except ValueError:  # UnicodeEncodeError is one, too
        return None
    return value
