"""Check one schema of a public suite: the verdicts of the local validator, lowering, and instances there and back.

Every outcome has a name. `CRASHED`, `UNREPORTED` and `WRONG_VERDICT` are defects of the product; all other names are documented
behaviour. A difference counts as documented only if this script can prove it: by an independent reading of the schema
(`suite_reading.py`), by a loss that can name an inexpressible value, or by a second check with the engine of the validator.
"""

import time
from collections import Counter
from typing import NamedTuple

import jsonschema_rs

from suite_reading import Reading
from toolwire.ir.errors import ToolwireError
from toolwire.ir.losses import Loss
from toolwire.schema import Lowered, Validator, lower
from toolwire.schema.parsing.membership import json_equal
from toolwire.testing.preservation import drop_null

CRASHED = "crashed"
UNREPORTED = "unreported difference"
WRONG_VERDICT = "verdict differs"
DEFECTS = (CRASHED, UNREPORTED, WRONG_VERDICT)

AGREES = "verdict agrees"
FORMATS = "formats are asserted; the suite treats them as annotations"
PATTERN = "a pattern that no linear engine matches is not checked"
UNCHECKED = "the check of the instance would exceed its budget"

PERFECT, LOSSES, LIMITS, REFUSED = "perfect", "with losses", "beyond the provider's limits", "typed error"
BUDGET, TOO_DEEP = "budget", "lowered schema too deep to check"

CARRIED, REJECTED = "carried", "rejected"
REPORTED = "named by a loss"
NULL = "an explicit null arrives as absent"
FORMAT_OF_DRAFT = "a format that the drafts define differently"
READS_AS_VALID = "an invalid text that reads as the number or boolean it stands for"


class Case(NamedTuple):
    """One schema with its instances and their expected verdicts."""

    name: str
    schema: object
    instances: list[tuple[object, bool]]


