"""Fit the parameters and provider fields of a request to the target.

Parameters are kept within the limits of the target and the model. Fields and artefacts of another provider are removed,
and so are fields that the target's wire has but its vendor rejects, such as fields of Vertex AI at the Gemini API.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import TypeVar

from msgspec.structs import replace

from ...ir.losses import Losses, Severity
from ...ir.parts import Artefact, Extra, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, join
from ...ir.request import Message, Params, ReasoningConfig, Request
from ...ir.tools import Tool, ToolChoice
from ...stream.strict import type_label
from ...wire.models.capabilities import ModelCapabilities
from ...wire.protocol import Limits, Wire
from ..conversation.outline import HistoryOutline

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
    """Lower `max_tokens` to the most tokens that the model writes, with a loss: a larger number is rejected.

    A wire that requires the number has a default, which may be too large for an old model; then it is set.
    """
    most = limits.max_output
    if most is None:
        return params
    asked = params.max_tokens
    if asked is None:
        if (limits.max_tokens or 0) <= most:  # the wire's default
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
    """Drop or change the parameters that the target would reject, with losses. `reasoning` is already fitted."""
    params = _drop_refused(params, _refused_params(reasoning, wire, model), losses)
    # of parameters that exclude each other, the first is kept
    for name in (model.exclusive_params or ())[1:]:
        first = (model.exclusive_params or ())[0]
        if getattr(params, first) is not None and getattr(params, name) is not None:
            losses.add(join("params", name), name, "dropped", f"this model accepts either {first} or {name}")
            params = replace(params, **{name: None})
    if params.stop and not wire.capabilities.blank_text:
        params = _drop_blank_stops(params, losses)
    return _fit_limits(params, wire.limits, losses)


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
    """Drop the parameters in `refused`, each with its reason as a loss."""
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
    """Return the parameters within the limits of the target, and add every change to `losses`.

    A `user` that is too long is dropped, surplus stop sequences are cut, a `max_tokens` that is too small
    is raised, a `top_k` with a fraction is rounded down or, out of range, dropped, and other numbers become the nearest
    bound of their range.
    """
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
        if name == "top_k" and value < least:  # 0 or less means no limit
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


_Extensible = TypeVar(
    "_Extensible", bound=Request | Tool | ToolChoice | Text | Media | Reasoning | Refusal | ToolCall | ToolResult
)


def drop_rejected_fields(
    request: Request, rejected: frozenset[tuple[str, str]], losses: Losses, outline: HistoryOutline
) -> Request:
    """Return the request without the `rejected` fields: pairs of a key of `extra` and a field, `a/b` if it is nested.

    No part and no tool is removed, so all paths stay valid. `outline` describes the messages.
    """
    if not _has_rejected_fields(request, _names_by_group(rejected), outline):
        return request
    dropper = _FieldDropper(rejected, losses)
    request = dropper.drop(request, "")
    choice = None if request.choice is None else dropper.drop(request.choice, "/choice")
    tools = [dropper.drop_from_tool(tool, f"/tools/{index}") for index, tool in enumerate(request.tools)]
    messages = [dropper.drop_from_message(message, f"/messages/{i}") for i, message in enumerate(request.messages)]
    return replace(request, choice=choice, tools=tuple(tools), messages=tuple(messages))


def has_rejected_parts(rejected: frozenset[tuple[str, str]], outline: HistoryOutline) -> bool:
    """Return whether a part of the conversation may have a `rejected` field."""
    return outline.has_fields(_names_by_group(rejected))


def _has_rejected_fields(request: Request, names: Mapping[str, frozenset[str]], outline: HistoryOutline) -> bool:
    """Check for any rejected field first, because almost no request has one."""
    if _is_affected(request.extra, names) or (request.choice is not None and _is_affected(request.choice.extra, names)):
        return True
    for tool in request.tools:
        if tool.extra and _is_affected(tool.extra, names):
            return True
    return outline.has_fields(names)


def _is_affected(extra: Extra, names: Mapping[str, frozenset[str]]) -> bool:
    for group, fields in extra.items():
        rejected = names.get(group)
        if rejected is not None and not rejected.isdisjoint(fields):
            return True
    return False


@lru_cache(16)
def _names_by_group(rejected: frozenset[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Return the first step to each field, by key of `extra`."""
    steps = _steps_by_group(rejected)
    return {group: frozenset(first for first, *_ in fields) for group, fields in steps.items()}


@lru_cache(16)
def _steps_by_group(rejected: frozenset[tuple[str, str]]) -> dict[str, list[list[str]]]:
    """Return the steps to each field, by key of `extra`."""
    steps: dict[str, list[list[str]]] = {}
    for group, field in sorted(rejected):
        steps.setdefault(group, []).append(field.split("/"))
    return steps


