"""Formats that write each argument in a tag of its own, which contains the key or is named after it.

<function=f>
<parameter=a>1</parameter>
</function>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.named_tags import NamedCalls, NestedCalls
from ..styles.tagged_calls import TaggedCalls

FUNCTION_XML = Format(
    name="function_xml",
    title="arguments in <parameter=key> tags, one call per turn",
    families=(),
    calls=TaggedCalls("<function=", "</function>", "<parameter=", "</parameter>", one=True),
    stops=("</function",),
    one_call=True,
    declare=ToolPrompt("You have access to the following functions:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("EXECUTION RESULT of [{name}]:\n{content}"),
)
"""Calls for any model that is prompted for them: one per turn; generation stops at the closer.

    <function=f>
    <parameter=a>1</parameter>
    </function>

The format of OpenHands, which is used for most models without native calls.
"""


KIMI_K3 = Format(
    name="kimi_k3",
    title="typed arguments between special tokens",
    families=("*kimi-k3*",),
    calls=TaggedCalls(
        "<|open|>call",
        "<|close|>call<|sep|>",
        "<|open|>argument",
        "<|close|>argument<|sep|>",
        section_open="<|open|>tools<|sep|>",
        section_close="<|close|>tools<|sep|>",
        head_end="<|sep|>",
        key_end="<|sep|>",
        attribute="tool",
        key_attribute="key",
        type_attribute="type",
        index_attribute="index",
        json_tags=("<|open|>json", "<|close|>json<|sep|>"),
        bare=True,
        line="",
    ),
    reasoning=(
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ("<|open|>think<|sep|>", "<|close|>think"),  # the last token may be missing
    ),
    ends_reasoning=("<|open|>response<|sep|>", "<|open|>tools<|sep|>"),
    noise=(
        "<|close|>response<|sep|>",
        *("<|open|>response", "<|close|>response", "<|close|>message", "<|open|>", "<|close|>", "<|sep|>"),
        "<|open|>message<|sep|>",
        "<|close|>message<|sep|>",
        "<|close|>tools<|sep|>",
        "<|end_of_msg|>",
    ),
    heads=(("<|open|>", "<|sep|>"), ("<|close|>", "<|sep|>")),
)
"""Calls of Kimi K3: every delimiter is a special token, every argument has a type.

<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="number"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""


CLINE_XML = Format(
    name="cline_xml",
    title="tags named after tool and parameters",
    families=(),
    calls=NamedCalls(),
    reasoning=(("<thinking>", "</thinking>"), ("<think>", "</think>")),
    one_call=True,
    needs_tools=True,
    declare=ToolPrompt("# Tools\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("[{name}] Result:\n{content}", grouped=False),
)
"""Calls in the style of Cline and Roo: the names themselves are the tags, one call per turn.

<f>
<a>1</a>
</f>
"""


MINICPM5 = Format(
    name="minicpm5",
    title="<function name> and <param name>",
    families=("*minicpm5*", "*minicpm-5*"),
    calls=TaggedCalls(
        "<function",
        "</function>",
        "<param",
        "</param>",
        attribute="name",
        key_attribute="name",
        cdata=True,
        line="",
        between="\n",
    ),
    noise=("<|im_end|>", "</s>"),
)
"""Calls of MiniCPM 5: functions and parameters in tags, CDATA allowed.

<function name="f"><param name="a">1</param></function>
"""


MINIMAX_M3 = Format(
    name="minimax_m3",
    title="nested tags named after their keys",
    families=("*minimax-m3*",),
    calls=NestedCalls("]<]minimax[>["),
    reasoning=(("<mm:think>", "</mm:think>"), ("<think>", "</think>")),
    noise=("[e~[",),
    results=ResultTemplate("<response>{content}</response>", role="tool"),
)
"""Calls of MiniMax M3: nested tags named after their keys, each after its own token.

]<]minimax[>[<tool_call>]<]minimax[>[<invoke
name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>
"""


QWEN3_XML = Format(
    name="qwen3_xml",
    title="arguments in <parameter=key> tags, in <tool_call>",
    families=(
        "*qwen3-coder*",
        "qwen3.5*",
        "qwen3.6*",
        "qwen3.8*",
        "*nemotron-3*",
        "*nemotron3*",
        "*step-3.5*",
        "*step3.5*",
        "*step-3p5*",
        "*stepfun3.5*",
        "*step-3.7*",
        "*mimo-v2*",
        "intern-s2*",
        "minicpm-v-4.6*",
        "ornith*",
        "granite-4.2*",
        "intellect-3*",  # its model card: vLLM with the parser "qwen3_coder"
    ),
    calls=TaggedCalls(
        "<function=",
        "</function>",
        "<parameter=",
        "</parameter>",
        section_open="<tool_call>",
        section_close="</tool_call>",
        bare=True,
        own_section=True,
        trim=True,
    ),
    noise=("<|im_end|>", "<|endoftext|>"),
    halts=("<tool_response>",),
)
"""Calls of Qwen3-Coder, Qwen 3.5 and later, Nemotron 3, Step 3.5, MiMo: arguments in tags.

<tool_call>
<function=f>
<parameter=a>
1
</parameter>
</function>
</tool_call>
"""


SEED_OSS = Format(
    name="seed_oss",
    title="arguments in <parameter=key> tags, in <seed:tool_call>",
    families=("*seed-oss*",),
    calls=TaggedCalls(
        "<function=",
        "</function>",
        "<parameter=",
        "</parameter>",
        section_open="<seed:tool_call>",
        section_close="</seed:tool_call>",
        bare=True,
        own_section=True,
    ),
    reasoning=(("<seed:think>", "</seed:think>"),),
    noise=("<seed:eos>",),
)
"""Calls of Seed-OSS: as `qwen3_xml`, with its own section and values on one line.

<seed:tool_call>
<function=f>
<parameter=a>1</parameter>
</function>
</seed:tool_call>
"""
