"""The score of a model: accuracy by category with its confidence interval, and the kinds of errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import sqrt

from ...ir.pointer import Object
from ...ir.value import Value
from .judgement import OUTCOMES, BFCLOutcome, EvaluatedAnswer

__all__ = ["BFCLReport", "CategoryScore", "wilson_interval"]

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
