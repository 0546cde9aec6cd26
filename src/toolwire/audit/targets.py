"""The targets that tools have to work with, and the rules that apply to each."""

from __future__ import annotations

from collections.abc import Collection

from ..ir.errors import ConfigError
from ..schema.dialects import DIALECTS, PORTABLE

__all__ = ["TARGETS", "applies_to", "parse_targets"]

TARGETS = ("openai", "openai_strict", "anthropic", "anthropic_strict", "gemini", "gemini_json_schema", "ollama")
"""The targets of the overview, if none is given."""
_EVERYWHERE = frozenset({"all", "models", "mcp"})
_BASE_TARGETS = {"openai_strict": ("openai",), "anthropic_strict": ("anthropic",)}
_WIRES = {
    "openai": ("openai_chat", "openai_responses"),
    "openai_strict": ("openai_chat", "openai_responses"),
    "gemini_json_schema": ("gemini",),
}
_SCHEMA_RULES = ("TW02", "TW03", "TW04")  # these rules name dialects, the others wires


def parse_targets(names: Collection[str]) -> tuple[str, ...]:
    """Split comma-separated names and check that each is a known target."""
    targets = tuple(dict.fromkeys(one.strip() for name in names for one in name.split(",") if one.strip()))
    for target in targets:
        if target not in DIALECTS:
            raise ConfigError(f"unknown target {target!r}", hint=f"use one of {', '.join(DIALECTS)}")
    return targets


def applies_to(rule_id: str, providers: Collection[str], targets: Collection[str]) -> bool:
    """Return True if a rule about these providers applies to a target; without targets, every rule applies."""
    if not targets or PORTABLE.name in targets or not _EVERYWHERE.isdisjoint(providers):
        return True
    words = {*targets, *(word for target in targets for word in _BASE_TARGETS.get(target, ()))}
    if not rule_id.startswith(_SCHEMA_RULES):
        words |= {word for target in targets for word in _WIRES.get(target, ())}
    return not words.isdisjoint(providers)
