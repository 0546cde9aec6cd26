"""Settings of model requests: sampling parameters, reasoning, and the choice of tools.

Agent("openai/gpt-5.6", [get_weather], settings={"temperature": 0.2, "reasoning": "low"})
agent.run("…", settings={"max_tokens": 500})        # overrides single settings for this run
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.request import Params, ReasoningConfig, Request
from ...ir.tools import Tool, ToolChoice

_CHOICE_MODES = ("auto", "required", "none")


class ModelSettings(TypedDict, total=False):
    """Settings of a request. A setting that the provider does not support is dropped with a loss.

    `reasoning`: an effort such as "low", or a `ReasoningConfig`. `tool_choice`: "auto", "required", "none", or the name
    of a tool; a forced choice applies to the first request of a run only, so that the model can answer afterwards.
    """

    max_tokens: int
    temperature: float
    top_p: float
    top_k: float
    stop: tuple[str, ...] | list[str]
    seed: int
    presence_penalty: float
    frequency_penalty: float
    logprobs: bool
    top_logprobs: int
    user: str
    metadata: Object
    store: bool
    service_tier: str
    cache_key: str
    safety_identifier: str
    verbosity: str
    reasoning: str | ReasoningConfig
    tool_choice: str | ToolChoice
    parallel_tool_calls: bool


_OWN_SETTINGS = ("reasoning", "tool_choice", "parallel_tool_calls")
_PARAMS = tuple(name for name in ModelSettings.__annotations__ if name not in _OWN_SETTINGS)


def merge_settings(settings: ModelSettings | None, overrides: ModelSettings | None) -> ModelSettings:
    """Combine two settings; `overrides` take precedence. Raise ConfigError for an unknown or malformed setting."""
    merged: ModelSettings = {**(settings or {}), **(overrides or {})}
    _check_names(merged)
    reasoning: Any = merged.get("reasoning")
    if reasoning is not None and not isinstance(reasoning, (str, ReasoningConfig)):
        hint = 'pass an effort such as "low", or a ReasoningConfig'
        raise ConfigError(f"reasoning must be a text or a ReasoningConfig, got {type(reasoning).__name__}", hint=hint)
    return merged


def apply_settings(request: Request, settings: ModelSettings) -> Request:
    """Return the request with these settings; others stay as they are."""
    if not settings:
        return request
    values: Mapping[str, Any] = settings
    params = {name: values[name] for name in _PARAMS if name in values}
    if params:
        request = replace(request, params=_convert_params(request.params, params))
    if "reasoning" in settings:
        reasoning = settings["reasoning"]
        config = ReasoningConfig(effort=reasoning) if isinstance(reasoning, str) else reasoning
        request = replace(request, reasoning=config)
    if "tool_choice" in settings:
        request = replace(request, choice=_make_choice(settings["tool_choice"]))
    if "parallel_tool_calls" in settings:
        request = replace(request, parallel=settings["parallel_tool_calls"])
    return request


def check_choice(choice: ToolChoice | None, tools: Sequence[Tool]) -> None:
    """Raise ConfigError if the choice forces a tool that is not offered."""
    if choice is None or choice.mode != "tool":
        return
    names = [tool.name for tool in tools]
    for name in choice.names:
        if name not in names:
            similar = get_close_matches(name, names, 1)
            hint = (
                f"did you mean {similar[0]!r}?" if similar else 'use "auto", "required", "none" or the name of a tool'
            )
            raise ConfigError(f"tool_choice names the unknown tool {name!r}", hint=hint)


def _check_names(settings: ModelSettings) -> None:
    for name in settings:
        if name not in ModelSettings.__annotations__:
            similar = get_close_matches(name, list(ModelSettings.__annotations__), 1)
            hint = f"did you mean {similar[0]!r}?" if similar else "use the fields of toolwire.run.ModelSettings"
            raise ConfigError(f"unknown model setting {name!r}", hint=hint)


def _convert_params(params: Params, values: dict[str, Any]) -> Params:
    """Replace parameters; check the types, because the settings may come from a file.

    Raise ConfigError for a wrong type.
    """
    fields = {name: getattr(params, name) for name in Params.__struct_fields__} | values
    try:
        return msgspec.convert(fields, Params)
    except msgspec.ValidationError as error:
        raise ConfigError(f"invalid model settings: {error}") from None


def _make_choice(choice: str | ToolChoice) -> ToolChoice:
    if isinstance(choice, ToolChoice):
        return choice
    if choice in _CHOICE_MODES:
        return ToolChoice(choice)  # type: ignore[arg-type]
    return ToolChoice("tool", (choice,))
