"""Calls of Hunyuan models."""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.alternative_calls import AlternativeCalls
from ..styles.json_calls import JsonCalls
from ..styles.tag_families import arg_pairs

__all__ = ["HUNYUAN", "HUNYUAN_A13B", "HY3"]

_PLAIN = arg_pairs(head_end="<tool_sep>", line="", section="tool_calls")
_SUFFIXED = arg_pairs(head_end="<tool_sep:opensource>", section="tool_calls", suffix=":opensource")
_NOISE = (
    "<｜hy_eos:opensource｜>",
    "<｜hy_eos｜>",
    "<|hy_eos|>",
    "<｜hy_Assistant:opensource｜>",
    "<｜hy_Assistant｜>",
)
_HALTS = ("<tool_responses:opensource>", "<tool_responses>", "<｜hy_User:opensource｜>", "<｜hy_User｜>")

HUNYUAN = Format(
    name="hunyuan",
    title="<arg_key> and <arg_value> in <tool_calls>",
    families=("*hunyuan*", "*hy3-preview*", "*hy-v3-preview*"),
    calls=AlternativeCalls((_PLAIN, _SUFFIXED)),
    reasoning=(("<think>", "</think>"), ("<think:opensource>", "</think:opensource>")),
    noise=_NOISE,
    halts=_HALTS,
    results=ResultTemplate(
        "<tool_responses>\n<tool_response>\n{content}\n</tool_response>\n</tool_responses>", role="tool"
    ),
)
"""Calls of Hunyuan and Hy3-preview: as `glm45`, with a separator after the name and a section around the calls.

<tool_calls><tool_call>f<tool_sep><arg_key>a</arg_key><arg_value>1</arg_value></tool_call></tool_calls>
"""

HY3 = Format(
    name="hy3",
    title="<arg_key:opensource> and <arg_value:opensource> in <tool_calls:opensource>",
    families=("*hy3*", "*hy-v3*"),
    calls=AlternativeCalls((_SUFFIXED, _PLAIN)),
    reasoning=(("<think:opensource>", "</think:opensource>"), ("<think>", "</think>")),
    noise=_NOISE,
    halts=_HALTS,
    results=ResultTemplate(
        "<tool_responses:opensource>\n<tool_response:opensource>\n{content}\n</tool_response:opensource>\n"
        "</tool_responses:opensource>",
        role="tool",
    ),
)
"""Calls of Hy3 as released: as `hunyuan`, and every tag name ends in `:opensource`.

<tool_calls:opensource>
<tool_call:opensource>f<tool_sep:opensource>
<arg_key:opensource>a</arg_key:opensource>
<arg_value:opensource>1</arg_value:opensource>
</tool_call:opensource>
</tool_calls:opensource>
"""

HUNYUAN_A13B = Format(
    name="hunyuan_a13b",
    title="JSON array in <tool_calls> tags",
    families=("*hunyuan-a13b*",),
    calls=JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=True),
    noise=("<answer>", "</answer>", "<|eos|>", "<|endoftext|>"),
)
"""Calls of Hunyuan A13B: an array in tags.

<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>
"""
