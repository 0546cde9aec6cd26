"""Calls of FunctionGemma: as `gemma4`, with other tokens.

<start_function_call>call:f{a:<escape>x<escape>}<end_function_call>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.literal import LiteralSyntax
from .engine.literal_calls import LiteralCalls
from .engine.prompt import ResultTemplate

__all__ = ["FORMAT"]

FORMAT = Format(
    name="functiongemma",
    title="call:name{…} between <start_function_call> and <end_function_call>",
    families=("*functiongemma*",),
    calls=LiteralCalls(
        "<start_function_call>",
        "<end_function_call>",
        language=LiteralSyntax(("<escape>", '"'), escapes=False, bare_words=True),
    ),
    noise=("<end_of_turn>",),
    halts=("<start_function_response>",),
    results=ResultTemplate(
        "<start_function_response>response:{name}{value:<escape>{content}<escape>}<end_function_response>", role="tool"
    ),
)
