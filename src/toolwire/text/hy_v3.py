"""Calls of Hunyuan 3: as `glm45`, with a separator behind the name and a section around.

<tool_calls><tool_call>f<tool_sep><arg_key>a</arg_key><arg_value>1</arg_value></tool_call></tool_calls>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="hy_v3",
    title="<arg_key> and <arg_value> in <tool_calls>",
    families=("*hunyuan-3*", "*hy3*", "*hy-v3*"),
    calls=TaggedCalls(
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_value>",
        value_open="<arg_value>",
        key_end="</arg_key>",
        head_end="<tool_sep>",
        section_open="<tool_calls>",
        section_close="</tool_calls>",
        line="",
    ),
    noise=("<|hy_eos|>",),
)
