"""How much a model may think: words on some wires, tokens on others."""

from __future__ import annotations

__all__ = ["budget_of_effort", "effort_of_budget"]

_BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 65536}


def effort_of_budget(budget: int) -> str:
    """The nearest word that every wire with words knows."""
    return "low" if budget <= 2048 else "medium" if budget <= 16384 else "high"


def budget_of_effort(effort: str) -> int:
    return _BUDGETS.get(effort, 8192)
