"""Fit the schemas of a request to the target: tool schemas and the required form of the answer.

A schema is lowered into the target's dialect, or the tool is dropped. A form of the answer that the target cannot
enforce is stated in the instructions.

Providers limit all strict tools of a request together. As few tools as possible become non-strict: each tool costs
optional parameters and unions, and the request has a maximum of each. The choice of tools is a knapsack with small
numbers: exact, over all reachable sums.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from ...ir.errors import EncodeError
from ...ir.losses import Losses
from ...ir.parts import Text
from ...ir.pointer import JSON, join
from ...ir.request import Message, OutputFormat, Request
from ...ir.text import dumps
from ...ir.tools import Tool
from ...schema.dialects import DIALECTS, Dialect, output_dialect
from ...schema.lowering.conformance import parameter_counts
from ...schema.lowering.lowered import Lowered, lower
from ...wire.codec import WireCodec
from ...wire.models.capabilities import UNKNOWN_MODEL, ModelCapabilities
from ...wire.models.profiles import fit_codec
from ...wire.protocol import Capabilities, Wire
from ..conversation.history import DraftMessage, message_locations
from ..conversation.names import NameMap

ParameterCounts: TypeAlias = tuple[int, int]


def select_affordable(
    costs: tuple[ParameterCounts, ...], limits: ParameterCounts, count: int | None
) -> tuple[int, ...]:
    """Return the indices of as many tools as fit `limits` and `count`; among equal choices, the first ones.

    >>> select_affordable(((5, 0), (20, 0), (10, 0)), (24, 16), 20)
    (0, 2)
    """
    return (_select_cached if len(costs) <= _MAX_CACHED else _select)(costs, limits, count)


def _select(costs: tuple[ParameterCounts, ...], limits: ParameterCounts, count: int | None) -> tuple[int, ...]:
    """Return the indices for `select_affordable`: keep the longest choice for each reachable sum of costs."""
    max_count = len(costs) if count is None else min(count, len(costs))
    if max_count == len(costs) and _sum(costs, 0) <= limits[0] and _sum(costs, 1) <= limits[1]:
        return tuple(range(max_count))
    best_by_sum: dict[ParameterCounts, tuple[int, ...]] = {(0, 0): ()}
    best: tuple[int, ...] = ()
    for number, (optional, unions) in enumerate(costs):
        if len(best) == max_count:
            break
        for (spent, joined), chosen in list(best_by_sum.items()):
            after = spent + optional, joined + unions
            if after[0] <= limits[0] and after[1] <= limits[1] and len(chosen) >= len(best_by_sum.get(after, ())):
                best_by_sum[after] = (*chosen, number)
                best = max(best, best_by_sum[after], key=len)
    return best


_MAX_CACHED = 256  # tools; the number of entries is no bound for the memory of longer lists
_select_cached = lru_cache(256)(_select)


def _sum(costs: tuple[ParameterCounts, ...], part: int) -> int:
    return sum(cost[part] for cost in costs)


# Fit tool schemas to the target: lower them into its dialect, keep within its budgets, or drop the tool.
#
# `strict` is set only if the result qualifies. Limits for a whole request (strict tools, optional parameters, unions)
# are met by removing strictness from as few tools as possible. A tool that cannot be fitted at all is dropped; the
# others are sent.


PlacedTool = tuple[Tool, int]


def fit_schemas(
    tools: list[PlacedTool], wire: Wire, losses: Losses, reserved: ParameterCounts = (0, 0)
) -> tuple[list[PlacedTool], dict[str, Lowered]]:
    """Return the tools with fitted schemas, and, by name, the encoding of arguments that change shape.

    A tool whose schema cannot be expressed is dropped, with a loss. `reserved` is the part of the budget for strict
    schemas that is already used.
    """
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
    # a negative index is a bare declaration for calls in the history
    return tool.input_schema is not None and tool.kind in ("function", "search") and index >= 0


def _refusal_reason(lowered: Lowered | None) -> str:
    return f" ({lowered.problem})" if lowered is not None and lowered.problem is not None else ""


def _select_relaxed(
    tools: list[PlacedTool], strict: Dialect, reserved: ParameterCounts, losses: Losses
) -> frozenset[int]:
    """Return the indices of tools that lose strictness, each with a loss.

    These are the tools that do not qualify, and as few others as the budget requires.
    """
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
    """Return the tool with its lowered schema and report its losses.

    `lifts` gets the schema if the arguments of calls must be converted back.
    """
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
    other_keywords = {key: value for key, value in schema.items() if key != "description"}
    return replace(tool, description=tool.description or description, input_schema=other_keywords)


# Fit the required form of the answer to the target: lower its schema, or state it in the instructions.
#
# The answer is lifted back (`restoration.output`), so the client receives JSON of the schema that it sent. Earlier answers
# in the conversation are text of the client, and stay as they are: they need not match the schema of this request.
#
# A schema that the target cannot enforce, or a form that it does not have, is stated in the instructions instead: the
# model sees it, and nothing is rejected.


_SCHEMA = join("output", "schema")
_NAME_LENGTH = 64  # of an output format on OpenAI's wires, the only ones that have names


class FittedOutput(NamedTuple):
    """The form to send, the encoding of an answer that changes shape, and instructions for the model."""

    output: OutputFormat | None
    lowered: Lowered | None = None
    instructions: str | None = None
    costs: ParameterCounts = (0, 0)
    """Optional parameters and unions, which count together with the strict tools'."""


