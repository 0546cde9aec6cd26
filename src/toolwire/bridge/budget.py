"""Meet a provider's limits on all strict tools of a request together, with as few non-strict tools as possible.

Each tool costs optional parameters and unions, and the request has a maximum of each. The choice of tools is a knapsack
with small numbers: exact, over all reachable sums.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

__all__ = ["ParameterCounts", "select_affordable"]

ParameterCounts: TypeAlias = tuple[int, int]


def select_affordable(
    costs: tuple[ParameterCounts, ...], limits: ParameterCounts, count: int | None
) -> tuple[int, ...]:
    """Return the indices of as many tools as fit `limits` and `count`; among equal choices, the first ones.

    >>> select_affordable(((5, 0), (20, 0), (10, 0)), (24, 16), 20)
    (0, 2)
    """
    return (_select_cached if len(costs) <= _MAX_CACHED else _select)(costs, limits, count)


def _select(costs: tuple[ParameterCounts, ...], limits: ParameterCounts, count: int | None) -> tuple[int, ...]:
    max_count = len(costs) if count is None else min(count, len(costs))
    if max_count == len(costs) and _sum(costs, 0) <= limits[0] and _sum(costs, 1) <= limits[1]:
        return tuple(range(max_count))
    kept: dict[ParameterCounts, tuple[int, ...]] = {(0, 0): ()}
    best: tuple[int, ...] = ()
    for number, (optional, unions) in enumerate(costs):
        if len(best) == max_count:
            break
        for (spent, joined), chosen in list(kept.items()):
            after = spent + optional, joined + unions
            if after[0] <= limits[0] and after[1] <= limits[1] and len(chosen) >= len(kept.get(after, ())):
                kept[after] = (*chosen, number)
                best = max(best, kept[after], key=len)
    return best


_MAX_CACHED = 256  # tools; the number of entries is no bound for the memory of longer lists
_select_cached = lru_cache(256)(_select)


def _sum(costs: tuple[ParameterCounts, ...], part: int) -> int:
    return sum(cost[part] for cost in costs)
