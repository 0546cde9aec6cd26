"""Calls of Gemma models."""

from __future__ import annotations

from ..engine.format import Format
from ..engine.literal import LiteralSyntax
from ..engine.prompt import ResultTemplate
from ..styles.literal_calls import LiteralCalls

__all__ = ["FUNCTIONGEMMA", "GEMMA4"]

FUNCTIONGEMMA = Format(
    name="functiongemma",
    title="call:name{…} between <start_function_call> and <end_function_call>",
    families=("*functiongemma*",),
    calls=LiteralCalls(
        "<start_function_call>",
        "<end_function_call>",
        language=LiteralSyntax(("<escape>", '"'), escapes=False, bare_words=True),
    ),
    noise=("<end_of_turn>", "<eos>"),
    halts=("<start_function_response>",),
    results=ResultTemplate(
        "<start_function_response>response:{name}{value:<escape>{content}<escape>}<end_function_response>", role="tool"
    ),
)
"""Calls of FunctionGemma: as `gemma4`, with other tokens.

<start_function_call>call:f{a:<escape>x<escape>}<end_function_call>
"""

GEMMA4 = Format(
    name="gemma4",
    title="call:name{…} between <|tool_call> and <tool_call|>",
    families=("*gemma-4-*", "gemma-4", "*gemma4*"),
    calls=LiteralCalls("<|tool_call>", "<tool_call|>"),
    reasoning=(
        ("<|channel>thought\n", "<channel|>"),
        ("<|channel>thought", "<channel|>"),
        ("<|channel>", "<channel|>"),
        ("thought\n", "<channel|>"),  # a model may leave out the first token
    ),
    noise=("<turn|>", "<tool_call|>", "<eos>"),
    halts=("<|tool_response>",),
    results=ResultTemplate('<|tool_response>response:{name}{value:<|"|>{content}<|"|>}<tool_response|>', role="tool"),
)
"""Calls of Gemma 4: a literal with its own quotes.

<|tool_call>call:f{a:<|"|>x<|"|>,n:1}<tool_call|>
"""
