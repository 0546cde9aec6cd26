"""Write JSON as chat templates do: on one line, with a space after each comma and colon."""

from __future__ import annotations

import msgspec

from ...ir.parts import ToolCall
from ...ir.pointer import JSON
from ...ir.text import to_bytes

__all__ = ["write_arguments", "write_json"]


def write_json(value: JSON) -> str:
    """Encode a value as chat templates do (`tojson`); models were trained on this spacing."""
    return msgspec.json.format(to_bytes(value), indent=0).decode()


def write_arguments(call: ToolCall) -> str:
    """Write the arguments of a call; those that are not an object are written as the model wrote them."""
    return call.text if call.arguments is None else write_json(call.arguments)
