"""Calls of K2 Horizon: as `glm45` with its own tags, an optional type before a value, or a JSON object in a call.

<ifm|tool_calls>
<ifm|tool_call>f
<ifm|arg_key>a</ifm|arg_key>
<ifm|arg_type>integer</ifm|arg_type>
<ifm|arg_value>1</ifm|arg_value>
</ifm|tool_call>
</ifm|tool_calls>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.tagged_calls import TaggedCalls

__all__ = ["K2_HORIZON"]

K2_HORIZON = Format(
    name="k2_horizon",
    title="<ifm|arg_key> and <ifm|arg_value> in <ifm|tool_calls>",
    families=("*k2-horizon*",),
    calls=TaggedCalls(
        "<ifm|tool_call>",
        "</ifm|tool_call>",
        "<ifm|arg_key>",
        "</ifm|arg_value>",
        value_open="<ifm|arg_value>",
        key_end="</ifm|arg_key>",
        head_end="\n",
        section_open="<ifm|tool_calls>",
        section_close="</ifm|tool_calls>",
        type_tags=("<ifm|arg_type>", "</ifm|arg_type>"),
        json_body=True,
    ),
    reasoning=(
        ("<ifm|think>", "</ifm|think>"),
        ("<ifm|think_fast>", "</ifm|think_fast>"),
        ("<ifm|think_faster>", "</ifm|think_faster>"),
    ),
    noise=("<|ifm|im_end|>",),
    results=ResultTemplate("{content}", role="tool"),
)
