"""Print the calls of a dry run.

Separate because it only formats; `run` executes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.terminal import neutralise_line
from ..ir.text import dumps
from .show import table

if TYPE_CHECKING:
    from ..run.calls.plan import CallPlan

__all__ = ["plans_of", "print_plans"]

_MAX_DETAILS = 120  # characters of the last column


def plans_of(event: object) -> list[CallPlan]:
    from ..ir.parts import ToolResult
    from ..run.calls.plan import plan_of

    plan = plan_of(event) if isinstance(event, ToolResult) else None
    return [] if plan is None else [plan]


def print_plans(plans: list[CallPlan]) -> None:
    """Print the calls of a dry run as a table, in the order in which the model made them."""
    if not plans:
        print("dry run: the model made no calls")
        return
    print("\ndry run: nothing was executed")
    rows = [
        (plan.tool, plan.verdict.replace("_", " "), plan.effect or "-", plan.resource or "-", _plan_details(plan))
        for plan in plans
    ]
    print("\n".join(table(rows, ("tool", "verdict", "effect", "resource", "details"))))


def _plan_details(plan: CallPlan) -> str:
    """Describe a plan in one line of limited length: its preview or its arguments, and the reason of its verdict."""
    preview = plan.preview if isinstance(plan.preview, str) else dumps(plan.preview)
    details = [dumps(plan.arguments) if plan.preview is None else preview, plan.why, plan.preview_error]
    line = neutralise_line("; ".join(detail for detail in details if detail))
    return line if len(line) <= _MAX_DETAILS else f"{line[:_MAX_DETAILS]}…"
