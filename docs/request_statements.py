"""The statements of a request, each defined once: docs/wires.md and docs/translation.md are made from them."""

from conversation_statements import CALLS, CONVERSATION
from setting_statements import SETTINGS
from tool_statements import PARAMETERS, TOOLS

__all__ = ["GROUPS", "LOCATED", "STATEMENTS"]

GROUPS = {
    "Conversation": CONVERSATION,
    "Calls and results": CALLS,
    "Parameters of a tool": PARAMETERS,
    "Tools and choice": TOOLS,
    "Settings": SETTINGS,
}
STATEMENTS = [statement for group in GROUPS.values() for statement in group]
# Those that have a field of their own: schemas are JSON Schema on every wire, and an order or an absence has no field.
_NOT_LOCATED = {
    *[statement.name for statement in PARAMETERS],
    "tool without parameters",
    "several calls at once",
    "call.name of 76 characters",
    "call without a result",
    "blank text",
    "129 tools",
    "tool that the client runs, declared by its type",
    "tool.name with a dot",
    "text file, inline",
    "five stop sequences",
    "reasoning.effort minimal",
    "reasoning.effort xhigh",
    "reasoning.effort max",
    "built-in tool",
    "tool search of the provider",
    "field that only one wire has",
}
LOCATED = [statement for statement in STATEMENTS if statement.name not in _NOT_LOCATED]
