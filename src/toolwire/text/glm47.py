"""Calls of GLM 4.7 and Ling 3: as `glm45`, without line breaks.

<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.prompt import ResultTemplate
from .engine.tag_families import arg_pairs

__all__ = ["FORMAT"]

FORMAT = Format(
    name="glm47",
    title="<arg_key> and <arg_value> in <tool_call>, on one line",
    families=("*glm-4.7*", "*glm-5*", "*ling-3*", "*ling3*"),
    calls=arg_pairs(line=""),
    noise=("<|user|>", "<|endoftext|>"),
    halts=("<|observation|>", "<tool_response>"),
    results=ResultTemplate("<|observation|><tool_response>{content}</tool_response>", role="tool"),
)
