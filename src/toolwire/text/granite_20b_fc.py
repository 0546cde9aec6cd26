"""Calls of Granite 20B function calling: a tag in front, none behind.

<function_call> {"name": "f", "arguments": {}}
"""

from __future__ import annotations

from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="granite_20b_fc",
    title="JSON object behind <function_call>",
    families=("granite-20b-functioncalling*",),
    calls=JsonCalls(("<function_call>",), pad=(" ", "")),
    noise=("<|endoftext|>",),
)
