"""The plan of a call in a dry run: the gates, the policy and the store decide, and nothing is executed.

The result of the call describes the plan to the model. `plan_of(result)` returns it for a program.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal, TypeAlias

import msgspec

from ...ir.errors import StoreError
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.text import dumps, shorten
from ...ir.tools import Effect
from ...ir.value import Value
from ..tools.toolbox import Entry
from ..values.outputs import cap_result
from ..values.results import NOTES_KEY, annotate, result_code
from .claims import make_claim, needs_claim
from .pending import Pending
from .schedule import resource_of
from .settings import RunSettings
from .steps import GetRecord, Step

PlanVerdict: TypeAlias = Literal["would_run", "needs_approval", "denied", "refused", "replayed"]
"""`denied`: by the policy. `refused`: by another gate or by the store. `replayed`: an existing result is returned."""

_MAX_ARGUMENTS = 4000  # characters of the arguments in the text for the model


class CallPlan(Value, frozen=True):
    """The plan of one call. `effect` is None for an unknown tool. `preview`: the return value of the tool's preview."""

    tool: str
    verdict: PlanVerdict
    arguments: Object
    effect: Effect | None = None
    resource: str | None = None
    why: str = ""
    preview: JSON = None
    preview_error: str = ""


def plan_of(result: ToolResult) -> CallPlan | None:
    """Return the plan of a call that was made in a dry run; None for any other result."""
    plan = result.extra.get(NOTES_KEY, {}).get("plan")
    return None if plan is None else msgspec.convert(plan, CallPlan)


def plan_refusal(call: ToolCall, entry: Entry | None, result: ToolResult) -> ToolResult:
    """Add the plan to the result of a call that a gate ended."""
    plan = CallPlan(
        call.name,
        "denied" if result_code(result) == "denied" else "refused",
        call.arguments or {},
        None if entry is None else entry.tool.effect,
        None if entry is None else resource_of(entry, call.arguments or {}),
        result.text,
    )
    return annotate(result, plan=msgspec.structs.asdict(plan))


def plan_result(
    pending: Pending, verdict: PlanVerdict, why: str, preview: ToolResult | None, settings: RunSettings
) -> ToolResult:
    """Build the result of a call that passed all gates, shortened like any result.

    `preview`: the result of the tool's preview, if it has one; a failed preview is reported in the plan.
    """
    entry = pending.tool
    plan = CallPlan(
        entry.name,
        verdict,
        pending.arguments,
        entry.tool.effect,
        resource_of(entry, pending.arguments),
        why,
        None if preview is None or preview.is_error else preview.text if preview.parts else preview.structured,
        preview.text if preview is not None and preview.is_error else "",
    )
    result = annotate(pending.call.result(_describe(plan)), code="dry_run", plan=msgspec.structs.asdict(plan))
    return cap_result(result, settings.output_limit, settings.outputs, settings.run_id)


def find_replay(
    pending: Pending, settings: RunSettings, occurrence: int
) -> Generator[Step, Any, tuple[PlanVerdict, str] | None]:
    """Return the verdict and the reason for a call that its record in the store keeps from running, or None.

    The store is only read.
    """
    if not (settings.has_store and needs_claim(pending)):
        return None
    claim = make_claim(pending, settings, occurrence)
    record = yield GetRecord(claim.key)
    has_effect = pending.tool.tool.effect in ("idempotent", "write")
    if isinstance(record, StoreError):
        return ("refused", f"the store cannot be reached ({record.message})") if has_effect else None
    if record is None:
        return None
    if record.fingerprint != claim.fingerprint:
        return "refused", "its idempotency key was used for a call with different arguments"
    if record.state == "done":
        return "replayed", "its recorded result would be returned"
    if record.state == "running":
        return "replayed", "the same call is running, and its result would be returned"
    if not claim.reclaim:
        return "refused", "an earlier attempt may or may not have taken effect"
    return None


def _describe(plan: CallPlan) -> str:
    """Describe the plan to the model."""
    lines = [f"Dry run: {plan.tool} was not executed. {_OUTCOMES[plan.verdict]}{plan.why}".rstrip(".: ") + "."]
    lines.append(f"arguments: {shorten(dumps(plan.arguments), _MAX_ARGUMENTS)}")
    lines.append(f"effect: {plan.effect}" + (f" on {plan.resource}" if plan.resource else ""))
    if plan.preview is not None:
        lines.append(f"preview: {plan.preview if isinstance(plan.preview, str) else dumps(plan.preview)}")
    if plan.preview_error:
        lines.append(f"preview failed: {plan.preview_error}")
    return "\n".join(lines)


_OUTCOMES: dict[PlanVerdict, str] = {
    "would_run": "It would run",
    "needs_approval": "It would need approval: ",
    "denied": "It would be denied: ",
    "refused": "It would be refused: ",
    "replayed": "It would not run again: ",
}