FREE_OUTPUT = FittedOutput(None)
"""No form of the answer is required."""


def fit_output(request: Request, wire: Wire, losses: Losses) -> FittedOutput:
    """Return the form of the answer that the target accepts; a weaker form is stated in the instructions."""
    output, can = request.output, wire.capabilities
    if output is None or output.kind == "text":
        return FittedOutput(output)
    if request.tools and not can.output_with_tools:
        return _state_form(output, None, "the target does not accept it in a request with tools", losses)
    if output.kind == "json" or type(output.schema) not in (dict, bool):
        return _fit_json_mode(output, request, can, losses)
    json_mode = OutputFormat("json") if can.json_mode else None
    if not can.output_schemas:
        return _state_form(output, json_mode, "the target has no structured outputs", losses)
    lowered, output = _lower_output(output, wire, losses)
    if lowered is None or not lowered.conforms:
        reason = f"the schema cannot be expressed for the target{_refusal_reason(lowered)}"
        return _state_form(output, json_mode, reason, losses)
    return _apply_lowered_output(output, lowered, wire, losses)


def _fit_json_mode(output: OutputFormat, request: Request, can: Capabilities, losses: Losses) -> FittedOutput:
    """Fit JSON without a schema; some providers reject it unless the conversation mentions JSON."""
    if output.kind == "json_schema":
        losses.add(_SCHEMA, "schema of the answer", "weakened", "there is no schema; any JSON is accepted")
        output = OutputFormat("json")
    if not can.json_mode:
        return _state_form(output, None, "the target has no JSON mode without a schema", losses)
    if not can.json_mention or _mentions_json(request, can.json_mention):
        return FittedOutput(output)
    detail = "the target requires that the conversation mentions JSON; a sentence was added to the instructions"
    losses.add(join("output"), "output format json", "rewritten", detail, "info")
    return FittedOutput(output, instructions=_instructions(output))


def _mentions_json(request: Request, where: str) -> bool:
    """Return whether a text mentions JSON; the first system message is not part of the `input`."""
    messages = request.messages
    if where == "input" and messages and messages[0].role == "system":
        messages = messages[1:]
    texts = (part.text for message in reversed(messages) for part in message.parts if isinstance(part, Text))
    return any("json" in text.lower() for text in texts)


def _state_form(output: OutputFormat, sent: OutputFormat | None, reason: str, losses: Losses) -> FittedOutput:
    """Move the form of the answer to the instructions; `sent` is the weaker form that the target supports."""
    path = _SCHEMA if output.kind == "json_schema" and sent is not None else join("output")
    concept = "schema of the answer" if output.kind == "json_schema" else "output format json"
    losses.add(path, concept, "weakened", f"{reason}; stated in the instructions, not enforced")
    if output.name is not None:
        losses.add(join("output", "name"), "output name", "dropped", "instructions have no name", "info")
    return FittedOutput(sent, instructions=_instructions(output))


def _instructions(output: OutputFormat) -> str:
    """Return the instruction for a form of the answer that the target cannot enforce."""
    if output.kind == "json":
        return "Answer only with a JSON object, without any other text."
    description = f"{output.description}\n\n" if output.description else ""
    schema = dumps(output.schema)
    return f"{description}Answer only with JSON that matches this JSON Schema, without any other text:\n{schema}"


