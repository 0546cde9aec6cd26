"""All rules over a list of tools, and how each tool fares with each provider."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from ..ir.tools import Tool
from ..schema.dialects import DIALECTS
from ..schema.lowering import lower
from . import portable_rule, quality_rules, schema_rules, tool_rules
from .findings import CHECKS, Finding, Place, chosen, found_at
from .targets import TARGETS
from .tokens import tokens_of

__all__ = ["Fare", "audit_tools", "fares", "tokens"]

_ROOMS = (tool_rules, schema_rules, quality_rules, portable_rule)  # importing them registers their rules


def audit_tools(
    tools: Sequence[Tool],
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    targets: Collection[str] = (),
    places: Sequence[Place] = (),
) -> tuple[Finding, ...]:
    """What the rules find. `select` and `ignore` are ids or beginnings of ids: "TQ", "TW02"; `places` says where each
    tool was read."""
    assert _ROOMS
    given = tuple(tools)
    stands = tuple(places) or (Place(),) * len(given)
    of_all = stands[0] if len(set(stands)) == 1 else Place()
    found: list[Finding] = []
    for rule_id, check in CHECKS.items():
        if not chosen(rule_id, select, ignore, targets):
            continue
        for index, hit in check(given):
            if index < 0:
                found.append(found_at(of_all, rule_id, "", hit.path, hit.message))
            elif rule_id not in _suppressed(given[index]):
                found.append(found_at(stands[index], rule_id, given[index].name, hit.path, hit.message))
    return tuple(dict.fromkeys(found))


def _suppressed(tool: Tool) -> frozenset[str]:
    """Rules that the author has looked at: `"x-toolwire-ignore": ["TW030"]` in the declaration or in its schema."""
    said = (tool.input_schema or {}).get("x-toolwire-ignore")
    for fields in tool.extra.values():
        said = fields.get("x-toolwire-ignore", said)
    return frozenset(one for one in said if type(one) is str) if type(said) is list else frozenset()


class Fare(NamedTuple):
    """✓ as it is, ~ lowered without loss, ! something is not enforced, ✗ it does not fit."""

    mark: Literal["✓", "~", "!", "✗"]
    losses: int


def fares(tool: Tool, targets: Sequence[str] = TARGETS) -> dict[str, Fare]:
    """How the schema of a tool fares in each dialect."""
    out: dict[str, Fare] = {}
    for name in targets:
        lowered = lower({"type": "object"} if tool.input_schema is None else tool.input_schema, DIALECTS[name])
        losses = sum(loss.severity != "info" for loss in lowered.losses)
        if not lowered.conforms:
            out[name] = Fare("✗", losses)
        elif losses:
            out[name] = Fare("!", losses)
        else:
            out[name] = Fare("✓" if lowered.unchanged else "~", 0)
    return out


def tokens(tool: Tool) -> int:
    return tokens_of(tool, "openai_chat")
