"""The providers that bodies can be checked for, and the wire of a body."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module

from ...ir.errors import ConfigError
from ...ir.pointer import Object, nearest_existing
from ..findings import Hit
from .constraints import BODY_RULES, CONSTRAINTS, TOOL_RULES, CheckedBody, Constraint, Violation, parse_model
from .openai_shared import NATIVE
from .shapes import ShapeProblem, check_shape

PROVIDERS: dict[str, tuple[str, ...]] = {
    "openai_chat": ("openai_chat",),
    "openai_responses": ("openai_responses",),
    "anthropic": ("anthropic",),
    "gemini": ("gemini",),
    "cohere": ("cohere",),
    "ollama": ("ollama", "openai_chat"),
    "openai": ("openai_chat", "openai_responses"),
    "azure": ("openai_chat", "openai_responses"),
    "vertex": ("gemini", "anthropic"),
    "bedrock": ("anthropic", "openai_chat", "openai_responses"),
    "cerebras": ("openai_chat",),
    "deepseek": ("openai_chat", "openai_responses"),
    "groq": ("openai_chat", "openai_responses"),
    "huggingface": ("openai_chat", "openai_responses"),
    "mistral": ("openai_chat",),
    "openrouter": ("openai_chat", "openai_responses"),
    "xai": ("openai_chat", "openai_responses"),
}
"""The providers, each with its wires. A provider with several wires is asked by the fields of the body."""
_MODULES = (
    "anthropic", "anthropic_models", "cohere", "gemini", "ollama", "openai_chat", "openai_responses", "shape_rules",
)  # fmt: skip


@cache
def list_constraints() -> dict[str, list[Constraint]]:
    """Return the constraints of every wire. The modules register them when they are imported."""
    for name in _MODULES:
        import_module(f".{name}", __package__)
    return CONSTRAINTS


def check_body(body: Object, provider: str, model: str | None = None, *, version: str | None = None) -> list[Violation]:
    """Check a request body against the documented constraints of a provider, offline.

    `model` is the model that the body is meant for; by default it is the `model` of the body. Constraints that depend
    on the model apply to known names only. `version` is the API version, for a provider that has versions. Raises
    `ConfigError` for an unknown provider, and for a body that is not an object.
    """
    if type(body) is not dict:
        raise ConfigError(f"the body must be a JSON object, got {type(body).__name__}", hint="parse the body first")
    wire = _wire_of(body, provider)
    named = model or body.get("model")
    stated = version or body.get("anthropic_version")
    checked = CheckedBody(
        body,
        provider,
        wire,
        parse_model(named if type(named) is str else ""),
        stated if type(stated) is str and stated[:2] == "20" else None,
        _shape_problems(body, wire, provider),
    )
    found: dict[tuple[str, Hit], Violation] = {}
    for row in list_constraints()[wire]:
        if not row.vendors or provider in row.vendors:
            for hit in row.check(checked):
                located = Hit(nearest_existing(body, hit.path), hit.message)
                found.setdefault((row.rule, located), _violation(row, provider, located))
    return list(found.values())


def _shape_problems(body: Object, wire: str, provider: str) -> tuple[ShapeProblem, ...]:
    """Compare the body with the shapes of its wire. Other vendors of OpenAI's wires have fields of their own."""
    if wire in ("cohere", "ollama") or (wire.startswith("openai_") and provider not in NATIVE.split()):
        return ()
    return tuple(check_shape(body, wire))


def _violation(row: Constraint, provider: str, hit: Hit) -> Violation:
    statement = BODY_RULES.get(row.rule) or TOOL_RULES[row.rule]
    return Violation(row.rule, provider, hit.path, hit.message, statement.fix, row.source, row.error)


def _wire_of(body: Object, provider: str) -> str:
    """Return the wire of a body, by its fields if the provider has several.

    Raises `ConfigError` for an unknown provider.
    """
    if provider not in PROVIDERS:
        close = get_close_matches(provider, PROVIDERS, 1, 0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(PROVIDERS)}"
        raise ConfigError(f"unknown provider {provider!r}", hint=hint)
    wires = PROVIDERS[provider]
    if len(wires) == 1:
        return wires[0]
    if "contents" in body and "gemini" in wires:
        return "gemini"
    if "messages" not in body and "openai_responses" in wires:
        return "openai_responses"
    if "anthropic" in wires and ("anthropic_version" in body or "openai_chat" not in wires):
        return "anthropic"
    return "ollama" if provider == "ollama" else "openai_chat"
