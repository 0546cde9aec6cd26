"""Ask a model every entry, and report its accuracy by category with confidence intervals, and the kinds of errors.

A run in a folder continues where it stopped.

answers = ClientAnswers(ModelClient("openai/gpt-5.6-mini"))            # any provider, wire or gateway
answers = LocalAnswers(open_model("smollm2"), "hermes", mask=True)     # a local model in a text format
report = evaluate_bfcl(answers, select_entries(["simple_python"], limit=100))
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import sqrt
from typing import Protocol

import msgspec

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.value import Value
from ...run.executor import Executor, map_items
from ..run_folder import RunFolder, write_atomically
from .conversations import require_classes
from .entries import CALL_CATEGORIES, BFCLEntry, read_bfcl
from .judgement import OUTCOMES, BFCLAnswer, BFCLOutcome, EvaluatedAnswer, classify_answer

_Z = 1.959964  # the 97.5 % quantile of the normal distribution


class CategoryScore(Value, frozen=True):
    """The counts of one category, or of all."""

    category: str
    entries: int
    finished: int
    valid: int
    outcomes: dict[BFCLOutcome, int]

    @classmethod
    def count(cls, category: str, answers: Iterable[EvaluatedAnswer]) -> CategoryScore:
        """Count the outcomes of answers."""
        rows = list(answers)
        found = Counter(row.outcome for row in rows)
        outcomes = {name: found[name] for name in OUTCOMES if found[name]}
        return cls(category, len(rows), sum(row.finished for row in rows), sum(row.valid for row in rows), outcomes)

    @property
    def right(self) -> int:
        return self.outcomes.get("right", 0)

    @property
    def accuracy(self) -> float:
        """The share of right answers, from 0 to 1."""
        return self.right / self.entries if self.entries else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the accuracy."""
        return wilson_interval(self.right, self.entries)


class BFCLReport(Value, frozen=True):
    """The scores of one run, by category in the order of the run, and of all entries together.

    `first_error` is the reason of the first upstream error, or empty.
    """

    settings: Object
    categories: tuple[CategoryScore, ...]
    total: CategoryScore
    first_error: str = ""

    @classmethod
    def count(cls, answers: Iterable[EvaluatedAnswer], settings: Object) -> BFCLReport:
        """Count answers by category."""
        rows = list(answers)
        names = dict.fromkeys(row.category for row in rows)
        scores = tuple(CategoryScore.count(name, (row for row in rows if row.category == name)) for name in names)
        error = next((row.detail for row in rows if row.outcome == "upstream_error"), "")
        return cls(settings, scores, CategoryScore.count("all", rows), error)

    def document(self) -> Object:
        """Return the report as JSON, with accuracies and intervals."""
        return {
            "settings": self.settings,
            "total": _score_document(self.total),
            "categories": [_score_document(score) for score in self.categories],
            **({"first_error": self.first_error} if self.first_error else {}),
        }


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson's method, which is also sound near 0 and 1 and for few entries."""
    if not count:
        return 0.0, 1.0
    share, square = right / count, _Z * _Z / count
    centre, spread = share + square / 2, _Z * sqrt((share * (1 - share) + square / 4) / count)
    low = (centre - spread) / (1 + square) if right else 0.0
    high = (centre + spread) / (1 + square) if right < count else 1.0
    return low, high


def _score_document(score: CategoryScore) -> Object:
    """Return a score as JSON, with shares rounded to four digits."""
    low, high = score.interval
    return {
        "category": score.category,
        "entries": score.entries,
        "right": score.right,
        "accuracy": round(score.accuracy, 4),
        "interval": [round(low, 4), round(high, 4)],
        "finished": score.finished,
        "valid": score.valid,
        "outcomes": score.outcomes,
    }


_ANSWERS = "answers.jsonl"
_REPORT = "report.json"


