"""Calls of Gemma 4: a literal with its own quotes.

<|tool_call>call:f{a:<|"|>x<|"|>,n:1}<tool_call|>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.literal_calls import LiteralCalls
from .engine.prompt import ResultTemplate

__all__ = ["FORMAT"]

FORMAT = Format(
    name="gemma4",
    title="call:name{…} between <|tool_call> and <tool_call|>",
    families=("*gemma-4*", "*gemma4*"),
    calls=LiteralCalls("<|tool_call>", "<tool_call|>"),
    reasoning=(("<|channel>thought\n", "<channel|>"), ("<|channel>", "<channel|>")),
    noise=("<turn|>", "<channel|>", "<tool_call|>"),
    halts=("<|tool_response>",),
    results=ResultTemplate("<|tool_response>response:{name}{value:{content}}<tool_response|>", role="tool"),
)
