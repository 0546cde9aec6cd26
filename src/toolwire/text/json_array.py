"""Calls as a bare array: the result of constrained decoding with any model.

[{"name": "f", "parameters": {}}]
"""

from __future__ import annotations

from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="json_array",
    title="bare JSON array",
    families=(),
    calls=JsonCalls((), (), array=True, bare=("[",)),
)
