"""Calls of Granite 3: an array after a token, or bare.

<|tool_call|>[{"name": "f", "arguments": {}}]
"""

from __future__ import annotations

from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="granite3",
    title="JSON array after <|tool_call|>",
    families=("granite-3*", "granite3*"),
    calls=JsonCalls(("<|tool_call|>", "<tool_call>"), (), array=True, bare=("[",)),
    noise=("<|end_of_text|>",),
)
