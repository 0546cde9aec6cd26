"""Calls of Trinity: as in `hermes`; the model also calls inside its reasoning, and continues it after the call.

<think>I need the weather. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call></think>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["TRINITY"]

TRINITY = Format(
    name="trinity",
    title="JSON object in <tool_call> tags, also inside reasoning",
    families=("*trinity*",),
    calls=JsonCalls(("<tool_call>",), ("</tool_call>",), pad=("\n", "\n")),
    calls_in_reasoning=True,
    noise=("<|im_end|>", "<|end_of_text|>", "<|endoftext|>"),
    halts=("<tool_response>",),
)
