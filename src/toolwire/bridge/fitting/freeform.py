"""Fit freeform tools to a target without them: each is a function with one argument, its input."""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.parts import ToolCall
from ...ir.pointer import Object
from ...ir.tools import Tool

WRAPPED_INPUT = "input"
"""The single argument of a freeform tool on a wire without freeform tools."""


def wrap_tool(tool: Tool, path: str, losses: Losses) -> Tool:
    """Convert a freeform tool to a function with one string argument, for a target without freeform tools."""
    argument: Object = {"type": "string"}
    detail = f"sent as a function with one argument, `{WRAPPED_INPUT}`; calls are returned as freeform calls"
    losses.add(path, "freeform tool", "rewritten", detail, "info")
    if tool.grammar is not None:
        argument["description"] = f"Must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}"
        losses.add(f"{path}/grammar", "grammar", "weakened", "sent in the description, not enforced")
    schema = {
        "type": "object",
        "properties": {WRAPPED_INPUT: argument},
        "required": [WRAPPED_INPUT],
        "additionalProperties": False,
    }
    return replace(tool, kind="function", input_schema=schema, grammar=None)


def wrap_freeform(call: ToolCall) -> ToolCall:
    """Convert a freeform call to a call of the function that replaces its tool."""
    return replace(call, kind="function", arguments={WRAPPED_INPUT: call.raw or ""}, raw=None)
