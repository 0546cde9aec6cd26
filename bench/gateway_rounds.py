"""The rounds of the gateway benchmark in a file, medians with intervals, and comparisons that need disjoint intervals.

The file has one JSON object per line: the head (candidates with their versions, and what could not be measured), then the rounds,
each with the figures of every candidate, and at last the growth of toolwire. It is replaced after each round, so that an
interrupted run continues at the next round.

The interval of a median is between two order statistics: the median of the distribution is above the k-th smallest value unless
fewer than k of n values are below it, which has a binomial probability. The interval needs no assumption about the
distribution. Fifteen rounds have the interval from the fourth to the twelfth value, and less than six have none of 95 %:
then it is the range of the values.
"""

import json
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROUNDS = Path(__file__).parent / "gateway" / "rounds.jsonl"
MINIMUM = 15  # rounds of a comparison
_TAIL = 0.025  # probability on each side of an interval


class Figure(NamedTuple):
    title: str
    unit: str
    is_lower_better: bool = True


FIGURES = {
    "pass": Figure("CPU per request that passes through", "µs"),
    "cross": Figure("CPU per translated request", "µs"),
    "burst": Figure("events per second and core of a burst", "", is_lower_better=False),
    "paced": Figure("events per second and core of paced streams", "", is_lower_better=False),
    "added_pass": Figure("time added to a request that passes through", "ms"),
    "added_cross": Figure("time added to a translated request", "ms"),
    "added_first": Figure("time added to the first event", "ms"),
    "start": Figure("start", "s"),
    "memory": Figure("memory after a round", "MB"),
}


class Estimate(NamedTuple):
    median: float
    low: float
    high: float

    @property
    def shown(self) -> list[str]:
        digits = 0 if self.median >= 10 else 1 if self.median >= 2 else 2
        return [f"{value:,.{digits}f}" for value in self]

    def __str__(self) -> str:
        return "{} ({} to {})".format(*self.shown)

    def overlaps(self, other: "Estimate") -> bool:
        return self.low <= other.high and other.low <= self.high


def estimate(values: list[float]) -> Estimate:
    """Return the median of some values, with its interval of 95 %."""
    ordered, count = sorted(values), len(values)
    rank, tail = 0, 1 / 2**count
    while tail <= _TAIL:
        rank += 1
        tail += comb(count, rank) / 2**count
    outside = max(rank, 1)
    return Estimate(median(ordered), ordered[outside - 1], ordered[count - outside])


@dataclass
class Rounds:
    """`head`: `candidates` by name, each with `title`, `version` and `skipped`, the jobs that it cannot do; `missing` peers."""

    head: dict
    rounds: list[dict] = field(default_factory=list)
    growth: dict | None = None

    @classmethod
    def read(cls, path: Path) -> "Rounds | None":
        if not path.exists():
            return None
        head, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        rounds = [line["round"] for line in lines if "round" in line]
        return cls(head, rounds, next((line["growth"] for line in lines if "growth" in line), None))

    def write(self, path: Path) -> None:
        lines = [self.head, *({"round": found} for found in self.rounds)]
        if self.growth is not None:
            lines.append({"growth": self.growth})
        whole = path.with_suffix(".part")
        whole.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
        whole.replace(path)

    @property
    def peers(self) -> dict[str, dict]:
        return {name: about for name, about in self.head["candidates"].items() if about["title"] and name != "toolwire"}

    def estimate(self, name: str, figure: str) -> Estimate | None:
        """Return None if the candidate failed in any round."""
        values = [found.get(name, {}).get(figure) for found in self.rounds]
        return None if not values or None in values else estimate(values)

    def compare(self, figure: str, peer: str) -> str | None:
        """Return whether toolwire is `better` or `worse` than a peer, `unclear` if the intervals overlap, or None."""
        ours, theirs = self.estimate("toolwire", figure), self.estimate(peer, figure)
        if ours is None or theirs is None:
            return None
        if ours.overlaps(theirs):
            return "unclear"
        return "better" if (ours.median < theirs.median) is FIGURES[figure].is_lower_better else "worse"
