"""Settings of an endpoint that change the body of a request: `defaults` before it is encoded, `extra_body` after.

defaults = parse_defaults({"temperature": 0.2, "reasoning": {"effort": "low"}})
defaults.apply(request)                        # only where the request sets nothing
merge_body(body, {"provider": {"sort": "price"}})
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import msgspec
from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.pointer import JSON, Object
from ..ir.request import Params, ReasoningConfig, Request
from ..ir.value import Value
from ..wire.protocol import Wire

__all__ = ["NO_DEFAULTS", "RequestDefaults", "check_extra_body", "merge_body", "parse_defaults"]

# The conversation, the model and the form of the answer: the request or the endpoint sets these fields.
_PROTECTED = frozenset(
    "model messages input contents tools functions system instructions systemInstruction system_instruction stream "
    "prompt previous_response_id conversation cachedContent cached_content tool_choice toolConfig tool_config "
    "function_call n".split()
)
_NOT_A_DEFAULT = frozenset({"n", "include_usage", "logprobs", "top_logprobs", "metadata", "user", "cache_key"})
"""Parameters that belong to one request, or that change the shape of its answer."""
_PARAM_NAMES = tuple(name for name in Params.__struct_fields__ if name not in _NOT_A_DEFAULT)


class RequestDefaults(Value, frozen=True):
    """Parameters for requests that do not set them."""

    params: dict[str, JSON] = {}
    reasoning: ReasoningConfig | None = None

    def apply(self, request: Request) -> Request:
        """Return the request with the defaults that it lacks, or the request itself if it lacks none."""
        params = request.params
        missing = {name: value for name, value in self.params.items() if getattr(params, name) is None}
        if missing:
            request = replace(request, params=replace(params, **missing))
        if self.reasoning is not None and request.reasoning is None:
            request = replace(request, reasoning=self.reasoning)
        return request


NO_DEFAULTS = RequestDefaults()


def parse_defaults(settings: Mapping[str, JSON]) -> RequestDefaults:
    """Check canonical parameters: those of `Params`, and `reasoning` with an `effort` or a `budget`."""
    if not settings:
        return NO_DEFAULTS
    known = (*_PARAM_NAMES, "reasoning")
    for name in settings:
        if name not in known:
            close_matches = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {close_matches[0]!r}?" if close_matches else f"known: {', '.join(known)}"
            raise ConfigError(f"unknown parameter {name!r} in defaults", hint=hint)
    try:
        params = msgspec.convert({name: value for name, value in settings.items() if name != "reasoning"}, Params)
        reasoning = _parse_reasoning(settings["reasoning"]) if "reasoning" in settings else None
    except msgspec.ValidationError as error:
        raise ConfigError(f"defaults: {error}".replace(" - at `$.", " in `")) from None
    values = {name: getattr(params, name) for name in settings if name != "reasoning"}
    return RequestDefaults(values, reasoning)


class _ReasoningDefault(Value, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    budget: int | None = None
    visible: bool | None = None


def _parse_reasoning(value: JSON) -> ReasoningConfig:
    """Convert `reasoning`: an effort of `none` switches it off, as in requests of OpenAI."""
    found = msgspec.convert(value, _ReasoningDefault)
    if found.effort is not None and found.budget is not None:
        raise ConfigError("defaults.reasoning has both an effort and a budget", hint="remove one of them")
    if found.effort == "none":
        return ReasoningConfig("off", visible=found.visible)
    if found.budget is not None:
        return ReasoningConfig("budget", budget=found.budget, visible=found.visible)
    return ReasoningConfig(None if found.effort is None else "auto", found.effort, visible=found.visible)


def check_extra_body(extra: Mapping[str, JSON], wire: Wire) -> None:
    """Raise ConfigError for a field that the request itself determines."""
    for name in extra:
        if name in _PROTECTED or name == wire.conversation:
            hint = "the client's request sets it; use [models] for models, and `defaults` for parameters"
            raise ConfigError(f"extra_body must not set {name!r}", hint=hint)


def merge_body(body: Object, extra: Mapping[str, JSON]) -> Object:
    """Merge `extra` into a body: objects field by field, any other value of `extra` replaces that of the body."""
    merged = dict(body)
    for name, value in extra.items():
        found: JSON = merged.get(name)
        is_mergeable = isinstance(found, dict) and isinstance(value, dict)
        merged[name] = merge_body(found, value) if is_mergeable else value
    return merged
