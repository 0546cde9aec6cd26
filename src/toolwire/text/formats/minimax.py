"""Calls of MiniMax models."""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.json_calls import JsonCalls
from ..styles.nested_calls import NestedCalls
from ..styles.tag_families import invocations

__all__ = ["MINIMAX_M1", "MINIMAX_M2", "MINIMAX_M3"]

MINIMAX_M1 = Format(
    name="minimax_m1",
    title="JSON objects, one per line, in <tool_calls> tags",
    families=("*minimax-m1*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), pad=("\n", "\n"), shared_tags=True),
    noise=("<end_of_sentence>",),
    results=ResultTemplate("tool name: {name}\ntool result: {content}", role="tool"),
)
"""Calls of MiniMax M1: all calls of a turn in one pair of tags.

<tool_calls>
{"name": "f", "arguments": {}}
{"name": "g", "arguments": {}}
</tool_calls>
"""

MINIMAX_M2 = Format(
    name="minimax_m2",
    title="<invoke> in <minimax:tool_call>",
    families=("*minimax-m2*",),
    calls=invocations("<minimax:tool_call>", "</minimax:tool_call>"),
    noise=("[e~[",),
    results=ResultTemplate("<response>{content}</response>", role="tool"),
)
"""Calls of MiniMax M2: invocations in a section.

<minimax:tool_call>
<invoke name="f">
<parameter name="a">1</parameter>
</invoke>
</minimax:tool_call>
"""

MINIMAX_M3 = Format(
    name="minimax_m3",
    title="nested tags named after their keys",
    families=("*minimax-m3*",),
    calls=NestedCalls("]<]minimax[>["),
    reasoning=(("<mm:think>", "</mm:think>"), ("<think>", "</think>")),
    noise=("[e~[",),
    results=ResultTemplate("<response>{content}</response>", role="tool"),
)
"""Calls of MiniMax M3: nested tags named after their keys, each after its own token.

]<]minimax[>[<tool_call>]<]minimax[>[<invoke
name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>
"""
