"""Test a tool with single calls, generated and invalid, and shrink the arguments of a fault."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from ...ir.errors import SchemaError
from ...ir.pointer import JSON, Object
from ...schema.validation.validator import validator
from .cases import CallCase, generate_cases, generate_invalid
from .checks import CallFault, FindingList, judge_invalid, judge_outcome
from .child_calls import CallBatch, RepeatedCall
from .settings import CallOutcome, TestedTool, ToolTestSettings
from .strings import CANARY, FOLDER

# Most candidates are a call, which may take --timeout: the numbers bound the calls for one fault.
_SHRINK_ATTEMPTS = 60  # as many as the generated calls of a tool
_SHRUNK_ITEMS = 5  # longer lists are halved first
_SHRUNK_CHARACTERS = 12  # longer texts are halved until they are as short
_EXACT = 1e15  # `/` gives a float, which is exact up to 2**53, and has no room for 10**400


def shrink_arguments(arguments: Object, fails: Callable[[Object], bool], *, attempts: int = _SHRINK_ATTEMPTS) -> Object:
    """Return the smallest arguments found for which `fails` is still true, after at most `attempts` calls of it.

    >>> shrink_arguments({"text": "aab", "count": 70}, lambda found: "b" in found.get("text", ""))
    {'text': 'b'}
    """
    best = arguments
    remaining = attempts
    progress = True
    while progress and remaining > 0:
        progress = False
        for candidate in (other for other in _smaller_objects(best) if _size(other) < _size(best)):
            if remaining <= 0:
                break
            remaining -= 1
            if fails(candidate):
                best, progress = candidate, True
                break
    return best


def _size(value: JSON) -> tuple[int, str]:
    """Return a key that orders values by the length of their JSON text, and texts of equal length by characters.

    So every step makes the value smaller, also 1 to 0 or "b" to "a", and the search ends.
    """
    text = json.dumps(value, ensure_ascii=False)
    return len(text), text


def _smaller_objects(value: Object) -> Iterator[Object]:
    """Yield the object without one key, then with one smaller value."""
    for name in value:
        yield {key: inner for key, inner in value.items() if key != name}
    for name, inner in value.items():
        yield from ({**value, name: smaller} for smaller in _smaller(inner))


def _smaller(value: JSON) -> Iterator[JSON]:
    """Yield simpler values for shrinking: constants, halves, and values with one character or item changed."""
    match value:
        case dict():
            yield from _smaller_objects(value)
        case int() | float() if type(value) is not bool:
            yield from (0, 1, -1)
            yield int(value / 2) if abs(value) < _EXACT else int(value) // 2**16
        case str() | list() if value:
            half = len(value) // 2
            yield from (value[:0], "a") if type(value) is str else ([],)
            if half:
                yield from (value[:half], value[half:])
            if isinstance(value, list):
                for index, item in enumerate(value[:_SHRUNK_ITEMS]):
                    yield from ([*value[:index], smaller, *value[index + 1 :]] for smaller in _smaller(item))
            elif len(value) <= _SHRUNK_CHARACTERS:
                yield from (value[:index] + value[index + 1 :] for index in range(len(value)))


_MAX_KILLS = 3  # each costs a timeout or a start, and shows the same fault
_PATIENCE = 3.0  # documented: "nor within three times --timeout"
_MAX_INVALID = 12  # a fifth of --cases: the same validator refuses all of them
_FIRST_PATHS = 3  # an absolute path, one with `..`, and one without extension
_SHRINK_SECONDS = 5.0  # a quarter of --time-limit for one fault
_NOT_SHRUNK = frozenset({"hang"})


class CallTarget(Protocol):
    """A process whose tools can be called. It is started again after a call that it did not survive.

    Methods that make several calls raise WorkerStopped if the process does not survive them.
    """

    @property
    def is_running(self) -> bool: ...

    def start(self, *, hash_seed: int = 0) -> object: ...
    def call(self, tool: str, arguments: Object, patience: float = 1.0) -> CallOutcome:
        """Make one call; the time limit is multiplied by `patience`."""
        ...

    def call_serially(self, tool: str, calls: list[Object]) -> CallBatch: ...
    def call_concurrently(self, tool: str, calls: list[Object]) -> CallBatch: ...
    def call_twice(self, tool: str, arguments: Object, key: str) -> RepeatedCall: ...


class SingleCallTest:
    """Tests one tool. `found` are its findings; `skipped` is the reason why it cannot be tested.

    `settled` are the arguments and outcomes of the calls that the tool ended with a result or an error message.
    Generated calls are only made if `is_safe` accepts their arguments.
    """

    def __init__(
        self,
        tool: TestedTool,
        target: CallTarget,
        settings: ToolTestSettings,
        found: FindingList,
        on_progress: Callable[[int, int], None],
        is_safe: Callable[[Object], bool] = lambda _: True,
    ) -> None:
        self.found = found
        self.calls = 0
        self.skipped = ""
        self.note = ""
        self.slow = ""
        self.is_incomplete = False  # most calls were left out
        self.settled: list[tuple[Object, CallOutcome]] = []
        self._tool, self._target, self._settings = tool, target, settings
        self._on_progress = on_progress
        self._is_safe = is_safe
        self._kills = 0

    def run(self) -> None:
        """Make the generated calls, then invalid calls.

        Given arguments that the schema rejects are made as an invalid call. Sets `skipped` if no call can be made.
        """
        try:
            cases = self._cases()
        except SchemaError as error:
            self.skipped = f"its schema cannot be used: {error}"
            return
        if not cases:
            self.skipped = "no call can be generated from its schema; give it examples=[…] or --arguments"
            return
        given = self._settings.arguments
        if given is not None and not validator(self._tool.input_schema).accepts(given):
            self._make_invalid_call(given)
            problem = validator(self._tool.input_schema).problems(given)[0]
            self.note = f"the schema rejects these arguments: {problem}"
            return
        self._make_calls(cases)
        if not self.skipped and self._settings.arguments is None:
            base = self.settled[0][0] if self.settled else cases[0].arguments
            for case in _spread(generate_invalid(self._tool.input_schema, base), _MAX_INVALID):
                self._make_invalid_call(case.arguments)

    def _cases(self) -> list[CallCase]:
        """Return the given arguments, or generated cases that are safe to call, those with paths first."""
        given = self._settings.arguments
        if given is not None:
            return [CallCase("example", given)]
        seed = f"{self._settings.seed}/{self._tool.name}"
        cases = generate_cases(
            self._tool.input_schema,
            seed=seed,
            count=self._settings.cases,
            examples=self._tool.examples,
            words=(*(Path(file).name for file in self._settings.files), *self._tool.words),
        )
        return _paths_first([case for case in cases if self._is_safe(case.arguments)])

    def _make_calls(self, cases: list[CallCase]) -> None:
        """Call the tool with each case until the time or the number of kills is exhausted.

        Sets `skipped` if its dependencies are missing, and `note` and `is_incomplete` if calls are left out.
        """
        if not self._target.is_running:
            self._target.start()  # before the clock starts
        deadline = time.monotonic() + self._settings.time_limit
        for number, case in enumerate(cases):
            self._on_progress(number, len(cases))
            outcome = self._call(case.arguments)
            if outcome.status == "unavailable":
                self.skipped = (outcome.error and outcome.error.message) or "it needs dependencies"
                return
            if outcome.status == "timeout" and "hang" not in self.found:
                outcome = self._confirm_hang(case.arguments)
            self._collect(case.arguments, outcome)
            if self._kills >= _MAX_KILLS or time.monotonic() > deadline:
                left = len(cases) - number - 1
                reason = "it was killed repeatedly" if self._kills >= _MAX_KILLS else "time limit"
                self.note = f"{left} of {len(cases)} calls left out: {reason}" if left else ""
                self.is_incomplete = left > len(cases) / 2
                return

    def _collect(self, arguments: Object, outcome: CallOutcome) -> None:
        for fault in judge_outcome(outcome, self._tool.effect, self._settings):
            if self.found.add(fault, arguments) and fault.check not in _NOT_SHRUNK:
                self._shrink(fault, arguments)
        if outcome.is_settled:
            self.settled.append((arguments, outcome))

    def _make_invalid_call(self, arguments: Object) -> None:
        for fault in judge_invalid(self._call(arguments)):
            self.found.add(fault, arguments)

    def _confirm_hang(self, arguments: Object) -> CallOutcome:
        """Repeat a call with more time, because a slow tool or a busy machine is no fault."""
        outcome = self._call(arguments, _PATIENCE)
        if outcome.status != "timeout":
            self.slow = f"slow: a call takes longer than {self._settings.timeout:g} seconds (--timeout)"
        return outcome

    def _call(self, arguments: Object, patience: float = 1.0) -> CallOutcome:
        if not self._target.is_running:
            self._target.start()
        self.calls += 1
        outcome = self._target.call(self._tool.name, arguments, patience)
        if outcome.status in ("timeout", "died", "gone"):
            self._kills += 1
        return outcome

    def _shrink(self, fault: CallFault, arguments: Object) -> None:
        """Search for smaller arguments with the same fault within a few seconds, and store them in the finding."""
        deadline = time.monotonic() + _SHRINK_SECONDS
        check = validator(self._tool.input_schema)
        smallest = [fault]

        def fails(candidate: Object) -> bool:
            """Return whether smaller arguments have the same fault, and keep that fault in `smallest`.

            False when time is up.
            """
            if time.monotonic() > deadline or self._kills >= _MAX_KILLS:
                return False
            if not check.accepts(candidate) or not self._is_safe(candidate):
                return False
            for found in judge_outcome(self._call(candidate), self._tool.effect, self._settings):
                if (found.check, found.key) == (fault.check, fault.key):
                    smallest[0] = found
                    return True
            return False

        shrunk = shrink_arguments(arguments, fails)
        if shrunk is not arguments:
            self.found.set_arguments(smallest[0], shrunk)


def _paths_first(cases: list[CallCase]) -> list[CallCase]:
    """Move some calls with the path of the canary to the front, because a slow tool only gets the first calls."""
    plain, rest = cases[:2], cases[2:]
    paths = [case for case in rest if CANARY in str(case.arguments) or FOLDER in str(case.arguments)][:_FIRST_PATHS]
    return [*plain, *paths, *(case for case in rest if case not in paths)]


def _spread(cases: Iterable[CallCase], count: int) -> list[CallCase]:
    """Return `count` cases, at equal distances."""
    every = list(cases)
    step = max(1, -(-len(every) // count))
    return every[::step]
