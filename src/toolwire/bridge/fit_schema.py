"""Schemas of tools, fitted to what the target takes: lowered into its dialect, within its budgets, or left out.

Strict is said only where the result qualifies. What a provider bounds for a whole request (optional parameters, unions) is
met by taking strictness from the costliest tools; a tool that fits in no way at all is left out, and the others go.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.errors import EncodeError
from ..ir.losses import Losses
from ..ir.tools import Tool
from ..schema.conform import cost
from ..schema.dialects import DIALECTS, Dialect
from ..schema.lowering import Lowered, lower
from ..wire.protocol import Wire

__all__ = ["fit_schemas"]

Placed = tuple[Tool, int]


def fit_schemas(tools: list[Placed], wire: Wire, losses: Losses) -> tuple[list[Placed], dict[str, Lowered]]:
    """The tools with schemas that the target takes, and by name how their arguments are carried, where they change."""
    loose, strict = DIALECTS[wire.dialect], DIALECTS.get(f"{wire.dialect}_strict")
    wanted = strict is not None and wire.capabilities.strict and any(tool.strict for tool, _ in tools)
    relaxed = _over_budget(tools, strict, losses) if wanted and strict is not None else frozenset()
    fitted: list[Placed] = []
    lifts: dict[str, Lowered] = {}
    for tool, index in tools:
        if tool.input_schema is None or tool.kind != "function" or index < 0:
            fitted.append((tool, index))
            continue
        if tool.strict and strict is not None and wire.capabilities.strict and index not in relaxed:
            lowered = _lowered(tool, strict)
            if lowered is not None and lowered.conforms:
                fitted.append((_with(tool, lowered, index, lifts, losses), index))
                continue
            detail = "the schema does not qualify: sent without"
            losses.add(f"/tools/{index}/strict", "strict", "dropped", detail)
            tool = replace(tool, strict=None)
        elif index in relaxed:
            tool = replace(tool, strict=None)
        lowered = _lowered(tool, loose)
        if lowered is None or not lowered.conforms:
            detail = f"its schema cannot be made to fit {loose.name}"
            losses.add(f"/tools/{index}", "tool", "dropped", detail, "error")
            continue
        fitted.append((_with(tool, lowered, index, lifts, losses), index))
    return fitted, lifts


def _lowered(tool: Tool, dialect: Dialect) -> Lowered | None:
    try:
        return lower(tool.input_schema, dialect)
    except (EncodeError, RecursionError):
        return None


def _with(tool: Tool, lowered: Lowered, index: int, lifts: dict[str, Lowered], losses: Losses) -> Tool:
    if lowered.unchanged:
        return tool
    path = f"/tools/{index}/input_schema"
    for loss in lowered.losses:
        losses.add(path + loss.path, loss.concept, loss.action, loss.detail, loss.severity)
    if lowered.schema != tool.input_schema:
        detail = f"written as {lowered.dialect.name} takes it"
        losses.add(path, "schema", "rewritten", detail, "info")
    if lowered.changes_arguments:
        lifts[tool.name] = lowered
    return replace(tool, input_schema=lowered.schema)


def _over_budget(tools: list[Placed], strict: Dialect, losses: Losses) -> frozenset[int]:
    """The fewest tools whose strictness has to go, the costliest first."""
    if strict.optional_parameters is None or strict.union_parameters is None:
        return frozenset()
    costs = {
        index: cost(lowered.schema)
        for tool, index in tools
        if tool.strict and tool.kind == "function" and tool.input_schema is not None
        if (lowered := _lowered(tool, strict)) is not None and lowered.conforms
    }
    relaxed: set[int] = set()
    optional, unions = (sum(one[part] for one in costs.values()) for part in (0, 1))
    for index in sorted(costs, key=lambda index: sum(costs[index]), reverse=True):
        if optional <= strict.optional_parameters and unions <= strict.union_parameters:
            break
        relaxed.add(index)
        optional, unions = optional - costs[index][0], unions - costs[index][1]
        detail = f"all strict tools together may have {strict.optional_parameters} optional parameters"
        detail += f" and {strict.union_parameters} unions"
        losses.add(f"/tools/{index}/strict", "strict", "dropped", detail)
    return frozenset(relaxed)
