"""Calls of Ernie 4.5: as in `hermes`, with the answer in its own tags.

<think>…</think><tool_call>{"name": "f", "arguments": {}}</tool_call><response>…</response>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["ERNIE45"]

ERNIE45 = Format(
    name="ernie45",
    title="JSON object in <tool_call> tags, text in <response> tags",
    families=("ernie-4.5*", "ernie4.5*"),
    calls=JsonCalls(("<tool_call>",), ("</tool_call>",), pad=("\n", "\n")),
    noise=("<response>", "</response>", "</s>", "<|im_end|>"),
    halts=("<tool_output>",),
)
