"""Calls of Jamba 1.5: an array in tags.

<tool_calls>[
    {"name": "f", "arguments": {}}
]</tool_calls>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["JAMBA"]

JAMBA = Format(
    name="jamba",
    title="JSON array in <tool_calls> tags",
    families=("*jamba*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True, layout=("[\n    ", ",\n    ", "\n]")),
    noise=("<|eom|>", "<|endoftext|>"),
)