def _lower_output(output: OutputFormat, wire: Wire, losses: Losses) -> tuple[Lowered | None, OutputFormat]:
    """Lower the schema; one that does not qualify for strict mode is sent without it, where the target has both."""
    dialect = output_dialect(wire.dialect, strict=output.strict)
    lowered = _try_lower_output(output.schema, dialect)
    relaxed = output_dialect(wire.dialect, strict=None)
    if (lowered is not None and lowered.conforms) or relaxed is dialect:
        return lowered, output
    detail = f"the schema does not qualify{_refusal_reason(lowered)}; sent without strict, not enforced"
    losses.add(join("output", "strict"), "strict", "dropped", detail)
    return _try_lower_output(output.schema, relaxed), replace(output, strict=None)


def _try_lower_output(schema: JSON, dialect: Dialect) -> Lowered | None:
    try:
        return lower(schema, dialect)
    except (EncodeError, RecursionError):
        return None


def _apply_lowered_output(output: OutputFormat, lowered: Lowered, wire: Wire, losses: Losses) -> FittedOutput:
    """Return the form with the lowered schema, a legal name and its costs; changes are added to `losses`."""
    for loss in lowered.losses:
        losses.add(_SCHEMA + loss.path, loss.concept, loss.action, loss.detail, loss.severity)
    limited = lowered.dialect.optional_parameters is not None
    costs = parameter_counts(lowered.schema) if limited else (0, 0)
    if lowered.schema != output.schema:  # an equal one is kept: its wire writes the original back
        losses.add(_SCHEMA, "schema", "rewritten", f"converted to the dialect {lowered.dialect.name}", "info")
        output = replace(output, schema=lowered.schema)
    output = _place_description(_with_legal_name(output, wire, losses), wire.capabilities, losses)
    return FittedOutput(output, lowered if lowered.changes_arguments else None, costs=costs)


def _place_description(output: OutputFormat, can: Capabilities, losses: Losses) -> OutputFormat:
    """Move the description into the schema, on a wire without a field for it."""
    if output.description is None or can.output_descriptions:
        return output
    inner = output.schema.get("description")
    description = f"{output.description}\n\n{inner}" if isinstance(inner, str) and inner else output.description
    losses.add(join("output", "description"), "output description", "moved", "moved into the schema", "info")
    losses.add(_SCHEMA, "schema", "rewritten", "the description of the format is added", "info")
    return replace(output, description=None, schema={**output.schema, "description": description})


def _with_legal_name(output: OutputFormat, wire: Wire, losses: Losses) -> OutputFormat:
    """Return the form with a name that the target accepts, by the rule for tool names."""
    if output.name is None:
        return output
    limits = replace(wire.limits, name_length=min(wire.limits.name_length, _NAME_LENGTH))
    name = NameMap(limits, namespaces=False).to_wire(None, output.name)
    if name == output.name:
        return output
    losses.add(join("output", "name"), "output name", "rewritten", f"renamed to {name!r} on this wire", "info")
    return replace(output, name=name)


def add_instructions(turns: list[DraftMessage], instructions: str, can: Capabilities) -> list[DraftMessage]:
    """Add a text to the system messages at the start of a fitted conversation."""
    text = Text(instructions)
    if can.json_mention == "input":  # a separate message is part of the input, a system message alone is not
        head = next((n for n, turn in enumerate(turns) if turn.message.role not in ("system", "developer")), len(turns))
        return [*turns[:head], _draft("developer", text), *turns[head:]]
    if not turns or turns[0].message.role not in ("system", "developer"):
        return [_draft("system", text), *turns]
    first = turns[0]
    parts = (*first.message.parts, Text(f"\n\n{instructions}"))
    locations = [*first.locations, first.locations[-1] if len(first.locations) else 0]
    return [DraftMessage(replace(first.message, parts=parts), parts, locations), *turns[1:]]


def _draft(role: str, text: Text) -> DraftMessage:
    message = Message("developer" if role == "developer" else "system", (text,))
    return DraftMessage(message, message.parts, message_locations(0, 1))


OutputSupport: TypeAlias = Literal["enforced", "accepted", "stated"]
"""`accepted`: the schema is sent, and the server may ignore it. `stated`: it is only part of the instructions."""


def output_support(request: Request, wire: Wire, capabilities: ModelCapabilities) -> OutputSupport:
    """Return the treatment of the schema in `request.output`, which may depend on the tools of the request."""
    if capabilities is not UNKNOWN_MODEL and isinstance(wire, WireCodec):
        wire = fit_codec(wire, capabilities)
    output = fit_output(request, wire, Losses()).output
    if output is None or output.kind != "json_schema":
        return "stated"
    is_optional = output_dialect(wire.dialect, strict=True) is not output_dialect(wire.dialect, strict=None)
    return "accepted" if is_optional and not output.strict else "enforced"
