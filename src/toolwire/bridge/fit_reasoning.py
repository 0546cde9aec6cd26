"""Fit the reasoning settings: effort levels on some wires and models, tokens on others, within provider bounds."""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.pointer import join
from ..ir.request import ReasoningConfig, Request
from ..wire.profiles import family_of
from ..wire.protocol import Wire

__all__ = ["fit_reasoning"]

_SCALE = ("minimal", "low", "medium", "high", "xhigh", "max")
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 65536}
_EFFORT, _BUDGET = join("reasoning", "effort"), join("reasoning", "budget")


def fit_reasoning(request: Request, wire: Wire, losses: Losses) -> ReasoningConfig | None:
    """Return the reasoning settings in a form that the target and the model accept."""
    reasoning = request.reasoning
    if reasoning is None or reasoning.mode == "off":
        return reasoning
    can = wire.capabilities
    if can.budgets and not family_of(request.model).takes_effort:
        tokens = _as_budget(reasoning, request, wire, losses)
        if tokens is None:
            return None
        reasoning = tokens
    elif reasoning.budget is not None and not can.budgets:
        reasoning = _as_effort(reasoning, losses)
    elif reasoning.budget is not None and reasoning.effort is not None and not can.effort_and_budget:
        losses.add(_BUDGET, "thinking budget", "dropped", "the target accepts either effort or budget", "info")
        reasoning = replace(reasoning, mode="auto", budget=None)
    if reasoning.effort is not None and reasoning.effort not in can.efforts:
        reasoning = _lower_effort(reasoning, can.efforts, losses)
    if reasoning.mode == "auto" and reasoning.effort is None and reasoning.budget is None and not can.adaptive:
        losses.add(join("reasoning", "mode"), "thinking", "dropped", "left to the model's default", "info")
    if reasoning.mode == "budget" and reasoning.budget is not None:
        return _fit_bounds(reasoning, request, wire, losses)
    return reasoning


def _as_effort(reasoning: ReasoningConfig, losses: Losses) -> ReasoningConfig:
    budget = reasoning.budget or 0
    effort = reasoning.effort or ("low" if budget <= 2048 else "medium" if budget <= 16384 else "high")
    losses.add(_BUDGET, "thinking budget", "weakened", f"{budget} tokens were changed to the effort {effort!r}")
    return replace(reasoning, mode="auto", effort=effort, budget=None)


def _as_budget(reasoning: ReasoningConfig, request: Request, wire: Wire, losses: Losses) -> ReasoningConfig | None:
    """Convert the effort to a token budget, for models without effort levels."""
    if reasoning.mode == "budget" and reasoning.effort is None:
        return reasoning
    is_forced = request.choice is not None and (request.choice.mode in ("required", "tool") or request.choice.required)
    if is_forced and not wire.capabilities.forced_with_budget:
        losses.add(
            join("reasoning"), "thinking", "dropped", "this model does not support thinking before a forced call"
        )
        return None
    if reasoning.effort is None and not wire.limits.min_budget:
        return reasoning
    budget = reasoning.budget or _BUDGETS.get(reasoning.effort or "medium", _BUDGETS["medium"])
    losses.add(_EFFORT, "effort", "rewritten", f"this model takes a token budget: {budget}", "info")
    return replace(reasoning, mode="budget", effort=None, budget=budget)


def _lower_effort(reasoning: ReasoningConfig, efforts: tuple[str, ...], losses: Losses) -> ReasoningConfig:
    """Return the next lower effort that the target supports, or its lowest."""
    effort = reasoning.effort
    if effort not in _SCALE or not efforts:
        losses.add(_EFFORT, "effort", "dropped", f"the target does not support {effort!r}")
        return replace(reasoning, effort=None)
    lower = [known for known in efforts if _SCALE.index(known) <= _SCALE.index(effort)]
    fitted = lower[-1] if lower else efforts[0]
    losses.add(_EFFORT, "effort", "weakened", f"the target does not support {effort!r}; sent as {fitted!r}")
    return replace(reasoning, effort=fitted)


def _fit_bounds(reasoning: ReasoningConfig, request: Request, wire: Wire, losses: Losses) -> ReasoningConfig | None:
    """Fit the budget between the target's minimum and `max_tokens`; return None if that leaves no budget."""
    budget, minimum, max_tokens = reasoning.budget or 0, wire.limits.min_budget, request.params.max_tokens
    if not minimum:
        return reasoning
    fitted = max(budget, minimum)
    if max_tokens is not None and fitted >= max_tokens:
        fitted = max_tokens - 1
    if fitted < minimum:
        detail = f"max_tokens {max_tokens} leaves no room for thinking (at least {minimum})"
        losses.add(join("reasoning"), "thinking", "dropped", detail)
        return None
    if fitted != budget:
        detail = f"{budget} was changed to {fitted}: at least {minimum}, and less than max_tokens"
        losses.add(_BUDGET, "thinking budget", "weakened", detail, "info")
    return replace(reasoning, budget=fitted)
