"""Calls of Ling 3: as `glm45`, without line breaks.

<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
"""

from __future__ import annotations

from .engine.declare import Results
from .engine.format import Format
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="ling3",
    title="<arg_key> and <arg_value> in <tool_call>, on one line",
    families=("*ling-3*", "*ling3*"),
    calls=TaggedCalls(
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_value>",
        value_open="<arg_value>",
        key_end="</arg_key>",
        head_end="\n",
        line="",
    ),
    noise=("<|user|>", "<|endoftext|>"),
    halts=("<|observation|>", "<tool_response>"),
    results=Results("<|observation|><tool_response>{content}</tool_response>", role="tool"),
)
