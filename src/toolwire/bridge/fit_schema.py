"""Fit tool schemas to the target: lower them into its dialect, keep within its budgets, or drop the tool.

`strict` is set only if the result qualifies. Limits for a whole request (strict tools, optional parameters, unions) are
met by removing strictness from as few tools as possible. A tool that cannot be fitted at all is dropped; the others are
sent.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.errors import EncodeError
from ..ir.losses import Losses
from ..ir.tools import Tool
from ..schema.dialects import DIALECTS, Dialect
from ..schema.lowering.conformance import parameter_counts
from ..schema.lowering.lowered import Lowered, lower
from ..wire.protocol import Wire
from .budget import ParameterCounts, select_affordable

__all__ = ["fit_schemas"]

PlacedTool = tuple[Tool, int]


def fit_schemas(
    tools: list[PlacedTool], wire: Wire, losses: Losses, reserved: ParameterCounts = (0, 0)
) -> tuple[list[PlacedTool], dict[str, Lowered]]:
    """Return the tools with fitted schemas, and, by name, the encoding of arguments that change shape."""
    default_dialect = DIALECTS[wire.dialect]
    strict = DIALECTS.get(f"{wire.dialect}_strict") if wire.capabilities.strict else None
    relaxed = frozenset[int]() if strict is None else _select_relaxed(tools, strict, reserved, losses)
    fitted: list[PlacedTool] = []
    lifts: dict[str, Lowered] = {}
    for tool, index in tools:
        if index in relaxed:
            tool = replace(tool, strict=None)
        if not _has_schema(tool, index):
            fitted.append((tool, index))
            continue
        lowered = _try_lower(tool, strict if tool.strict and strict is not None else default_dialect)
        if lowered is None or not lowered.conforms:
            detail = f"its schema cannot be expressed in {default_dialect.name}{_refusal_reason(lowered)}"
            losses.add(f"/tools/{index}", "tool", "dropped", detail, "error")
            continue
        fitted.append((_apply_lowered(tool, lowered, index, lifts, losses), index))
    return fitted, lifts


def _has_schema(tool: Tool, index: int) -> bool:
    return tool.input_schema is not None and tool.kind in ("function", "search") and index >= 0


def _refusal_reason(lowered: Lowered | None) -> str:
    return f" ({lowered.problem})" if lowered is not None and lowered.problem is not None else ""


def _select_relaxed(
    tools: list[PlacedTool], strict: Dialect, reserved: ParameterCounts, losses: Losses
) -> frozenset[int]:
    """Return the tools that lose strictness: those that do not qualify, and as few others as the budget requires."""
    strict_tools = [(tool, index) for tool, index in tools if tool.strict and tool.kind != "freeform" and index >= 0]
    costs: dict[int, ParameterCounts] = {}
    for tool, index in strict_tools:
        lowered = None if tool.input_schema is None else _try_lower(tool, strict)
        if tool.input_schema is not None and (lowered is None or not lowered.conforms):
            detail = f"the schema does not qualify{_refusal_reason(lowered)}; sent without strict"
            losses.add(f"/tools/{index}/strict", "strict", "dropped", detail)
        else:
            costs[index] = _parameter_counts(lowered, strict)
    limits = (strict.optional_parameters or 0, strict.union_parameters or 0)
    left = (max(limits[0] - reserved[0], 0), max(limits[1] - reserved[1], 0))
    indices = tuple(costs)
    kept = {indices[number] for number in select_affordable(tuple(costs.values()), left, strict.strict_tools)}
    for index in sorted(costs.keys() - kept):
        detail = (
            f"at most {strict.strict_tools} strict tools, {limits[0]} optional parameters "
            f"and {limits[1]} unions per request"
        )
        losses.add(f"/tools/{index}/strict", "strict", "dropped", detail)
    return frozenset(index for _, index in strict_tools if index not in kept)


def _parameter_counts(lowered: Lowered | None, strict: Dialect) -> ParameterCounts:
    return (0, 0) if lowered is None or strict.optional_parameters is None else parameter_counts(lowered.schema)


def _try_lower(tool: Tool, dialect: Dialect) -> Lowered | None:
    try:
        return lower(tool.input_schema, dialect)
    except (EncodeError, RecursionError):
        return None


def _apply_lowered(tool: Tool, lowered: Lowered, index: int, lifts: dict[str, Lowered], losses: Losses) -> Tool:
    """Return the tool with its lowered schema; record in `lifts` that its arguments must be converted back."""
    if lowered.unchanged and not lowered.losses:
        return _move_description(tool, lowered.dialect, index, losses)
    path = f"/tools/{index}/input_schema"
    for loss in lowered.losses:
        target = None if loss.target is None else path + loss.target
        losses.extend([replace(loss, path=path + loss.path, target=target)])
    if lowered.schema != tool.input_schema:
        detail = f"converted to the dialect {lowered.dialect.name}"
        losses.add(path, "schema", "rewritten", detail, "info")
    if lowered.changes_arguments:
        lifts[tool.name] = lowered
    return _move_description(replace(tool, input_schema=lowered.schema), lowered.dialect, index, losses)


def _move_description(tool: Tool, dialect: Dialect, index: int, losses: Losses) -> Tool:
    """Move or drop the description of the parameters object, on a wire whose server does not read it."""
    schema = tool.input_schema
    if dialect.root_description or schema is None or not isinstance(schema.get("description"), str):
        return tool
    description = schema["description"]
    path, concept = f"/tools/{index}/input_schema/description", "description of the parameters"
    if tool.description:
        losses.add(
            path, concept, "dropped", "the server does not read it, and the tool has its own description", "info"
        )
    else:
        losses.add(path, concept, "moved", "moved to the tool, because the server does not read it here", "info")
    rest = {key: value for key, value in schema.items() if key != "description"}
    return replace(tool, description=tool.description or description, input_schema=rest)
