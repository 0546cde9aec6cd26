"""Read JSON as models write it, and refuse text with no reading or several.

    repair_json(text)       read strict JSON, or repair it without guessing; every step is named
    checked_readings(text)  yield readings that a schema must confirm, without guesses
    interpretations(text)   yield possible readings, with guesses; the schema decides

Also read are arguments that are not a JSON value: members without their opening brace, and calls in Python syntax.

    "city": "Paris", "days": 3}          missing_brace
    get_weather(city="Paris", days=3)    call_syntax; also get_weather({"city": "Paris"}) and [get_weather(…)]

Text of either form may mean something else, so only a reading that fits the schema of the tool is used.

Time is linear in the text: the number of readings is bounded, and the number of characters that they read together.
Truncated strings, numbers and keys are never completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from ..ir.errors import BrokenJSON, ProtocolError, ToolwireError
from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..ir.value import Value
from .attempt import Form, GuessKind, LexicalStep, RepairAttempt, invalid_error
from .extract import check_trailing_text, find_end, find_start, skip_lead
from .notation import BRACKETS, COLON, PARENTHESES, QUOTES, SURPLUS_COMMA
from .rewriter import JsonRewriter
from .strict import LIMIT, parse

_KEY = rf"(?:[A-Za-z_$][\w$-]*+|[{''.join(QUOTES)}][^{''.join({*QUOTES, *QUOTES.values()})}\\{{}}\[\]]{{1,200}}+.)"
_MEMBER_START = re.compile(rf"{_KEY}\s*+(?:{COLON.pattern})")
_CALL_START = re.compile(
    rf"(?P<list>\[\s*+)?(?P<name>[A-Za-z_][\w.:/-]*+)?\s*+{PARENTHESES[0]}\s*+(?P<object>[{BRACKETS}])?"
)
_CALL_END = re.compile(rf"\s*+{PARENTHESES[1]}").match
_LIST_END = re.compile(r"\s*+\]").match
_QUALIFIER = re.compile(r"[.:/]")


def possible_forms(text: str) -> list[Form]:
    """Return the forms that the start of the text allows."""
    at = skip_lead(text, RepairAttempt(finished=True))
    if _CALL_START.match(text, at):
        return ["call_syntax"]
    return ["missing_brace"] if _MEMBER_START.match(text, at) else []


def rewrite_form(text: str, end: int, attempt: RepairAttempt, names: Collection[str]) -> tuple[str, int]:
    """Return the arguments as JSON, and the position after them. `names`: the tool's names, if they are known.

    Raise BrokenJSON if the text is not of the attempt's form, or calls another tool.
    """
    at = skip_lead(text, attempt)
    attempt.record_step("missing_brace" if attempt.form == "missing_brace" else "call_syntax")
    if attempt.form == "missing_brace":
        rewriter = JsonRewriter(text, at, max(at, end), attempt, "{")
        return rewriter.rewrite(), rewriter.at
    call = _CALL_START.match(text, at)
    if call is None:
        raise invalid_error("expected a call", at)
    if call["name"] and names and _QUALIFIER.split(call["name"])[-1] not in names and call["name"] not in names:
        raise invalid_error(f"a call of {call['name'][:64]!r}, which is another tool", at)
    if call["object"]:
        rewriter = JsonRewriter(text, call.end() - 1, end, attempt)
    else:
        rewriter = JsonRewriter(text, call.end(), end, attempt, "(")
    rewritten, at = rewriter.rewrite(), rewriter.at
    for expected in [_CALL_END] * bool(call["object"]) + [_LIST_END] * bool(call["list"]):
        closer = expected(text, at, end)
        if closer is None:
            raise invalid_error("the call is not closed", at)
        at = closer.end()
    return rewritten, at


MAX_INTERPRETATIONS = 64  # readings of one text; a text with more is ambiguous, and each costs a pass
MAX_READ = 256 * 1024
"""Longer texts are repaired only if one pass finds a single reading: comparing readings takes several passes."""
_MAX_CHARACTERS = 4 * 1024 * 1024  # total of all readings for one assumed form
_MAX_PIECES = 200_000  # like _MAX_CHARACTERS; text with many escapes or scalars is read in small pieces
_NEGATIVE_ZERO = re.compile(r"[\[:,]\s*+-0\s*+[,}\]]")


class Repaired(Value, frozen=True):
    """A value, and the steps needed to read it; none for strict JSON."""

    value: JSON
    steps: tuple[LexicalStep, ...] = ()
    closed: int = 0
    """The number of brackets missing at the end, counted from the outermost."""
    doubtful: bool = False
    """An unlikely reading: it makes others ambiguous, and is not used itself."""
    as_written: JSON = None
    """The value with all numbers that are not written as JSON writes them (`+33`, `0x1F`, `-0`) as text; else None."""


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
        value = parse(text)
    except ProtocolError as error:
        if len(text) > LIMIT:
            raise BrokenJSON(error.message, reason="invalid", hint="write less") from None
        return _read(text, RepairAttempt(finished))
    return Repaired(value, as_written=_as_written(text) if _NEGATIVE_ZERO.search(text) else None)


def _as_written(text: str) -> JSON:
    """Return valid JSON with negative zeros as text; None if there are none outside strings."""
    try:
        return _read(text, RepairAttempt(finished=True)).as_written
    except BrokenJSON:
        return None  # nested too deeply


def checked_readings(text: str, *, finished: bool = True, names: Collection[str] = ()) -> Iterator[Repaired]:
    """Yield each reading without guesses that is certain only if it fits a schema. `names`: the tool's names."""
    if len(text) > MAX_READ:
        return
    forms: list[Form] = ["object"] if SURPLUS_COMMA.search(text) else []  # else it is the reading of `repair_json`
    forms += _possible_forms(text)
    yield from _distinct(found for form in forms for found in _search(text, finished, names, form, None))