class Check:
    """Run all checks of one case. `counts` is keyed by (dialect or "", subject, outcome)."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.defects: list[dict[str, str]] = []
        self.compile_seconds = self.lower_seconds = 0.0
        self._reading = Reading(case.schema)
        self._validator: Validator | None = None

    def run(self, dialects: list[str]) -> None:
        self._compile()
        for value, expected in self.case.instances if self._validator is not None else ():
            self._verdict(value, expected)
        for name in dialects:
            self._lower(name)
        if any(outcome == BUDGET for _, _, outcome in self.counts):
            self._count("", "schema", BUDGET)

    def _count(self, dialect: str, subject: str, outcome: str, example: object = None) -> None:
        self.counts[dialect, subject, outcome] += 1
        if outcome in DEFECTS:
            self.defects.append(
                {"defect": outcome, "dialect": dialect, "case": self.case.name, "example": repr(example)[:1000]}
            )

    def _compile(self) -> None:
        started = time.process_time()
        try:
            self._validator = Validator(self.case.schema)
        except ToolwireError as error:
            self._count("", "refused", _refusal(str(error)))
        except BaseException as error:  # a panic of the engine is not an Exception
            self._count("", "schema", CRASHED, error)
        self.compile_seconds = time.process_time() - started

    def _verdict(self, value: object, expected: bool) -> None:
        try:
            found = self._validator.accepts(value)
        except BaseException as error:
            self._count("", "verdict", CRASHED, error)
            return
        self._count("", "verdict", AGREES if found == expected else self._why(value, expected), (value, expected))

    def _why(self, value: object, expected: bool) -> str:
        """Return the reason why the local verdict differs from the expected one."""
        if self._validator.unchecked_patterns:
            return PATTERN
        problems = self._validator.problems(value)
        if any(problem.keyword in ("effort", "depth") for problem in problems):
            return UNCHECKED
        asserting, annotating = (
            jsonschema_rs.validator_for(self.case.schema, validate_formats=on, offline=True).is_valid(value)
            for on in (True, False)
        )
        return FORMATS if expected and annotating and not asserting else WRONG_VERDICT

    def _lower(self, name: str) -> None:
        started = time.process_time()
        try:
            lowered = lower(self.case.schema, name)
        except ToolwireError:
            self._count(name, "schema", REFUSED)
            return
        except BaseException as error:
            self._count(name, "schema", CRASHED, error)
            return
        finally:
            self.lower_seconds += time.process_time() - started
        serious = [loss for loss in lowered.losses if loss.severity != "info"]
        self._count(name, "schema", LIMITS if not lowered.conforms else LOSSES if serious else PERFECT)
        if any(_names_a_budget(loss) for loss in lowered.losses):
            self._count(name, "schema", BUDGET)
        if self._validator is not None and self.case.instances:
            self._instances(name, lowered)

    def _instances(self, name: str, lowered: Lowered) -> None:
        try:
            written = Validator(lowered.schema)
        except ToolwireError as error:
            self._count(name, "schema", TOO_DEEP if "deeper than" in str(error) else UNREPORTED, error)
            return
        for value, expected in self.case.instances:
            try:
                if self._validator.accepts(value) != expected:
                    continue  # counted as a verdict
                if expected:
                    outcome = self._valid(lowered, written, value) or CARRIED
                    self._count(name, "valid", outcome, (value, lowered.encode(value)))
                else:
                    outcome = self._invalid(lowered, value) or REJECTED
                    self._count(name, "invalid", outcome, (value, lowered.encode(value)))
            except BaseException as error:
                self._count(name, "valid", CRASHED, error)

    def _valid(self, lowered: Lowered, written: Validator, value: object) -> str | None:
        """Return the reason why a valid instance does not survive the round trip; None if it does."""
        there = lowered.encode(value)
        back = lowered.lift(there)
        if written.accepts(there) and json_equal(back, value):
            return None
        reasons, meant = self._reading.explain(value)
        if reasons:  # without the unintended keys there is no other documented reason
            rest = None
            if not json_equal(meant, value) and self._validator.accepts(meant):
                rest = self._valid(lowered, written, meant)
            return min(reasons) if rest is None or rest in reasons else rest
        if written.accepts(there) and json_equal(drop_null(back), drop_null(value)):
            return NULL
        if any(map(_explains, lowered.losses)):
            return REPORTED
        if json_equal(back, value) and {problem.keyword for problem in written.problems(there)} == {"format"}:
            return FORMAT_OF_DRAFT
        return UNREPORTED

    def _invalid(self, lowered: Lowered, value: object) -> str | None:
        """Return the reason why an invalid instance comes back as a valid one; None if it is rejected."""
        back = lowered.lift(lowered.encode(value))
        if not self._validator.accepts(back):
            return None
        if json_equal(drop_null(back), drop_null(value)):
            return NULL
        if all(type(one) is str and type(other) is not str for one, other in _differences(value, back)):
            return READS_AS_VALID
        return UNREPORTED


def _differences(value: object, back: object) -> list[tuple[object, object]]:
    """Return the smallest parts in which two values differ."""
    if json_equal(value, back):
        return []
    if type(value) is dict and type(back) is dict and value.keys() == back.keys():
        return [pair for key in value for pair in _differences(value[key], back[key])]
    if type(value) is list and type(back) is list and len(value) == len(back):
        return [pair for one, other in zip(value, back, strict=True) for pair in _differences(one, other)]
    return [(value, back)]


def _explains(loss: Loss) -> bool:
    """True if a loss can name a value that cannot be written. Most losses name a constraint that is checked later."""
    if loss.severity == "error":
        return True
    if loss.concept in ("schema", "null"):
        return loss.severity == "warning"
    return loss.concept == "format" and loss.action == "rewritten"


_BUDGETS = ("too large", "too deeply", "deeper than", "too many combinations", "too many conditions", "several other")


def _names_a_budget(loss: Loss) -> bool:
    return any(words in loss.detail for words in _BUDGETS)


_REFUSALS = (
    ("Unknown meta-schema", "an unknown $schema"),
    ("Resource ", "a reference to another document"),
    ('is not a "regex"', "a pattern that the linear engine does not read"),
    ("deeper than", "nested too deeply"),
)


def _refusal(message: str) -> str:
    return next((reason for words, reason in _REFUSALS if words in message), "not valid by its meta-schema")
