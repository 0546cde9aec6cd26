"""Fit the tool choice to a target and to the tools declared there."""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.errors import EncodeError
from ..ir.losses import Losses, Severity
from ..ir.pointer import join
from ..ir.request import Request
from ..ir.tools import Tool, ToolChoice
from ..wire.protocol import Capabilities

__all__ = ["fit_choice"]


def fit_choice(request: Request, tools: list[tuple[Tool, int]], can: Capabilities, losses: Losses) -> ToolChoice | None:
    """Fit the choice to the target's `tools`, each with its index in the request.

    The index is -1 for a tool that only explains the history.
    """
    choice = request.choice
    if all(index < 0 for _, index in tools):
        fitted = ToolChoice("none") if tools else None
        if choice is not None and choice.mode not in ("auto", fitted and fitted.mode):
            severity: Severity = "info" if choice.mode == "none" else "warning"
            losses.add(join("choice"), "tool choice", "dropped", "no tools are declared", severity)
        return fitted
    if choice is None or choice.mode == "auto":
        return _validate_strict(choice, tools, can, losses)
    if choice.names:
        choice = _restrict_to_declared(request, choice, tools, losses)
    _refuse_forced_thinking(request, choice, can)
    if choice.mode == "allowed" and "allowed" not in can.choices:
        choice = ToolChoice("required" if choice.required else "auto")
    return _nearest_supported(choice, can, losses)


def _nearest_supported(choice: ToolChoice, can: Capabilities, losses: Losses) -> ToolChoice:
    """Return the nearest choice that the target supports."""
    if choice.mode == "allowed" and choice.required and "required" not in can.choices:
        losses.add(join("choice"), "required call", "weakened", "the target or its model does not support it", "error")
        return replace(choice, required=False)
    if choice.mode in can.choices or choice.mode == "validated":
        return choice
    nearest = ToolChoice("required" if choice.mode == "tool" and "required" in can.choices else "auto")
    detail = f"the target or its model does not support it; sent as {nearest.mode}"
    losses.add(join("choice"), f"tool choice {choice.mode}", "weakened", detail, "error")
    return nearest


def _validate_strict(
    choice: ToolChoice | None, tools: list[tuple[Tool, int]], can: Capabilities, losses: Losses
) -> ToolChoice | None:
    """Turn on validation for all tools if one tool is strict and the target has strictness only as a mode."""
    if can.strict or "validated" not in can.choices:
        return choice
    strict = [index for tool, index in tools if tool.strict]
    if not strict:
        return choice
    for index in strict:
        losses.add(
            join("tools", index, "strict"), "strict", "rewritten", "sent as the mode validated, for all tools", "info"
        )
    return ToolChoice("validated")


def _restrict_to_declared(
    request: Request, choice: ToolChoice, tools: list[tuple[Tool, int]], losses: Losses
) -> ToolChoice:
    """Restrict the choice to declared tools, under their names on the target."""
    declared = {request.tools[index].name: tool.name for tool, index in tools}
    kept = [name for name in choice.names if name in declared]
    for name in choice.names:
        if name not in declared:
            losses.add(join("choice"), f"choice of {name}", "dropped", "no tool of this name is declared")
    if not kept:
        return ToolChoice("none" if choice.mode == "allowed" else "auto")
    return replace(choice, names=tuple([declared[name] for name in kept]))


def _refuse_forced_thinking(request: Request, choice: ToolChoice, can: Capabilities) -> None:
    """Raise EncodeError for a forced call with a thinking budget, on a target that refuses the two together."""
    if (
        choice.forces_call
        and not can.forced_with_budget
        and request.reasoning is not None
        and request.reasoning.mode == "budget"
    ):
        raise EncodeError(
            "the target does not allow a forced tool call with a thinking budget",
            pointer=join("choice"),
            hint="use adaptive thinking, or let the model choose",
        )
