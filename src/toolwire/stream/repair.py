"""Read JSON as models write it, and refuse text with no reading or several.

    mend(text)       read strict JSON, or repair it without guessing; every step is named
    readings(text)   yield possible readings, with guesses; the schema selects one (toolwire.schema.repair)

Time is linear in the text. Truncated strings, numbers and keys are never completed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.errors import BrokenJSON, ProtocolError
from ..ir.pointer import JSON
from ..ir.text import dumps
from ..ir.value import Value
from .mender import Mender
from .reading import GUESSES, Guessing, LexicalStep, Reading
from .strict import LIMIT, parse
from .surroundings import drop_after, find_end, find_start

__all__ = ["GUESSES", "MOST_READINGS", "LexicalStep", "Repaired", "mend", "readings"]

MOST_READINGS = 64


class Repaired(Value, frozen=True):
    """A value, and the steps needed to read it; none for strict JSON."""

    value: JSON
    steps: tuple[LexicalStep, ...] = ()
    closed: int = 0
    """The number of brackets missing at the end, counted from the outermost."""


def mend(text: str, *, finished: bool = True) -> Repaired:
    r"""Read `text`; raise BrokenJSON if it has no reading or several. `finished`: the model stopped by itself.

    >>> mend('```json\n{city: "Paris", "days": [1, 2,], // or 3\n}\n```')
    Repaired(value={'city': 'Paris', 'days': [1, 2]}, steps=('code_fence', 'unquoted_key', 'trailing_comma', 'comment'))
    >>> mend('{"city": "Par')
    Traceback (most recent call last):
        ...
    toolwire.ir.errors.BrokenJSON: truncated: the text ends in a string (character 13) at /city (write the whole call again, shorter if there is a limit)
    """
    try:
        return Repaired(parse(text))
    except ProtocolError as error:
        if len(text) > LIMIT:
            raise BrokenJSON(error.message, reason="invalid", hint="write less") from None
        return _read(text, Reading(finished))


def readings(text: str, *, finished: bool = True) -> Iterator[Repaired]:
    """Yield each reading that guessing allows once; raise BrokenJSON if there are too many."""
    seen: set[str] = set()
    guesses: tuple[Guessing, ...] = ("punctuation", "quotes")
    for guessing in guesses:
        for found in _all_readings(text, finished, guessing):
            written = dumps(found.value)
            if written not in seen:
                seen.add(written)
                yield found


def _all_readings(text: str, finished: bool, guessing: Guessing) -> Iterator[Repaired]:
    choices: tuple[int, ...] | None = ()
    for _ in range(MOST_READINGS):
        assert choices is not None
        reading = Reading(finished, guessing, choices)
        try:
            yield _read(text, reading)
        except BrokenJSON:
            pass  # not a valid reading
        choices = reading.next_choices()
        if choices is None:
            return
    raise BrokenJSON(
        f"ambiguous: more than {MOST_READINGS} readings",
        reason="ambiguous",
        hint="escape quotes and backslashes inside strings",
    )


def _read(text: str, reading: Reading) -> Repaired:
    start = find_start(text, reading)
    end = find_end(text, reading)
    mender = Mender(text, start, max(start, end), reading)
    written = mender.mend()
    drop_after(text, mender.at, end, reading)
    try:
        return Repaired(parse(written), tuple(reading.steps), reading.closed)
    except ProtocolError as error:
        raise BrokenJSON(error.message, reason="invalid", pointer=error.pointer, hint=error.hint) from None
