"""Calls of Hunyuan: as `glm45`, with a separator after the name and a section around the calls.

<tool_calls><tool_call>f<tool_sep><arg_key>a</arg_key><arg_value>1</arg_value></tool_call></tool_calls>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.tag_families import arg_pairs

__all__ = ["FORMAT"]

FORMAT = Format(
    name="hunyuan",
    title="<arg_key> and <arg_value> in <tool_calls>",
    families=("*hunyuan*", "*hy3*", "*hy-v3*"),
    calls=arg_pairs(head_end="<tool_sep>", line="", section="tool_calls"),
    noise=("<|hy_eos|>",),
)
