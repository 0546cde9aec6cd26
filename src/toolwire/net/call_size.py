"""Recognise calls with arguments so large that checking and repairing them would delay the event loop.

Separate because it is a pure function of a call, without the threads of the runner.
"""

from __future__ import annotations

from ..ir.parts import ToolCall
from ..ir.pointer import JSON

__all__ = ["is_large"]

_MAX_VALUES = 1000
_MAX_CHARACTERS = 32 * 1024  # of all strings, or of arguments that could not be parsed


def is_large(call: ToolCall) -> bool:
    """Return True for many values or much text. The cost is bounded, whatever the arguments are."""
    raw = call.raw
    if raw is not None and len(raw) <= _MAX_VALUES:
        return False  # a text of 1,000 characters has fewer than 1,000 values
    if call.arguments is None:
        return len(raw or "") > _MAX_CHARACTERS
    values, characters = 0, 0
    containers: list[JSON] = [call.arguments]
    while containers:
        container = containers.pop()
        values += len(container)
        if values > _MAX_VALUES:
            return True
        if isinstance(container, dict):
            characters += sum(map(len, container))
            container = container.values()
        for value in container:
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, (dict, list)):
                containers.append(value)
    return characters > _MAX_CHARACTERS
