"""Calls of Granite 20B function calling: an opening tag, no closing tag.

<function_call> {"name": "f", "arguments": {}}
"""

from __future__ import annotations

from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="granite_20b_fc",
    title="JSON object after <function_call>",
    families=("granite-20b-functioncalling*",),
    calls=JsonCalls(("<function_call>",), pad=(" ", "")),
    noise=("<|endoftext|>",),
)
