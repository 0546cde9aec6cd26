"""Calls of LFM 2 and 2.5: a list of Python calls between tokens; JSON is accepted too.

The template of LFM 2.5 writes strings in single quotes and escapes nothing, so quotes inside strings are read as well.
Servers that drop special tokens leave only the list.

<|tool_call_start|>[f(a="x")]<|tool_call_end|>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.literal import RAW_PYTHON
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.pythonic_calls import PythonicCalls

__all__ = ["LFM2"]

LFM2 = Format(
    name="lfm2",
    title="list of Python calls between <|tool_call_start|> and <|tool_call_end|>",
    families=("*lfm2*",),
    calls=PythonicCalls(
        open=("<|tool_call_start|>",), close=("<|tool_call_end|>",), bare_start=True, json=True, values=RAW_PYTHON
    ),
    noise=("<|im_end|>", "<|tool_call_end|>", "<|endoftext|>"),
    halts=("<|tool_response_start|>",),
    declare=ToolPrompt(
        "List of tools: <|tool_list_start|>[", "]<|tool_list_end|>", entry="function", join=", ", explain=False
    ),
    results=ResultTemplate("<|tool_response_start|>{content}<|tool_response_end|>", role="tool"),
)
