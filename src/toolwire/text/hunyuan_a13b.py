"""Calls of Hunyuan A13B: an array in tags.

<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="hunyuan_a13b",
    title="JSON array in <tool_calls> tags",
    families=("*hunyuan-a13b*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True),
    noise=("<answer>", "</answer>"),
)
