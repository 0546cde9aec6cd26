"""Fit the reasoning settings: effort levels on some wires and models, tokens on others, within provider bounds."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.losses import Losses, Severity
from ...ir.parts import Extra, Opaque, Part, Reasoning, ToolCall, ToolResult
from ...ir.pointer import join
from ...ir.request import ReasoningConfig, Request
from ...ir.tools import ToolChoice
from ...wire.models.capabilities import ModelCapabilities
from ...wire.protocol import Wire
from ..conversation.history import DraftMessage, PartLocation, location_pointer

_SCALE = ("minimal", "low", "medium", "high", "xhigh", "max")
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24576, "xhigh": 32768, "max": 65536}
_ANSWER = 8192  # tokens; the default of max_tokens on the wire that requires it
_REASONING, _MODE = join("reasoning"), join("reasoning", "mode")
_EFFORT, _BUDGET = join("reasoning", "effort"), join("reasoning", "budget")


def fit_reasoning(
    request: Request, wire: Wire, model: ModelCapabilities, losses: Losses, *, has_tools: bool
) -> ReasoningConfig | None:
    """Return the reasoning settings in a form that the target and the model accept; changes are added to `losses`.

    `wire` has the efforts and budgets of the model. `has_tools`: tools are declared on the target. Return None if none
    are sent.
    """
    reasoning = request.reasoning
    if has_tools and model.effort_with_tools is False:
        reasoning = _turn_off_for_tools(reasoning, model, losses)
    if has_tools and model.forced_choice_when_thinking is False:
        reasoning = _turn_off_for_forced_call(request.choice, reasoning, model, losses)
    if reasoning is None:
        return None
    if model.thinking is False:
        # Turning reasoning off is not a loss on a model that never reasons.
        severity: Severity = "info" if reasoning.mode == "off" else "warning"
        losses.add(_REASONING, "reasoning", "dropped", "this model does not reason", severity)
        return None
    if reasoning.mode == "off":
        return _fit_off(reasoning, wire, model, losses)
    fitted = _fit_amount(reasoning, request, wire, losses)
    if fitted is None or fitted.mode != "budget" or fitted.budget is None:
        return fitted
    from_effort = fitted.budget != reasoning.budget
    return _fit_bounds(fitted, request, wire, model, losses, from_effort=from_effort)


def _fit_amount(reasoning: ReasoningConfig, request: Request, wire: Wire, losses: Losses) -> ReasoningConfig | None:
    """Express the amount of reasoning as an effort, a budget or both, as the target and the model accept it."""
    can = wire.capabilities
    fitted: ReasoningConfig | None = reasoning
    if can.budgets and not can.efforts:
        fitted = _as_budget(reasoning, request, wire, losses)
    elif reasoning.budget is not None and not can.budgets:
        fitted = _as_effort(reasoning, losses)
    elif reasoning.budget is not None and reasoning.effort is not None and not can.effort_and_budget:
        losses.add(_BUDGET, "thinking budget", "dropped", "the target accepts either effort or budget", "info")
        fitted = replace(reasoning, mode="auto", budget=None)
    elif can.budgets and not can.adaptive and (reasoning.mode == "auto" or (not reasoning.mode and reasoning.visible)):
        fitted = _fix_amount(reasoning, request, wire, losses)
    if fitted is not None and fitted.effort is not None and fitted.effort not in can.efforts:
        fitted = _nearest_effort(fitted, can.efforts, losses)
    if fitted is not None and fitted.mode == "auto" and fitted.effort is None and not can.adaptive:
        losses.add(_MODE, "thinking", "dropped", "left to the model's default", "info")
    return fitted


def fit_reasoning_to_history(
    reasoning: ReasoningConfig | None, turns: list[DraftMessage], wire: Wire, model: ModelCapabilities, losses: Losses
) -> ReasoningConfig | None:
    """Leave thinking off if the fitted conversation does not allow it."""
    if model.reasoning_replay == "required":
        reasoning = _require_reasoning_of_calls(reasoning, turns, wire, model, losses)
    if reasoning is not None:
        reasoning = _require_thinking_before_calls(reasoning, turns, model, losses)
    return None if reasoning is None else _drop_thinking_for_prefill(reasoning, turns, wire, losses)


def _require_reasoning_of_calls(
    reasoning: ReasoningConfig | None, turns: list[DraftMessage], wire: Wire, model: ModelCapabilities, losses: Losses
) -> ReasoningConfig | None:
    """Turn thinking off if the model requires the reasoning of every earlier call, and the history lacks some.

    "thinking is enabled but reasoning_content is missing in assistant tool call message" (QuantumNous/new-api#3121).
    The model thinks by default, so thinking is turned off also in a request that does not mention it.
    """
    if reasoning is not None and reasoning.mode == "off":
        return reasoning
    if not any(
        turn.message.role == "assistant"
        and any(type(part) is ToolCall for part in turn.parts)
        and not any(type(part) is Reasoning for part in turn.parts)
        for turn in turns
    ):
        return reasoning
    detail = "the reasoning of earlier calls is not in the history, and the model requires it"
    if model.thinking_off is False:
        losses.add(_REASONING, "thinking", "weakened", f"{detail}; it cannot turn thinking off, and may refuse this")
        return reasoning
    losses.add(_REASONING, "thinking", "weakened", f"{detail} while it thinks; thinking was turned off")
    return _fit_off(ReasoningConfig("off"), wire, model, losses)


def _require_thinking_before_calls(
    reasoning: ReasoningConfig, turns: list[DraftMessage], model: ModelCapabilities, losses: Losses
) -> ReasoningConfig | None:
    """Return the settings, or None, with a loss, if the history lacks a thinking that the model requires.

    With a budget, the turn whose results are being returned must begin with its thinking. Another client or provider
    made the calls, or the client did not return the thinking.
    """
    if not model.thinking_before_calls or reasoning.mode != "budget":
        return reasoning
    last = next((index for index in reversed(range(len(turns))) if turns[index].message.role == "assistant"), None)
    if last is None or not any(type(part) is ToolCall for part in turns[last].parts):
        return reasoning
    is_answered = any(type(part) is ToolResult for turn in turns[last + 1 :] for part in turn.parts)
    if not is_answered or type(turns[last].parts[0]) is Reasoning:
        return reasoning
    detail = "the thinking before the last calls is not in the history, and the model requires it with a budget"
    losses.add(_REASONING, "thinking", "dropped", detail)
    return None


def _drop_thinking_for_prefill(
    reasoning: ReasoningConfig, turns: list[DraftMessage], wire: Wire, losses: Losses
) -> ReasoningConfig | None:
    """Leave thinking off if the model is to continue an assistant message, where the target refuses the two together."""
    is_prefill = bool(turns) and turns[-1].message.role == "assistant"
    if not is_prefill or wire.capabilities.prefill_with_thinking or not _turns_thinking_on(reasoning):
        return reasoning
    losses.add(_REASONING, "thinking", "dropped", "the model cannot think and continue an assistant message")
    return None if reasoning.effort is None else replace(reasoning, mode=None, budget=None, visible=None)


def _turns_thinking_on(reasoning: ReasoningConfig) -> bool:
    """Return True if a request with it asks for thinking: by a mode, a budget, or visible thoughts."""
    if reasoning.mode is not None:
        return reasoning.mode != "off"
    return reasoning.budget is not None or bool(reasoning.visible)


def _turn_off_for_tools(
    reasoning: ReasoningConfig | None, model: ModelCapabilities, losses: Losses
) -> ReasoningConfig | None:
    """Turn reasoning off, for a model that accepts tools on this wire only without reasoning."""
    is_default = reasoning is None or (reasoning.mode is None and reasoning.effort is None)
    if (reasoning is not None and reasoning.mode == "off") or (is_default and model.default_effort in (None, "none")):
        return reasoning
    if model.efforts is not None and "none" not in model.efforts:
        return reasoning  # the model cannot turn it off; its provider refuses the tools
    detail = "on this wire the model accepts tools only without reasoning; the wire openai_responses accepts both"
    losses.add(_REASONING, "reasoning", "weakened", detail)
    return ReasoningConfig("off") if reasoning is None else replace(reasoning, mode="off", effort=None, budget=None)


def _turn_off_for_forced_call(
    choice: ToolChoice | None, reasoning: ReasoningConfig | None, model: ModelCapabilities, losses: Losses
) -> ReasoningConfig | None:
    """Turn reasoning off before a forced call, for a model that refuses the two together.

    A client that forces a call cannot use an answer without one, so the call is worth more than the reasoning before
    it (deepseek-ai/DeepSeek-V3#1376 measures `auto` as a substitute). Where reasoning cannot be turned off, the choice
    has become `auto` before.
    """
    if choice is None or not choice.forces_call or model.thinking_off is False:
        return reasoning
    if reasoning is not None and reasoning.mode == "off":
        return reasoning
    is_asked = reasoning is not None and (reasoning.mode is not None or reasoning.effort is not None)
    detail = "this model does not reason before a forced call"
    losses.add(_REASONING, "thinking", "dropped", detail, "warning" if is_asked else "info")
    return ReasoningConfig("off")


def _fit_off(
    reasoning: ReasoningConfig, wire: Wire, model: ModelCapabilities, losses: Losses
) -> ReasoningConfig | None:
    """Turn thinking off, or down as far as the model allows; an effort that it refuses is lowered or dropped."""
    can = wire.capabilities
    highest = model.thinking_off_effort
    if highest in _SCALE and reasoning.effort in _SCALE and _SCALE.index(reasoning.effort) > _SCALE.index(highest):
        detail = f"this model accepts at most {highest!r} without thinking; {reasoning.effort!r} was lowered"
        losses.add(_EFFORT, "effort", "weakened", detail)
        reasoning = replace(reasoning, effort=highest)
    if model.thinking_off is not False or model.thinking_off_type is not None:
        if reasoning.effort is not None and not can.effort_and_budget:
            losses.add(_EFFORT, "effort", "dropped", "the target accepts no effort while thinking is off", "info")
            reasoning = replace(reasoning, effort=None)
        elif reasoning.effort is not None and reasoning.effort not in can.efforts:
            reasoning = _nearest_effort(reasoning, can.efforts, losses)
    if model.thinking_off is not False:
        return reasoning if model.thinking_off_type is None else _with_type(reasoning, wire, model.thinking_off_type)
    return _turn_down(reasoning, wire, model, losses)


def _with_type(reasoning: ReasoningConfig, wire: Wire, kind: str) -> ReasoningConfig:
    """Name the thinking type of the request's own wire."""
    extra = {**reasoning.extra, wire.name: {**reasoning.extra.get(wire.name, {}), "type": kind}}
    return replace(reasoning, extra=extra)


def _turn_down(
    reasoning: ReasoningConfig, wire: Wire, model: ModelCapabilities, losses: Losses
) -> ReasoningConfig | None:
    """Return the settings with the least thinking, for a model that cannot turn it off, or None if there are none.

    The model's own type is the least, then the lowest effort, then the smallest budget. Either way it is a loss.
    """
    efforts = wire.capabilities.efforts  # ascending
    if model.thinking_off_type is not None:
        fitted = _with_type(replace(reasoning, mode="auto", visible=None), wire, model.thinking_off_type)
        sent = repr(model.thinking_off_type)
    elif efforts:
        fitted = replace(reasoning, mode=None, effort=efforts[0], budget=None)
        sent = f"the effort {efforts[0]!r}"
    elif wire.capabilities.budgets and model.min_budget:
        fitted = replace(reasoning, mode="budget", effort=None, budget=model.min_budget)
        sent = f"{model.min_budget} tokens"
    else:
        losses.add(_MODE, "thinking off", "dropped", "this model cannot turn thinking off")
        return None
    losses.add(_MODE, "thinking off", "weakened", f"this model cannot turn thinking off; sent as {sent}")
    return fitted


def _as_effort(reasoning: ReasoningConfig, losses: Losses) -> ReasoningConfig:
    budget = reasoning.budget or 0
    effort = reasoning.effort or ("low" if budget <= 2048 else "medium" if budget <= 16384 else "high")
    losses.add(_BUDGET, "thinking budget", "weakened", f"{budget} tokens were changed to the effort {effort!r}")
    return replace(reasoning, mode="auto", effort=effort, budget=None)


def _as_budget(reasoning: ReasoningConfig, request: Request, wire: Wire, losses: Losses) -> ReasoningConfig | None:
    """Convert the effort to a token budget, for models without effort levels; None if a forced call excludes it."""
    if reasoning.mode == "budget" and reasoning.effort is None:
        return reasoning
    if _drops_forced(request, wire, losses):
        return None
    if reasoning.effort is None and not wire.limits.min_budget:  # the target needs no budget
        return reasoning
    budget = reasoning.budget or _BUDGETS.get(reasoning.effort or "medium", _BUDGETS["medium"])
    losses.add(_EFFORT, "effort", "rewritten", f"this model takes a token budget: {budget}", "info")
    return replace(reasoning, mode="budget", effort=None, budget=budget)


def _fix_amount(reasoning: ReasoningConfig, request: Request, wire: Wire, losses: Losses) -> ReasoningConfig | None:
    """Add a budget beside the effort, for models that think only with a fixed amount."""
    if _drops_forced(request, wire, losses):
        return None if reasoning.effort is None else replace(reasoning, mode=None, visible=None)
    budget = _BUDGETS.get(reasoning.effort or "medium", _BUDGETS["medium"])
    losses.add(_MODE, "thinking", "rewritten", f"this model requires a token budget: {budget}", "info")
    return replace(reasoning, mode="budget", budget=budget)


def _drops_forced(request: Request, wire: Wire, losses: Losses) -> bool:
    """Return whether a forced call excludes thinking with a budget, and report that it is dropped."""
    if request.choice is None or not request.choice.forces_call or wire.capabilities.forced_with_budget:
        return False
    losses.add(_REASONING, "thinking", "dropped", "this model does not support thinking before a forced call")
    return True


def _nearest_effort(reasoning: ReasoningConfig, efforts: tuple[str, ...], losses: Losses) -> ReasoningConfig:
    """Return the next lower effort that the target supports, or its lowest; an unknown effort is dropped."""
    effort = reasoning.effort
    known = [level for level in efforts if level in _SCALE]
    if effort not in _SCALE or not known:
        losses.add(_EFFORT, "effort", "dropped", f"the target does not support {effort!r}")
        return replace(reasoning, effort=None)
    lower = [level for level in known if _SCALE.index(level) <= _SCALE.index(effort)]
    fitted = lower[-1] if lower else known[0]
    losses.add(_EFFORT, "effort", "weakened", f"the target does not support {effort!r}; sent as {fitted!r}")
    return replace(reasoning, effort=fitted)


def _fit_bounds(
    reasoning: ReasoningConfig,
    request: Request,
    wire: Wire,
    model: ModelCapabilities,
    losses: Losses,
    *,
    from_effort: bool,
) -> ReasoningConfig | None:
    """Fit the budget between the minimum and the maximum; return None if that leaves no room for the answer.

    Providers count thinking towards `max_tokens`. A budget that was made from an effort leaves min(8192, half of
    max_tokens) for the answer, and at least a quarter where the minimum is more than half. A budget of the client is
    lowered only where the provider would refuse it.
    """
    budget, max_tokens = reasoning.budget or 0, request.params.max_tokens
    minimum = model.min_budget or wire.limits.min_budget
    fitted = max(budget, minimum) if model.max_budget is None else min(max(budget, minimum), model.max_budget)
    # a wire with a minimum budget (Anthropic) also requires budget < max_tokens
    must_be_less = bool(wire.limits.min_budget)
    if max_tokens is None and must_be_less and wire.limits.max_output is not None:
        fitted = min(fitted, wire.limits.max_output - _ANSWER)  # the default of max_tokens is added to the budget
    if max_tokens is not None and (from_effort or (must_be_less and fitted >= max_tokens)):
        fitted = max(minimum, min(fitted, max_tokens - min(_ANSWER, max_tokens // 2)))
        highest = max_tokens * 3 // 4 if from_effort else max_tokens - 1
        if fitted > highest and (must_be_less or model.thinking_off is not False):
            detail = f"max_tokens {max_tokens} leaves no room for thinking (at least {minimum})"
            losses.add(_REASONING, "thinking", "dropped", detail)
            return None
    if fitted != budget:
        detail = f"{budget} was changed to {fitted}, within the bounds of the model and of max_tokens"
        losses.add(_BUDGET, "thinking budget", "weakened", detail, "info")
    return replace(reasoning, budget=fitted)


def drop_unlinked(
    parts: list[Part], locations: Sequence[PartLocation], wire: Wire, losses: Losses
) -> list[PartLocation]:
    """Drop reasoning without the output that it led to, in place; return the locations of the other parts.

    The provider links both by their ids. Recorded: "Item 'rs_…' of type 'reasoning' was provided without its required
    following item." Dropped reasoning is a loss.
    """
    kept: list[tuple[Part, PartLocation]] = []
    following: Part | None = None
    for part, location in reversed(list(zip(parts, locations, strict=True))):
        if isinstance(part, Reasoning) and _is_unlinked(part, following, wire.name):
            detail = "the target accepts reasoning only together with the output that it led to"
            losses.add(location_pointer(location), "reasoning", "dropped", detail)
            continue
        kept.append((part, location))
        following = part
    kept.reverse()
    parts[:] = [part for part, _ in kept]
    return [location for _, location in kept]


def _is_unlinked(part: Reasoning, following: Part | None, wire: str) -> bool:
    if following is None:
        return True
    if isinstance(following, (Opaque, Reasoning)):
        return False
    return bool(_item_id(part, wire)) and not _item_id(following, wire)


def _item_id(part: Part, wire: str) -> str | None:
    extra: Extra = getattr(part, "extra", {})
    found = extra.get(wire, {}).get("id") or extra.get(f"{wire}/item", {}).get("id")
    return found if isinstance(found, str) else None


def without_id(part: Part, wire: str) -> Part:
    """Remove the id of an item whose reasoning was dropped, because the provider would expect the reasoning too."""
    for scope in (wire, f"{wire}/item"):
        fields = getattr(part, "extra", {}).get(scope)
        if fields and "id" in fields:
            kept = {key: value for key, value in fields.items() if key != "id"}
            part = replace(part, extra={**part.extra, scope: kept})  # type: ignore[union-attr]
    return part
