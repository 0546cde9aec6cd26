"""Read JSON as models write it, and refuse text with no reading or several.

    repair_json(text)       read strict JSON, or repair it without guessing; every step is named
    interpretations(text)   yield possible readings, with guesses; the schema selects one (toolwire.schema.repair)

Time is linear in the text. Truncated strings, numbers and keys are never completed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.errors import BrokenJSON, ProtocolError
from ..ir.pointer import JSON
from ..ir.text import dumps
from ..ir.value import Value
from .extract import check_trailing_text, find_end, find_start
from .repair_attempt import GUESSES, GuessKind, LexicalStep, RepairAttempt
from .rewriter import JsonRewriter
from .strict import LIMIT, parse

__all__ = ["GUESSES", "MAX_INTERPRETATIONS", "LexicalStep", "Repaired", "interpretations", "repair_json"]

MAX_INTERPRETATIONS = 64


class Repaired(Value, frozen=True):
    """A value, and the steps needed to read it; none for strict JSON."""

    value: JSON
    steps: tuple[LexicalStep, ...] = ()
    closed: int = 0
    """The number of brackets missing at the end, counted from the outermost."""


def repair_json(text: str, *, finished: bool = True) -> Repaired:
    r"""Read `text`; raise BrokenJSON if it has no reading or several. `finished`: the model stopped by itself.

    >>> repair_json('```json\n{city: "Paris", "days": [1, 2,], // or 3\n}\n```')
    Repaired(value={'city': 'Paris', 'days': [1, 2]}, steps=('code_fence', 'unquoted_key', 'trailing_comma', 'comment'))
    >>> repair_json('{"city": "Par')
    Traceback (most recent call last):
        ...
    toolwire.ir.errors.BrokenJSON: truncated: the text ends in a string (character 13) at /city (write the whole call again, shorter if there is a limit)
    """
    try:
        return Repaired(parse(text))
    except ProtocolError as error:
        if len(text) > LIMIT:
            raise BrokenJSON(error.message, reason="invalid", hint="write less") from None
        return _read(text, RepairAttempt(finished))


def interpretations(text: str, *, finished: bool = True) -> Iterator[Repaired]:
    """Yield each reading that guessing allows once; raise BrokenJSON if there are too many."""
    seen: set[str] = set()
    guesses: tuple[GuessKind, ...] = ("punctuation", "quotes")
    for guess_kind in guesses:
        for found in _search_interpretations(text, finished, guess_kind):
            rewritten = dumps(found.value)
            if rewritten not in seen:
                seen.add(rewritten)
                yield found


def _search_interpretations(text: str, finished: bool, guess_kind: GuessKind) -> Iterator[Repaired]:
    """Yield the readings for one assumed defect, each with the next sequence of choices."""
    choices: tuple[int, ...] | None = ()
    for _ in range(MAX_INTERPRETATIONS):
        assert choices is not None
        attempt = RepairAttempt(finished, guess_kind, choices)
        try:
            yield _read(text, attempt)
        except BrokenJSON:
            pass  # not a valid reading
        choices = attempt.next_choices()
        if choices is None:
            return
    raise BrokenJSON(
        f"ambiguous: more than {MAX_INTERPRETATIONS} readings",
        reason="ambiguous",
        hint="escape quotes and backslashes inside strings",
    )


def _read(text: str, attempt: RepairAttempt) -> Repaired:
    """Make one attempt: find the JSON in the text, rewrite it, and check the result with the strict parser."""
    start = find_start(text, attempt)
    end = find_end(text, attempt)
    rewriter = JsonRewriter(text, start, max(start, end), attempt)
    rewritten = rewriter.rewrite()
    check_trailing_text(text, rewriter.at, end, attempt)
    try:
        return Repaired(parse(rewritten), tuple(attempt.steps), attempt.closed)
    except ProtocolError as error:
        raise BrokenJSON(error.message, reason="invalid", pointer=error.pointer, hint=error.hint) from None
