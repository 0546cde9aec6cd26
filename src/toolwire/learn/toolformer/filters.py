"""Keep the calls whose results make the text after them easier to predict.

`paper`: the call is a prefix of the text, because brackets inside a sentence surprise a model that was not tuned. Its
result must reduce the loss against both no call and the call without its result. `seed`: the call is at its place in
the text and competes with no call only. `rank`: the score of `seed`, but the share of the best candidates is kept
instead of those over a threshold. `none`: every executed call is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.value import Value
from ..language_model import LanguageModel
from .call_text import call_span, format_call
from .losses import WEIGHTS, LossRequest, batch_losses

__all__ = [
    "CallLosses",
    "FilterRule",
    "ScoredPosition",
    "is_kept",
    "loss_gain",
    "loss_reduction_filter",
    "measure_losses",
    "rank_threshold",
    "require_rule",
    "require_share",
]

FilterRule: TypeAlias = Literal["paper", "seed", "rank", "none"]


class CallLosses(Value, frozen=True):
    """The weighted losses of the text after a position, in nats."""

    without_call: float
    with_result: float
    without_result: float | None = None


class ScoredPosition(Value, frozen=True):
    """A position of a text, with the calls (text and result) whose losses are wanted."""

    text: str
    position: int
    calls: tuple[tuple[str, str], ...]


def loss_gain(losses: CallLosses) -> float:
    """Return the loss without the result minus the loss with it: min(L(ε), L(c, ε)) - L(c, r)."""
    before = losses.without_call
    if losses.without_result is not None:
        before = min(before, losses.without_result)
    return before - losses.with_result


def is_kept(losses: CallLosses, tau: float) -> bool:
    """Return True if the result reduces the loss by at least `tau` nats."""
    return loss_gain(losses) >= tau


def rank_threshold(gains: Sequence[float], share: float) -> float:
    """Return the gain that the best `share` of all candidates reach."""
    require_share(share)
    ranked = sorted(gains, reverse=True)
    return ranked[max(1, math.floor(share * len(ranked))) - 1] if ranked else math.inf


def loss_reduction_filter(
    model: LanguageModel,
    passage: str,
    call: str | ToolCall,
    result: str,
    i: int,
    tau: float = 1.0,
    *,
    rule: FilterRule = "paper",
    weights: Sequence[float] = WEIGHTS,
) -> bool:
    """Keep a candidate if its result lowers the weighted loss of `passage[i:]` by at least `tau` nats."""
    text = format_call(call)[1:-1]
    [[losses]] = measure_losses(model, [ScoredPosition(passage, i, ((text, result),))], rule=rule, weights=weights)
    return rule == "none" or is_kept(losses, tau)


def measure_losses(
    model: LanguageModel,
    positions: Sequence[ScoredPosition],
    *,
    rule: FilterRule = "paper",
    weights: Sequence[float] = WEIGHTS,
    batch_tokens: int = 16_384,
) -> list[list[CallLosses]]:
    """Return the losses of every call. The loss without a call is computed once for each position."""
    require_rule(rule)
    requests: list[LossRequest] = []
    for place in positions:
        requests += _requests(model, place, is_prefix=rule == "paper", count=len(weights))
    losses = iter(batch_losses(model, requests, weights=weights, batch_tokens=batch_tokens))
    found = []
    for place in positions:
        alone = next(losses)
        if rule == "paper":
            found.append([CallLosses(alone, next(losses), next(losses)) for _ in place.calls])
        else:
            found.append([CallLosses(alone, next(losses)) for _ in place.calls])
    return found


def require_rule(rule: str) -> None:
    """Raise ConfigError for an unknown filter."""
    if rule not in get_args(FilterRule):
        raise ConfigError(f"unknown filter {rule!r}", hint=f"use one of {', '.join(get_args(FilterRule))}")


def require_share(share: float) -> None:
    """Raise ConfigError for a share of candidates that cannot be kept."""
    if not 0 < share <= 1:
        raise ConfigError(f"the share of kept candidates must be over 0 and at most 1, got {share}")


def _requests(model: LanguageModel, place: ScoredPosition, *, is_prefix: bool, count: int) -> list[LossRequest]:
    """Return the request without a call, then those of each call: with its result and, as a prefix, without it."""
    if not 0 <= place.position <= len(place.text):
        raise ConfigError(f"position {place.position} is outside of the text of {len(place.text)} characters")
    before = place.text[: place.position]
    context = tuple(model.encode(before))
    suffix = tuple(model.encode(place.text[place.position :])[:count])
    requests = [LossRequest(context, suffix)]
    encode = _cached_encode(model)
    for call, result in place.calls:
        if is_prefix:
            requests.append(LossRequest((*encode(format_call(call, result) + "\n"), *context), suffix))
            requests.append(LossRequest((*encode(format_call(call) + "\n"), *context), suffix))
        else:
            requests.append(LossRequest((*context, *encode(call_span(before, call, result))), suffix))
    return requests


def _cached_encode(model: LanguageModel) -> Callable[[str], list[int]]:
    known: dict[str, list[int]] = {}

    def encode(text: str) -> list[int]:
        if text not in known:
            known[text] = model.encode(text)
        return known[text]

    return encode
