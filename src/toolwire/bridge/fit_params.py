"""Fit the parameters to the limits of the target and to those that the model accepts."""

from __future__ import annotations

from math import isfinite

from msgspec.structs import replace

from ..ir.losses import Losses, Severity
from ..ir.pointer import join
from ..ir.request import Params, ReasoningConfig
from ..wire.models.capabilities import ModelCapabilities
from ..wire.protocol import Limits, Wire

__all__ = ["fit_params", "limit_output"]

# A parameter with its default value changes nothing, so its loss is only information.
_DEFAULTS: dict[str, object] = {
    "temperature": 1,
    "top_p": 1,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "top_logprobs": 0,
    "stop": (),
}


def limit_output(params: Params, limits: Limits, losses: Losses) -> Params:
    """Lower `max_tokens` to the most tokens that the model writes: a larger number is rejected.

    A wire that requires the number has a default, which may be too large for an old model.
    """
    most = limits.max_output
    if most is None:
        return params
    asked = params.max_tokens
    if asked is None:
        if (limits.max_tokens or 0) <= most:
            return params
        detail = f"the target requires it and the request has none; set to {most}"
        losses.add("", "max_tokens", "rewritten", detail, "info")
        return replace(params, max_tokens=most)
    if asked <= most:
        return params
    detail = f"the model writes at most {most} tokens; {asked} was lowered"
    losses.add(join("params", "max_tokens"), "max_tokens", "rewritten", detail, "info")
    return replace(params, max_tokens=most)


def fit_params(
    params: Params, reasoning: ReasoningConfig | None, wire: Wire, model: ModelCapabilities, losses: Losses
) -> Params:
    """Drop or change the parameters that the target would reject. `reasoning` is already fitted."""
    if params == Params(params.max_tokens) and _accepts_max_tokens(params.max_tokens, wire.limits, model):
        return params
    params = _drop_refused(params, _refused_params(reasoning, wire, model), losses)
    for name in (model.exclusive_params or ())[1:]:
        first = (model.exclusive_params or ())[0]
        if getattr(params, first) is not None and getattr(params, name) is not None:
            losses.add(join("params", name), name, "dropped", f"this model accepts either {first} or {name}")
            params = replace(params, **{name: None})
    if params.stop and not wire.capabilities.blank_text:
        params = _drop_blank_stops(params, losses)
    return _fit_limits(params, wire.limits, losses)


def _accepts_max_tokens(max_tokens: int | None, limits: Limits, model: ModelCapabilities) -> bool:
    """Return whether the only parameter of most requests is sent as it is."""
    if max_tokens is None:
        return True
    for names in (model.refused_params, model.refused_when_thinking, limits.ranges):
        if names and "max_tokens" in names:
            return False
    return max_tokens >= limits.min_output


def _refused_params(reasoning: ReasoningConfig | None, wire: Wire, model: ModelCapabilities) -> dict[str, str]:
    """Return the parameters that the model refuses, each with the reason."""
    refused = dict.fromkeys(model.refused_params or (), "this model does not accept it")
    if model.refused_when_thinking and _thinks(reasoning, wire, model):
        for name in model.refused_when_thinking:
            refused.setdefault(name, "this model does not accept it while it reasons")
    return refused


def _thinks(reasoning: ReasoningConfig | None, wire: Wire, model: ModelCapabilities) -> bool:
    """Return whether the model reasons in this request, by its settings or by default.

    Where thinking has its own switch (`adaptive` on the wire), an effort alone does not turn it on.
    """
    if reasoning is not None and reasoning.mode is not None:
        return reasoning.mode != "off"
    if reasoning is not None and (reasoning.effort is not None or reasoning.visible):
        return bool(reasoning.visible) or not (wire.capabilities.adaptive or wire.capabilities.budgets)
    return model.default_effort not in (None, "none")


def _drop_refused(params: Params, refused: dict[str, str], losses: Losses) -> Params:
    """Drop the parameters in `refused`."""
    dropped: dict[str, None] = {}
    for name, detail in refused.items():
        value = getattr(params, name)
        if value is None:
            continue
        severity: Severity = "info" if name in _DEFAULTS and value == _DEFAULTS[name] else "warning"
        losses.add(join("params", name), name, "dropped", detail, severity)
        dropped[name] = None
    return replace(params, **dropped) if dropped else params


def _fit_limits(params: Params, limits: Limits, losses: Losses) -> Params:
    """Drop a user field that the target would reject, cut surplus stop sequences, move numbers into their ranges."""
    if params.user is not None and params.user.startswith("{"):
        # A JSON document (device, account, session) is only for the provider that it was made for.
        detail = "it contains more than an id and was made for another provider"
        losses.add(join("params", "user"), "user", "dropped", detail, "info")
        params = replace(params, user=None)
    if params.user is not None and limits.user_length is not None and len(params.user) > limits.user_length:
        detail = f"it has {len(params.user)} characters; the target accepts {limits.user_length}"
        losses.add(join("params", "user"), "user", "dropped", detail)
        params = replace(params, user=None)
    if limits.stops is not None and params.stop is not None and len(params.stop) > limits.stops:
        detail = f"{len(params.stop)} given; only the first {limits.stops} are sent"
        losses.add(join("params", "stop"), "stop sequences", "weakened", detail)
        params = replace(params, stop=params.stop[: limits.stops])
    if params.max_tokens is not None and params.max_tokens < limits.min_output:
        detail = f"the target requires at least {limits.min_output}; {params.max_tokens} was raised"
        losses.add(join("params", "max_tokens"), "max_tokens", "rewritten", detail, "info")
        params = replace(params, max_tokens=limits.min_output)
    return _fit_ranges(_round_top_k(params, losses), limits, losses)


def _round_top_k(params: Params, losses: Losses) -> Params:
    """Round down a `top_k` with a fraction, which only Gemini's clients can send; it is a number of tokens."""
    top_k = params.top_k
    if top_k is None or not isfinite(top_k) or top_k == int(top_k):
        return params
    detail = f"the target requires a whole number; {top_k} was replaced by {int(top_k)}"
    losses.add(join("params", "top_k"), "top_k", "weakened", detail)
    return replace(params, top_k=int(top_k))


def _fit_ranges(params: Params, limits: Limits, losses: Losses) -> Params:
    """Replace numbers outside of their ranges by the nearest bound. `top_k: 0` means no limit, so it is dropped."""
    changes: dict[str, float | None] = {}
    for name, (least, most) in (limits.ranges or {}).items():
        value = getattr(params, name)
        if value is None or least <= value <= most:
            continue
        if name == "top_k":
            losses.add(join("params", name), name, "dropped", f"the target requires at least {least}, got {value}")
            changes[name] = None
            continue
        nearest = min(max(value, least), most)
        detail = f"the target accepts {least} to {most}; {value} was replaced by {nearest}"
        losses.add(join("params", name), name, "weakened", detail)
        changes[name] = nearest
    return replace(params, **changes) if changes else params


def _drop_blank_stops(params: Params, losses: Losses) -> Params:
    """Drop stop sequences of only whitespace. Anthropic: "each stop sequence must contain non-whitespace"."""
    stops = params.stop or ()
    kept = tuple([stop for stop in stops if stop.strip()])
    if len(kept) == len(stops):
        return params
    detail = "the target rejects sequences of only whitespace"
    losses.add(join("params", "stop"), "stop sequences", "weakened" if kept else "dropped", detail)
    return replace(params, stop=kept or None)
