"""Formats that write keys and values in separate tags after the name.

<tool_call>f
<arg_key>a</arg_key>
<arg_value>1</arg_value>
</tool_call>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.alternative_calls import AlternativeCalls
from ..styles.tagged_calls import TaggedCalls, arg_pairs

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
"""Calls of K2 Horizon: as `glm45` with its own tags, an optional type before a value, or a JSON object in a call.

<ifm|tool_calls>
<ifm|tool_call>f
<ifm|arg_key>a</ifm|arg_key>
<ifm|arg_type>integer</ifm|arg_type>
<ifm|arg_value>1</ifm|arg_value>
</ifm|tool_call>
</ifm|tool_calls>
"""


IQUEST_Q1 = Format(
    name="iquest_q1",
    title="<arg_key> and <arg_value> in <iquest_tool_call>",
    families=("*iquest-q1*",),
    calls=arg_pairs(call="iquest_tool_call", line=""),
)
"""Calls of IQuest Q1: as `glm47`, with its own tag around a call.

<iquest_tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></iquest_tool_call>
"""


POOLSIDE_V1 = Format(
    name="poolside_v1",
    title="<arg_key> and <arg_value> in <tool_call>",
    families=("*laguna*",),
    calls=arg_pairs(json_body=True),
    noise=("</assistant>",),
    halts=("<tool_response>",),
)
"""Calls of Laguna: as `glm45`; a key without a value is left out. Arguments or a whole call as JSON are also read.

<tool_call>f
<arg_key>a</arg_key>
<arg_value>1</arg_value>
</tool_call>
"""