def interpretations(text: str, *, finished: bool = True, names: Collection[str] = ()) -> Iterator[Repaired]:
    """Yield each reading that guessing allows once; raise BrokenJSON if there are too many."""
    if len(text) > MAX_READ:
        return
    guesses: tuple[GuessKind, ...] = ("punctuation", "quotes")
    yield from _distinct(
        found
        for form in ("object", *_possible_forms(text))
        for guess_kind in guesses
        for found in _search(text, finished, names, form, guess_kind)
    )


def _possible_forms(text: str) -> list[Form]:
    try:
        return possible_forms(text)
    except BrokenJSON:
        return []  # reasoning without an end


def _distinct(readings: Iterator[Repaired]) -> Iterator[Repaired]:
    seen: set[str] = set()
    for found in readings:
        rewritten = dumps(found.value)
        if rewritten not in seen:
            seen.add(rewritten)
            yield found


def _search(
    text: str, finished: bool, names: Collection[str], form: Form, guess_kind: GuessKind | None
) -> Iterator[Repaired]:
    """Yield the readings for one assumed form and defect, each with the next sequence of choices.

    Raise BrokenJSON after too many readings.
    """
    choices: tuple[int, ...] | None = ()
    limit = min(MAX_INTERPRETATIONS, _MAX_CHARACTERS // (len(text) + 1))
    pieces = tried = 0
    for tried in range(1, limit + 1):
        assert choices is not None
        attempt = RepairAttempt(finished, guess_kind, choices, form=form, checked=True, max_readings=limit)
        try:
            yield _read(text, attempt, names)
        except BrokenJSON:
            pass  # not a valid reading
        choices = attempt.next_choices()
        if choices is None and not attempt.has_too_many_readings:
            return
        pieces += attempt.pieces
        if attempt.has_too_many_readings:
            tried = limit
        if tried == limit or pieces > _MAX_PIECES:
            break
    raise BrokenJSON(
        f"ambiguous: more than {tried} readings",
        reason="ambiguous",
        hint="escape quotes and backslashes inside strings",
    )


def _read(text: str, attempt: RepairAttempt, names: Collection[str] = ()) -> Repaired:
    """Make one attempt: find the JSON in the text, rewrite it, and check the result with the strict parser.

    Raise BrokenJSON if a step fails.
    """
    if attempt.form == "object":
        start = find_start(text, attempt)
        end = find_end(text, attempt)
        rewriter = JsonRewriter(text, start, max(start, end), attempt)
        rewritten, at = rewriter.rewrite(), rewriter.at
    else:
        end = find_end(text, attempt)
        rewritten, at = rewrite_form(text, end, attempt, names)
        if attempt.closed and attempt.guess_kind:
            raise invalid_error("both brackets are missing", at)
    check_trailing_text(text, at, end, attempt)
    value = _parse_rewritten(rewritten, attempt)
    as_written = None if attempt.as_written is None else _parse_rewritten(attempt.as_written, attempt)
    return Repaired(value, tuple(attempt.steps), attempt.closed, attempt.doubtful, as_written)


def _parse_rewritten(text: str, attempt: RepairAttempt) -> JSON:
    """Parse rewritten JSON; raise BrokenJSON if it is invalid.

    A member that is written twice with the same value is read once.
    """
    try:
        return parse(text)
    except ProtocolError as error:
        refusal = BrokenJSON(error.message, reason="invalid", pointer=error.pointer, hint=error.hint)
        if not error.message.startswith("duplicate key"):
            raise refusal from None
    try:
        value = parse(dumps(json.loads(text, object_pairs_hook=_merge_members)))
    except (ValueError, ToolwireError):  # another value, a number out of range, half a character
        raise refusal from None
    attempt.record_step("duplicate_key")
    return value


def _merge_members(members: list[tuple[str, JSON]]) -> Object:
    """Return the members as an object; raise ValueError if a key has two values."""
    merged: Object = {}
    for key, value in members:
        if key in merged and dumps(merged[key]) != dumps(value):
            raise ValueError(f"duplicate key {key!r}")
        merged[key] = value
    return merged
