"""Choose how a run obtains its structured output: by the model's structured outputs or by a final-answer tool.

Separate because a `Session` knows the request, but not the capabilities of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..bridge.output_support import OutputSupport
from ..ir.request import OutputFormat, Request
from ..run.output_plan import OutputPlan, PlanMode
from ..run.output_type import StructuredOutput

__all__ = ["plan_output"]

_RESAMPLES = 2


def plan_output(spec: StructuredOutput[Any], model: object, request: Request) -> OutputPlan:
    """Return the plan for a run.

    A model without a method `output_support`, as `ModelClient` has it, gets a final-answer tool.
    """
    output = spec.resolve()
    ask: Callable[[Request], OutputSupport] | None = getattr(model, "output_support", None)
    form = OutputFormat("json_schema", output.schema, output.name, strict=True)
    support = None if ask is None else ask(replace(request, output=form))
    best: PlanMode = "native" if support in ("enforced", "accepted") else "tool"
    mode = best if spec.mode == "auto" else spec.mode
    resamples = spec.resamples
    if resamples is None:
        resamples = _RESAMPLES if _is_unmasked(support, mode) or getattr(model, "emulates_calls", False) else 0
    return OutputPlan(
        output,
        mode,
        request.tools,
        retries=spec.retries,
        resamples=resamples,
        requires_call=getattr(model, "can_require_calls", True),
    )


def _is_unmasked(support: OutputSupport | None, mode: PlanMode) -> bool:
    """Return True if the model is not held to the schema while it generates a text."""
    return mode == "prompt" or (mode == "native" and support in ("accepted", "stated"))
