"""Names of models, their capabilities on a wire, and the codec of one model.

    match_capabilities(get("gemini"), "gemini-2.5-pro").rows["thinking_off"]     # the row, with its source and date

A row applies only where the wire, its version, the vendor and the beginning of the model's name match. Several rows may
match; for each field the first one that sets it decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import asdict, replace

from ..codec import WireCodec
from ..protocol import Capabilities, Limits, Wire, forced_by_schema
from .capabilities import UNKNOWN_MODEL, CapabilityRow, ModelCapabilities
from .rows import ROWS


class CapabilityMatch(NamedTuple):
    """The capabilities of a model, and for each known field the row that decided it."""

    capabilities: ModelCapabilities
    rows: Mapping[str, CapabilityRow]


_PATH = re.compile(r"(?s)\A(?:ft:|.*/)")  # `models/`, `anthropic/`, a resource path; a fine-tuned model
_CLOUD_PREFIX = re.compile(
    r"(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|meta|mistral|amazon|moonshot(?:ai)?|minimax|qwen|zai|cohere|xai)\."
    r"|meta-(?=llama)|zai-(?=glm)"  # `Meta-Llama-3.1-8B-Instruct`, the `zai-glm-4.7` of Cerebras
)
_SUFFIX = re.compile(r"[@:].*|(?<!\Adeepseek)-v\d{1,2}(?::.*)?\Z")
_FIREWORKS_VERSION = re.compile(r"(?<=\d)p(?=\d)")  # `glm-4p6`
_CLAUDE_VERSION = re.compile(r"(?<=\d)\.(?=\d)")


def normalise_model(model: str) -> str:
    """Return the name of a model without the vendor's path, the cloud's prefix and the suffix of a release.

    `us.anthropic.claude-opus-4-6-v1:0`, `anthropic/claude-opus-4.6` and `claude-opus-4-6@20260101` are one model.
    """
    name = _PATH.sub("", model.strip().lower(), count=1) if "/" in model or model.startswith("ft:") else model.lower()
    name = _SUFFIX.sub("", _CLOUD_PREFIX.sub("", name, count=1), count=1)
    if "fireworks/" in model:
        name = _FIREWORKS_VERSION.sub(".", name)
    return _CLAUDE_VERSION.sub("-", name) if name.startswith("claude") else name


# The end of a name such as `mistral:7b` in Ollama's notation. Other tags, such as `mistral:mine`, cannot be distinguished
# from a provider's model. A server or deployment may have a name like a tag, such as `azure:v2-prod`.
_TAG = re.compile(r"(latest|instruct|text|v\d++(\.\d++)*+|(e?\d++(\.\d++)?|\d++x\d++)[bm])(-[\w.-]+)?", re.IGNORECASE)
# The providers that share their name with a family of models in Ollama's library. Mistral's API has no model like a tag.
_FAMILIES = frozenset({"mistral"})


def split_model(model: str, providers: Collection[str]) -> tuple[str, str]:
    """Split `provider/model` or `provider:model` at the first mark; the model itself may contain either.

    The provider is "" if there is no mark. It is also "" for a model with a tag after a colon, such as `mistral:7b` or
    `llama3:8b`, unless one of `providers` has the name before it, and no family of models: `azure:latest`.
    """
    provider, mark, name = min(model.partition("/"), model.partition(":"), key=lambda parts: len(parts[0]))
    is_known = not {provider, provider.lower()}.isdisjoint(providers) and provider.lower() not in _FAMILIES
    is_tagged = mark == ":" and not is_known and _TAG.fullmatch(name)
    return ("", model) if not mark or is_tagged else (provider, name)


def match_capabilities(
    wire: Wire, model: str, *, vendor: str | None = None, rows: tuple[CapabilityRow, ...] = ()
) -> CapabilityMatch:
    """Return the known capabilities of a model, with the row of each.

    `vendor` defaults to the provider of the wire. `rows` come before the built-in ones.
    """
    return _match(wire.name, wire.version, vendor or wire.provider, model, rows)


_updated: list[CapabilityRow] = []  # rows of an update; see `row_update`


def use_rows(rows: Iterable[CapabilityRow]) -> None:
    """Use these rows before the built-in rows in this process."""
    _updated[:] = rows
    _match.cache_clear()


def known_rows(rows: Iterable[CapabilityRow] = ()) -> tuple[CapabilityRow, ...]:
    """Return all rows in the order of their precedence: `rows`, the rows of an update, and the built-in rows."""
    return (*rows, *_updated, *ROWS)


@lru_cache(512)
def _match(wire: str, version: str | None, vendor: str, model: str, rows: tuple[CapabilityRow, ...]) -> CapabilityMatch:
    """Look up the rows for a model; for each field, the first row that sets it decides."""
    names = (model.lower(), normalise_model(model))
    known: dict[str, object] = {}
    decided: dict[str, CapabilityRow] = {}
    for row in known_rows(rows) if model else ():
        if row.applies(wire, version, vendor, names):
            for field, value in asdict(row.capabilities).items():
                if value is not None and field not in known:
                    known[field], decided[field] = value, row
    return CapabilityMatch(ModelCapabilities(**known) if known else UNKNOWN_MODEL, decided)  # type: ignore[arg-type]


@lru_cache(512)
def overlay(capabilities: ModelCapabilities, base: ModelCapabilities) -> ModelCapabilities:
    """Return `base` with the known fields of `capabilities`."""
    if capabilities is UNKNOWN_MODEL:
        return base
    known = {field: value for field, value in asdict(capabilities).items() if value is not None}
    return replace(base, **known) if known else base


@lru_cache(512)
def fit_codec(wire: WireCodec, model: ModelCapabilities) -> WireCodec:
    """Return the codec with the limits and capabilities of one model; the same object each time."""
    return replace(wire, limits=_fit_limits(wire.limits, model), capabilities=_fit_features(wire.capabilities, model))


_LIMITS = ("name", "name_length", "id", "id_length", "tools", "min_output", "max_output", "min_budget", "cache_minimum")


def _fit_limits(limits: Limits, model: ModelCapabilities) -> Limits:
    changes = {
        field: value
        for field in _LIMITS
        if (value := getattr(model, field)) is not None and (field != "min_budget" or limits.min_budget)
    }
    return replace(limits, **changes) if changes else limits


def _fit_features(can: Capabilities, model: ModelCapabilities) -> Capabilities:
    """Restrict the features of a wire to the model's; a row adds no feature, but replaces a forced choice."""
    if model.choice_by_schema is not None:
        can = forced_by_schema(can, model.choice_by_schema)
    changes: dict[str, object] = {}
    always_thinks = model.thinking_off is False and model.thinking_off_type is None
    if model.forced_choice is False or (model.forced_choice_when_thinking is False and always_thinks):
        # No such server has OpenAI's `allowed_tools`: only the allowed tools are declared instead.
        changes["choices"] = can.choices - {"required", "tool", "allowed"}
    if model.system is not None:
        changes["system_anywhere"] = model.system == "anywhere"
        changes["system_after_user"] = model.system == "after_user"
    if model.efforts is not None:
        changes["efforts"] = tuple(effort for effort in model.efforts if effort != "none")
    for field in ("media", "result_media"):
        if (kinds := getattr(model, field)) is not None:
            changes[field] = getattr(can, field) & frozenset(kinds)
    if model.hosted is not None:
        changes["hosted"] = frozenset(model.hosted)  # the row of a model on Chat adds them
    for field in (
        "hosted_with_functions",
        "adaptive",
        "budgets",
        "json_mode",
        "output_schemas",
        "output_with_tools",
        "prefill",
        "strict",
    ):
        if getattr(model, field) is False:
            changes[field] = False
    if model.cache_marks is False:
        changes["cache"] = frozenset()
    if model.signed_calls is False:
        changes["unsigned_call"] = None
    return replace(can, **changes)
