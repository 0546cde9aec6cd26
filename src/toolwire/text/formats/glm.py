"""Calls of GLM models."""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.tag_families import arg_pairs

__all__ = ["GLM45", "GLM47"]

GLM45 = Format(
    name="glm45",
    title="<arg_key> and <arg_value> in <tool_call>",
    families=("*glm-4.5*", "*glm-4.6*", "*glm4.5*", "*glm4.6*", "glyph*", "ring-2.6*"),
    calls=arg_pairs(),
    noise=("<|user|>", "<|endoftext|>", "<|assistant|>", "<|observation|>"),
    halts=("<|observation|>", "<tool_response>"),
    results=ResultTemplate("<|observation|>\n<tool_response>\n{content}\n</tool_response>", role="tool"),
)
"""Calls of GLM 4.5 and 4.6: the name on the first line, then keys and values.

<tool_call>f
<arg_key>a</arg_key>
<arg_value>1</arg_value>
</tool_call>
"""

GLM47 = Format(
    name="glm47",
    title="<arg_key> and <arg_value> in <tool_call>, on one line",
    families=("*glm-4.7*", "*glm4.7*", "*glm-5*", "*ling-3*", "*ling3*", "*spark2.5*", "*spark-2.5*"),
    calls=arg_pairs(line=""),
    noise=("<|user|>", "<|endoftext|>", "<|role_end|>", "<|assistant|>", "<|observation|>", "<｜end▁of▁sentence｜>"),
    halts=("<|observation|>", "<tool_response>"),
    results=ResultTemplate("<|observation|><tool_response>{content}</tool_response>", role="tool"),
)
"""Calls of GLM 4.7, Ling 3 and Spark 2.5: as `glm45`, without line breaks.

<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
"""