class _FieldDropper:
    """Drops fields, and adds a loss for each."""

    def __init__(self, rejected: frozenset[tuple[str, str]], losses: Losses) -> None:
        self._steps = _steps_by_group(rejected)
        self._losses = losses

    def drop_from_message(self, message: Message, path: str) -> Message:
        """Return a message whose parts have no rejected fields."""
        parts: list[Part] = []
        for index, part in enumerate(message.parts):
            parts.append(part if isinstance(part, Opaque) else self.drop(part, f"{path}/parts/{index}"))
        return replace(message, parts=tuple(parts))

    def drop_from_tool(self, tool: Tool, path: str) -> Tool:
        """Return a tool without rejected fields. The path of a built-in tool includes the object under its name."""
        return self.drop(tool, path, tool.name if tool.kind in ("builtin", "typed") else None)

    def drop(self, value: _Extensible, path: str, enclosing: str | None = None) -> _Extensible:
        """Return a value without the rejected fields of its `extra`, or the same object.

        `enclosing` is a field that `path` includes already.
        """
        groups = self._steps.keys() & value.extra.keys()
        if not groups:
            return value
        extra: Extra = dict(value.extra)
        for group in sorted(groups):
            steps_of_fields = self._steps[group]
            scope = group.partition("/")[2]
            for steps in steps_of_fields:
                label = " ".join([scope, *steps]).strip()
                start = f"{path}/{scope}" if scope else path
                extra[group] = self._without(extra[group], steps, start, label, enclosing)
            if not extra[group]:
                del extra[group]
        if all(extra.get(group) is fields for group, fields in value.extra.items()):
            return value
        return replace(value, extra=extra)

    def _without(self, value: JSON, steps: list[str], path: str, label: str, enclosing: str | None = None) -> JSON:
        """Return an object without the field at `steps`; a list on the way means each of its items.

        `enclosing` is a field that `path` includes already.
        """
        if isinstance(value, list):
            items = [self._without(item, steps, path + join(index), label) for index, item in enumerate(value)]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        first, *rest = steps
        if not isinstance(value, dict) or first not in value:
            return value
        if rest:
            inner = self._without(value[first], rest, path if first == enclosing else path + join(first), label)
            return value if inner is value[first] else {**value, first: inner}
        self._losses.add(path + join(first), label, "dropped", "the target's vendor does not support it")
        return {name: item for name, item in value.items() if name != first}


# Bookkeeping fields of a wire, without use on another one.
_BOOKKEEPING = frozenset({"id", "status", "index", "object", "phase", "user_id"})
# State that the provider stores, and documents beside the messages (Cohere): without them the model lacks the context
# of the conversation.
_CONVERSATION = frozenset({"previous_response_id", "conversation", "prompt", "cachedContent", "container", "documents"})
# Fields of a request with the same name and meaning on two wires, by target and source, each with the kind of cache
# mark that its server must support: most servers of Chat have none, and strict ones reject unknown fields.
_OPENAI_FIELDS = {"prompt_cache_options": "part", "prompt_cache_retention": "part"}
# OpenRouter reads Anthropic's field on Chat (microsoft/vscode#312939)
_BODY_MARK = {"cache_control": "request"}
_SHARED = {
    "anthropic": {"openai_chat": _BODY_MARK},
    "openai_chat": {"openai_responses": _OPENAI_FIELDS, "anthropic": _BODY_MARK},
    "openai_responses": {"openai_chat": _OPENAI_FIELDS},
}


def fit_extra(extra: Extra, wire: Wire, losses: Losses, vendor_marks: frozenset[str]) -> Extra:
    """Return a request's fields, with those of another wire that the target also has under the target's name.

    Fields that only another wire has are reported as losses, unless the request has fields for the target
    (`report_extra`). `vendor_marks` are the cache marks of the target's server, whatever its model: OpenAI's older
    models have these fields, but no marks.
    """
    # A mark on the whole request depends on the model, so the vendor's does not count.
    marks = wire.capabilities.cache | (vendor_marks - {"request"})
    moved: Extra = {}
    for source, shared in _SHARED.get(wire.name, {}).items():
        if source not in extra or shared.keys().isdisjoint(extra[source]):
            continue
        fields = extra[source]
        shared_fields = {name: fields[name] for name in fields if shared.get(name) in marks}
        if shared_fields:
            other_fields = {name: value for name, value in fields.items() if name not in shared_fields}
            extra = {**extra, source: other_fields}
            moved = {**moved, **shared_fields}
    report_extra(extra, "", wire.name, losses)
    return {**extra, wire.name: {**moved, **extra.get(wire.name, {})}} if moved else extra


def report_extra(
    extra: Extra, path: str, wire: str, losses: Losses, *, as_info: bool = False, scoped: bool = True
) -> None:
    """Add a loss for each field that only another wire has; with `as_info`, as information only.

    Nothing is reported if the author has also set fields for the target, which is a deliberate choice. `scoped` adds
    the enclosing object to the path (`/output_config/task_budget`).
    """
    if wire in extra:
        return
    for name, fields in extra.items():
        # `~` marks the source's own spelling, `?` values of a wrong type, `:` a default of the source
        if name.endswith("~"):
            continue
        source, _, scope = name.removesuffix("?").partition("/")
        if source == wire:
            continue
        for field, value in fields.items():
            if name.endswith("?"):
                detail = f"{source} sent {type_label(value)} of another kind than its protocol defines"
                losses.add(f"{path}{join(field)}", f"{scope} {field}".strip(), "rewritten", detail, "info")
                continue
            if field.startswith(":"):
                detail = f"on {source} its absence means {value}"
                losses.add(path, field[1:], "dropped", detail, "warning")
                continue
            severity = "info" if as_info else _severity(field)
            detail = f"specific to {source}"
            where = f"{path}/{scope}" if scope and scoped else path
            losses.add(f"{where}{join(field)}", f"{scope} {field}".strip(), "dropped", detail, severity)


def _severity(field: str) -> Severity:
    return "info" if field in _BOOKKEEPING else "error" if field in _CONVERSATION else "warning"


def own_artefacts(
    artefacts: tuple[Artefact, ...], provider: str, model: str, history_model: str | None, path: str, losses: Losses
) -> tuple[Artefact, ...]:
    """Return the artefacts that the target itself made; report the others."""
    own = tuple(a for a in artefacts if a.provider == provider and (a.model or history_model or model) == model)
    if len(own) != len(artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "it may only be sent back to its own provider and model")
    return own
