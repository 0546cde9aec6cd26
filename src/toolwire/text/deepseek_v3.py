"""Calls of DeepSeek V3, R1 and its distillations: the name, then the arguments in a code block.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
```json
{"a": 1}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.header_calls import HeaderCalls
from .engine.prompt import ResultTemplate

__all__ = ["FORMAT"]

FORMAT = Format(
    name="deepseek_v3",
    title="name and a JSON code block between special tokens",
    families=("*deepseek-v3", "*deepseek-v3-0324*", "*deepseek-chat*", "*deepseek-r1*", "*deepseek-reasoner*"),
    calls=HeaderCalls(
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁call▁begin｜>"),
        ("\n```json\n", "\n```\n", "\r\n```json\r\n"),
        ("\n```<｜tool▁call▁end｜>", "```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        between="\n",
    ),
    noise=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>"),
    halts=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
    results=ResultTemplate("<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>", role="tool"),
)
