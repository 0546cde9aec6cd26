"""Fit the required form of the answer to the target: lower its schema, or state it in the instructions.

The answer is lifted back (lift_output.py), so the client receives JSON of the schema that it sent. Earlier answers in
the conversation are text of the client, and stay as they are: they need not match the schema of this request.

A schema that the target cannot enforce, or a form that it does not have, is stated in the instructions instead: the
model sees it, and nothing is rejected.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from ..ir.errors import EncodeError
from ..ir.losses import Losses
from ..ir.parts import Text
from ..ir.pointer import JSON, join
from ..ir.request import Message, OutputFormat, Request
from ..ir.text import dumps
from ..schema.dialects import Dialect, output_dialect
from ..schema.lowering.conformance import parameter_counts
from ..schema.lowering.lowered import Lowered, lower
from ..wire.protocol import Capabilities, Wire
from .budget import ParameterCounts
from .history import DraftMessage
from .locations import message_locations
from .names import NameMap

__all__ = ["FittedOutput", "add_instructions", "fit_output"]

_SCHEMA = join("output", "schema")
_NAME_LENGTH = 64  # of an output format on OpenAI's wires, the only ones that have names


class FittedOutput(NamedTuple):
    """The form to send, the encoding of an answer that changes shape, and instructions for the model."""

    output: OutputFormat | None
    lowered: Lowered | None = None
    instructions: str | None = None
    costs: ParameterCounts = (0, 0)
    """Optional parameters and unions, which count with those of strict tools."""


def fit_output(request: Request, wire: Wire, losses: Losses) -> FittedOutput:
    """Return the form of the answer that the target accepts."""
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
        reason = f"the schema cannot be expressed for the target{_problem(lowered)}"
        return _state_form(output, json_mode, reason, losses)
    return _apply_lowered(output, lowered, wire, losses)


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
    path = _SCHEMA if output.kind == "json_schema" else join("output")
    concept = "schema of the answer" if output.kind == "json_schema" else "output format json"
    losses.add(path, concept, "weakened", f"{reason}; stated in the instructions, not enforced")
    if output.name is not None:
        losses.add(join("output", "name"), "output name", "dropped", "instructions have no name", "info")
    return FittedOutput(sent, instructions=_instructions(output))


def _instructions(output: OutputFormat) -> str:
    if output.kind == "json":
        return "Answer only with a JSON object, without any other text."
    description = f"{output.description}\n\n" if output.description else ""
    schema = dumps(output.schema)
    return f"{description}Answer only with JSON that matches this JSON Schema, without any other text:\n{schema}"


def _lower_output(output: OutputFormat, wire: Wire, losses: Losses) -> tuple[Lowered | None, OutputFormat]:
    """Lower the schema; one that does not qualify for strict mode is sent without it, where the target has both."""
    dialect = output_dialect(wire.dialect, strict=output.strict)
    lowered = _try_lower(output.schema, dialect)
    relaxed = output_dialect(wire.dialect, strict=None)
    if (lowered is not None and lowered.conforms) or relaxed is dialect:
        return lowered, output
    detail = f"the schema does not qualify{_problem(lowered)}; sent without strict, not enforced"
    losses.add(join("output", "strict"), "strict", "dropped", detail)
    return _try_lower(output.schema, relaxed), replace(output, strict=None)


def _try_lower(schema: JSON, dialect: Dialect) -> Lowered | None:
    try:
        return lower(schema, dialect)
    except (EncodeError, RecursionError):
        return None


def _problem(lowered: Lowered | None) -> str:
    return f" ({lowered.problem})" if lowered is not None and lowered.problem is not None else ""


def _apply_lowered(output: OutputFormat, lowered: Lowered, wire: Wire, losses: Losses) -> FittedOutput:
    """Return the form with the lowered schema and a legal name."""
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
    """Return the form with a name that the target accepts; the rule is that for the names of tools."""
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
