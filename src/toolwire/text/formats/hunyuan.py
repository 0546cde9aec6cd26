"""Calls of Hunyuan models."""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls
from ..styles.tag_families import arg_pairs

__all__ = ["HUNYUAN", "HUNYUAN_A13B"]

HUNYUAN = Format(
    name="hunyuan",
    title="<arg_key> and <arg_value> in <tool_calls>",
    families=("*hunyuan*", "*hy3*", "*hy-v3*"),
    calls=arg_pairs(head_end="<tool_sep>", line="", section="tool_calls"),
    noise=("<|hy_eos|>",),
)
"""Calls of Hunyuan: as `glm45`, with a separator after the name and a section around the calls.

<tool_calls><tool_call>f<tool_sep><arg_key>a</arg_key><arg_value>1</arg_value></tool_call></tool_calls>
"""

HUNYUAN_A13B = Format(
    name="hunyuan_a13b",
    title="JSON array in <tool_calls> tags",
    families=("*hunyuan-a13b*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True),
    noise=("<answer>", "</answer>"),
)
"""Calls of Hunyuan A13B: an array in tags.

<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>
"""
