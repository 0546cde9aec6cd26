"""One attempt to read broken JSON: the steps taken, and the guesses made where several readings were possible.

A reader calls `choose` wherever the text can be read in several ways. If guessing is off, that is an error. Otherwise
it takes and records the first way; `next_choices` returns the choices for the next reading, or None after the last one.
A reading is therefore repeatable, and costs one pass over the text.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ..ir.errors import BrokenJSON

_Lossless: TypeAlias = Literal[
    "odd_space",
    "code_fence",
    "tool_token",
    "reasoning",
    "prose",
    "surplus_closer",
    "trailing_comma",
    "comment",
    "single_quotes",
    "smart_quotes",
    "unquoted_key",
    "python_literal",
    "number_form",
    "control_character",
    "lone_backslash",
    "escaped_apostrophe",
    "duplicate_key",
    "closed_containers",
    "full_width",
    "wrong_separator",
    "surplus_comma",
    "over_escaped",
    "doubled_braces",
    "missing_brace",
    "call_syntax",
]
_Guess: TypeAlias = Literal[
    "missing_comma", "missing_colon", "inner_quotes", "bare_string", "leading_zeros", "chosen_escape"
]
LexicalStep: TypeAlias = _Lossless | _Guess
GUESSES: frozenset[str] = frozenset(get_args(_Guess))
_INDEPENDENT: frozenset[LexicalStep] = frozenset({"chosen_escape", "leading_zeros"})
"""Choices that never make a reading invalid: each doubles the number of readings."""

_MAX_CODE_STRINGS = 16
"""Strings of quoted code in one reading: each may end at several quotes, so the number of readings doubles with each."""

GuessKind: TypeAlias = Literal["punctuation", "quotes"]
"""The assumed defect: commas and colons were left out, or quotes inside strings were not escaped."""

Form: TypeAlias = Literal["object", "missing_brace", "call_syntax"]
"""The assumed shape of the text: a JSON value, `"a": 1}`, or `f(a=1)`. Only a schema confirms the last two."""


class RepairAttempt:
    """The steps and choices of one attempt. `checked`: a schema selects among the readings, so the text need not."""

    __slots__ = (
        "_common_choices",
        "_given_choices",
        "_independent_choices",
        "_made_choices",
        "as_written",
        "checked",
        "closed",
        "code_strings",
        "doubtful",
        "escaped_space",
        "finished",
        "form",
        "guess_kind",
        "has_too_many_readings",
        "max_readings",
        "pieces",
        "steps",
    )

    def __init__(
        self,
        finished: bool,
        guessing: GuessKind | None = None,
        given_choices: tuple[int, ...] = (),
        *,
        form: Form = "object",
        checked: bool = False,
        max_readings: int = 1,
    ) -> None:
        """Create an attempt that makes `given_choices` first; `finished`: the model stopped by itself."""
        self.finished = finished
        self.guess_kind = guessing
        self.form = form
        self.checked = checked
        self.escaped_space = False  # the text around the values was escaped, too
        self.code_strings = 0  # strings with quoted code, such as `x = ["5"]`
        self.doubtful = False  # a reading that counts as an alternative, and is never used itself
        self.steps: dict[LexicalStep, None] = {}
        self.closed = 0  # number of brackets missing at the end
        self.pieces = 0  # number of pieces in which the text was read: the work done
        self.as_written: str | None = None  # the JSON with some numbers as text, if their notation is not canonical
        self.max_readings = max_readings
        self.has_too_many_readings = False
        self._independent_choices = 0
        self._common_choices: dict[LexicalStep, int] = {}
        self._given_choices = given_choices
        self._made_choices: list[tuple[int, int]] = []  # (chosen, out of so many)

    def record_step(self, step: LexicalStep) -> None:
        self.steps[step] = None

    def add_code_string(self, error: BrokenJSON) -> None:
        """Count a string with quoted code, which makes the reading doubtful; with too many, the text is ambiguous."""
        self.doubtful = True
        self.code_strings += 1
        if self.code_strings > _MAX_CODE_STRINGS:
            self.has_too_many_readings = True
            raise error

    def choose(self, ways: int, step: LexicalStep, error: BrokenJSON, *, structural: bool = False) -> int:
        """Choose one of several readings: the given choice, or the first; record the step and the choice.

        Raise `error` if guessing is off, unless the choice is `structural` and a schema checks the reading; also if
        independent choices would make too many readings.
        """
        if self.guess_kind is None and not (structural and self.checked):
            raise error
        if ways > 1 and step in _INDEPENDENT:
            self._independent_choices += 1
            if 1 << self._independent_choices > self.max_readings:
                self.has_too_many_readings = True
                raise error
        self.record_step(step)
        turn = len(self._made_choices)
        chosen = self._given_choices[turn] if turn < len(self._given_choices) else 0
        self._made_choices.append((chosen, ways))
        return chosen

    def choose_once(self, ways: int, step: LexicalStep, error: BrokenJSON) -> int:
        """Make a structural choice that holds for the whole text: the same slip has the same meaning everywhere."""
        if step not in self._common_choices:
            self._common_choices[step] = self.choose(ways, step, error, structural=True)
        return self._common_choices[step]

    def next_choices(self) -> tuple[int, ...] | None:
        """Return the next choices in depth-first order: the last choice with another way is advanced."""
        made = list(self._made_choices)
        while made:
            chosen, ways = made.pop()
            if chosen + 1 < ways:
                return (*(before for before, _ in made), chosen + 1)
        return None


def truncated_error(
    where: str, position: int, hint: str = "write the whole call again, shorter if there is a limit"
) -> BrokenJSON:
    message = f"truncated: the text ends {where} (character {position})"
    return BrokenJSON(message, reason="truncated", position=position, hint=hint)


def ambiguous_error(what: str, position: int, hint: str) -> BrokenJSON:
    return BrokenJSON(f"ambiguous: {what} (character {position})", reason="ambiguous", position=position, hint=hint)


def invalid_error(what: str, position: int, hint: str = "write one JSON object and nothing else") -> BrokenJSON:
    return BrokenJSON(f"not JSON: {what} (character {position})", reason="invalid", position=position, hint=hint)
