"""Calls of DeepSeek V3.1: the name, then the arguments.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.header_calls import HeaderCalls
from .engine.prompt import ResultTemplate, ToolPrompt

__all__ = ["FORMAT"]

FORMAT = Format(
    name="deepseek_v31",
    title="name and JSON between special tokens",
    families=("*deepseek-v3.1*", "*deepseek-v3.2-exp*", "*deepseek-v3-1*"),
    calls=HeaderCalls(
        ("<｜tool▁call▁begin｜>",),
        ("<｜tool▁sep｜>",),
        ("<｜tool▁call▁end｜>",),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
    ),
    noise=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>"),
    halts=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
    declare=ToolPrompt("## Tools\n\nYou have access to the following tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>", role="tool"),
)
