"""Calls of Nemotron Nano v2: an array in tags.

<TOOLCALL>[{"name": "f", "arguments": {}}]</TOOLCALL>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.json_calls import JsonCalls

__all__ = ["NEMOTRON_V2"]

NEMOTRON_V2 = Format(
    name="nemotron_v2",
    title="JSON array in <TOOLCALL> tags",
    families=(
        "*nemotron-nano*v2*",
        "*nemotron-nano-2*",
        "*nemotron-nano*v1*",
        "*nemotron-super*v1*",
        "*nemotron-ultra*v1*",
    ),
    calls=JsonCalls(("<TOOLCALL>",), ("</TOOLCALL>",), array=True),
    noise=("<SPECIAL_12>", "<SPECIAL_11>", "</s>"),
    results=ResultTemplate("<TOOL_RESPONSE>[{content}]</TOOL_RESPONSE>"),
)
