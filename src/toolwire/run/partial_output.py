"""Read the output of a run while it is generated.

    reader = PartialReader()
    for event in events:
        found = reader.feed(event, plan)        # a PartialOutput, or None

A partial value is plain JSON in the shape of the output's schema: objects may lack properties, lists may lack items and
the last string may lack its end. Numbers and literals appear only once they are complete. It is not validated: the typed
value of the whole answer is in the `Answer`.

A value is read again after the text has grown by one part in 32, so the total cost is linear in the text.
"""

from __future__ import annotations

import re

import jiter

from ..ir.events import CallDelta, CallEnd, CallStart, Event, ResponseStart, TextDelta, TextEnd, TextStart
from ..ir.pointer import JSON
from ..ir.value import Value
from .output_plan import OutputPlan

__all__ = ["PartialOutput", "PartialReader"]

_GROWTH = 32
_FENCE = re.compile(r"\s*```[a-zA-Z]*\s*")
_NUMBER_CHARACTERS = "-+0123456789.eE"


class PartialOutput(Value, frozen=True):
    """The output as far as it was generated, as plain JSON. `attempt` counts the answers of a run, from one."""

    value: JSON
    attempt: int = 1


class PartialReader:
    """Reads the partial output of one run from the events of its responses."""

    def __init__(self) -> None:
        self._attempt = 0
        self._key: int | None = None  # of the text or call that holds the output
        self._pieces: list[str] = []
        self._size = 0
        self._read_size = 0  # at the last reading
        self._value: JSON = None

    def feed(self, event: Event, plan: OutputPlan) -> PartialOutput | None:
        """Add an event; return the output if it has changed visibly."""
        if isinstance(event, (TextDelta, CallDelta)):
            if event.key != self._key:
                return None
            self._pieces.append(event.text)
            self._size += len(event.text)
            return self._read(plan) if self._size - self._read_size > self._read_size // _GROWTH else None
        if isinstance(event, (TextEnd, CallEnd)):
            return self._end(plan) if event.key == self._key else None
        if isinstance(event, (TextStart, CallStart)) and _is_output(event, plan):
            self._key, self._pieces, self._size, self._read_size, self._value = event.key, [], 0, 0, None
        elif isinstance(event, ResponseStart):
            self._attempt += 1
            self._key = None
        return None

    def _end(self, plan: OutputPlan) -> PartialOutput | None:
        """Read the whole text; a number at its end is complete now."""
        found = self._read(plan, is_complete=True)
        self._key = None
        return found

    def _read(self, plan: OutputPlan, *, is_complete: bool = False) -> PartialOutput | None:
        self._read_size = self._size
        text = "".join(self._pieces)
        self._pieces = [text]
        fence = _FENCE.match(text)
        text = text[fence.end() :] if fence is not None else text
        value = _parse(text if is_complete else text.rstrip(_NUMBER_CHARACTERS))
        if plan.tool is not None:
            value = plan.output.unwrap(value)
        if value is None or value == self._value:
            return None
        self._value = value
        return PartialOutput(value, self._attempt)


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
