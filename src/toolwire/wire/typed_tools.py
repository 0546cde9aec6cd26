"""Typed tools: a provider's API defines their names, arguments and results, and the client runs them.

A declaration names only the type, such as `bash_20250124` or `apply_patch`. It is a Tool of the kind "typed", with the
declaration in `extra` and with the description and the schema by which another provider's model can use it as a function.
Each wire that has such tools has one table of them (`typed_tools.py` in its folder). The texts and schemas are ours.

    own wire      the declaration and all items pass unchanged; in a conversation the items are opaque
    other wires   the tool is a function; its calls and results in the history are calls and results of the function,
                  and calls in the answer are returned as the items that the client knows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..ir.parts import Opaque, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.tools import Tool
from ..ir.value import Value

FitArguments: TypeAlias = Callable[[Object], Object | None]
"""Return the arguments of a call as the client's item holds them, or None if no item can hold them."""


class TypedCodec(Value, frozen=True, kw_only=True, eq=False):
    """The typed tools of one wire."""

    as_function: Callable[[Tool], Tool]
    """Return the function for a typed tool; its `extra` has the fields of the declaration that the function lacks."""
    read_part: Callable[[Opaque], ToolCall | ToolResult | None] | None = None
    """Return the call of the function, or its result, for an item of the wire, or None for any other item.

    None: calls and results of the typed tools have the form of any other call.
    """
    read_call: Callable[[ToolCall], ToolCall | None] | None = None
    """Return the call of the function for a call in a form of its own, or None for any other call."""
    fit_item: Callable[[Tool], FitArguments | None]
    """Return the conversion of arguments for a tool whose calls have a form of their own, or None for any other tool."""


def text(description: str) -> Object:
    return {"type": "string", "description": description}


def integer(description: str) -> Object:
    return {"type": "integer", "description": description}


def choice(values: Sequence[str], description: str) -> Object:
    return {"type": "string", "enum": [*values], "description": description}


def array(items: Object, description: str) -> Object:
    return {"type": "array", "items": items, "description": description}


# No bounds on lists, and no maps: several dialects of schemas lack them, which would be a loss in each request.


def closed(properties: Object, *required: str) -> Object:
    """Return the schema of an object without other properties."""
    return {
        "type": "object",
        "properties": properties,
        **({"required": [*required]} if required else {}),
        "additionalProperties": False,
    }
