"""Calls of Granite models."""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["GRANITE3", "GRANITE_20B_FC"]

_HERE = ("Here is", "Here's")  # quantised models write the short form

GRANITE3 = Format(
    name="granite3",
    title="JSON array after <|tool_call|>",
    families=("granite-3*", "granite3*"),
    calls=JsonCalls(("<|tool_call|>", "<tool_call>"), (), array=True, bare=("[",)),
    reasoning=(
        *((f"{here} my thought process:", f"{there} my response:") for here in _HERE for there in _HERE),
        ("<think>", "</think>"),
    ),
    noise=("<response>", "</response>", "<|end_of_text|>"),
    citations=(
        ("<|start_of_cite|> {", "}"),
        ("<|start_of_cite|>{", "}"),
        ("<|start_of_cite|>", ""),
        ("<|end_of_cite|>", ""),
    ),
)
"""Calls of Granite 3: an array after a token, or bare.

    <|tool_call|>[{"name": "f", "arguments": {}}]

Granite 3.2 reasons in prose: Here is my thought process: … Here is my response: …
"""

GRANITE_20B_FC = Format(
    name="granite_20b_fc",
    title="JSON object after <function_call>",
    families=("granite-20b-functioncalling*",),
    calls=JsonCalls(("<function_call>",), pad=(" ", "")),
    noise=("<|endoftext|>",),
)
"""Calls of Granite 20B function calling: an opening tag, no closing tag.

<function_call> {"name": "f", "arguments": {}}
"""
