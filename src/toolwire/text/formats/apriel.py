"""Calls of Apriel 1.5 and 1.6: an array in tags, after reasoning in prose that the prompt may open.

Here are my reasoning steps: … [BEGIN FINAL RESPONSE]
<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["APRIEL"]

APRIEL = Format(
    name="apriel",
    title="JSON array in <tool_calls> tags",
    families=("*apriel*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True),
    reasoning=(("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"), ("<think>", "</think>")),
    noise=("[END FINAL RESPONSE]", "<|end|>"),
)
