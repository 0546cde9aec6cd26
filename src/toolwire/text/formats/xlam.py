"""Calls of xLAM 2: an array, bare or in the tags of the base model's format.

[{"name": "f", "arguments": {}}]
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["XLAM"]

XLAM = Format(
    name="xlam",
    title="bare JSON array",
    families=("*xlam*", "hammer*"),  # Hammer: the handler of BFCL (ShishirPatil/gorilla), an array in a code block
    calls=JsonCalls(
        ("```json\n", "[TOOL_CALLS]", "<tool_call>"),
        ("```", "</tool_call>"),
        array=True,
        bare=("[",),
        write_open=False,
    ),
    noise=("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"),
)