class AnswerSource(Protocol):
    """A model that answers entries, in any order."""

    @property
    def settings(self) -> Object:
        """The settings that determine the answers, for the manifest of a run."""
        ...

    def parts(self, entries: Sequence[BFCLEntry]) -> Sequence[Sequence[BFCLEntry]]:
        """Divide the entries into parts whose answers do not depend on other parts."""
        ...

    def answers(self, entries: Sequence[BFCLEntry]) -> Iterator[tuple[BFCLEntry, BFCLAnswer]]:
        """Yield each entry with its answer as soon as it is known."""
        ...


def select_entries(
    categories: Iterable[str] = CALL_CATEGORIES, *, limit: int | None = None, seed: int = 0
) -> list[BFCLEntry]:
    """Return the entries of `categories`; with `limit`, a random sample of all of them, in the order of the files.

    Raises `ConfigError` for a limit below 1, and `MissingExtra` for multi-turn categories without their classes.
    """
    entries = list(read_bfcl(dict.fromkeys(categories)))
    if any(entry.scenario is not None for entry in entries):
        require_classes()
    if limit is None or limit >= len(entries):
        return entries
    if limit < 1:
        raise ConfigError(f"the limit must be positive, got {limit}")
    return [entries[index] for index in sorted(random.Random(seed).sample(range(len(entries)), limit))]


def evaluate_bfcl(
    source: AnswerSource,
    entries: Sequence[BFCLEntry],
    *,
    run: RunFolder | None = None,
    on_answer: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
    reopen: Callable[[], AnswerSource] | None = None,
) -> BFCLReport:
    """Ask the model all entries and return its score.

    With `run`, every answer is appended to its log, and entries of the log are not asked again, except those that
    failed with an upstream error. At the end, the log has the order of the entries. `on_answer` receives the number of
    answers so far and of all. The workers of `executor` open the model with `reopen`, and give the same answers.
    """
    wanted = {entry.id for entry in entries}
    done = {row.id: row for row in _stored_answers(run) if row.id in wanted and row.outcome != "upstream_error"}
    missing = [entry for entry in entries if entry.id not in done]
    if on_answer is not None:
        on_answer(len(done), len(entries))

    def add(rows: Sequence[EvaluatedAnswer]) -> None:
        done.update((row.id, row) for row in rows)
        if run is not None:
            run.append(_ANSWERS, rows)
        if on_answer is not None:
            on_answer(len(done), len(entries))

    if executor is None:
        for entry, answer in source.answers(missing):
            add([classify_answer(entry, answer)])
    else:
        parts = [part for part in source.parts(missing) if part]
        names = [part[0].id for part in parts]
        map_items(_PartAnswers(reopen), parts, executor=executor, results=_AnswerLog(add), names=names)
    settings = {**source.settings, "entries": len(entries)}
    report = BFCLReport.count((done[entry.id] for entry in entries), settings)
    if run is not None:
        rows = [done[entry.id] for entry in entries]
        write_atomically(run.path / _ANSWERS, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        run.write_json(_REPORT, report.document())
    return report


class _PartAnswers:
    """Asks and classifies the entries of a part. Each process opens the model once."""

    def __init__(self, reopen: Callable[[], AnswerSource] | None) -> None:
        """Raise ConfigError without `reopen`."""
        if reopen is None:
            raise ConfigError("an evaluation with workers needs `reopen`")
        self._reopen = reopen
        self._source: AnswerSource | None = None

    def __call__(self, part: Sequence[BFCLEntry]) -> bytes:
        self._source = self._source or self._reopen()
        return msgspec.json.encode([classify_answer(*answered) for answered in self._source.answers(part)])


class _AnswerLog:
    """Adds the answers of each part to the run, which knows the finished entries."""

    def __init__(self, add: Callable[[Sequence[EvaluatedAnswer]], None]) -> None:
        self._add = add

    def read(self, name: str) -> None:
        return None

    def write(self, name: str, content: bytes) -> None:
        self._add(msgspec.json.decode(content, type=list[EvaluatedAnswer]))


def _stored_answers(run: RunFolder | None) -> Iterator[EvaluatedAnswer]:
    for row in () if run is None else run.rows(_ANSWERS):
        yield msgspec.convert(row, EvaluatedAnswer)
