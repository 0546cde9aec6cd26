"""Calls of LongCat-Flash: as in `hermes`, with its own tags.

<longcat_tool_call>{"name": "f", "arguments": {}}</longcat_tool_call>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["LONGCAT"]

LONGCAT = Format(
    name="longcat",
    title="JSON object in <longcat_tool_call> tags",
    families=("longcat*",),
    calls=JsonCalls(("<longcat_tool_call>",), ("</longcat_tool_call>",), pad=("\n", "\n")),
    reasoning=(("<longcat_think>", "</longcat_think>"), ("<think>", "</think>")),
    noise=("</longcat_s>",),
)
