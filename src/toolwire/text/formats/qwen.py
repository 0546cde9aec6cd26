"""Calls of Qwen3-Coder, Qwen 3.5 and later, Nemotron 3, Step 3.5, MiMo: arguments in tags.

<tool_call>
<function=f>
<parameter=a>
1
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.tagged_calls import TaggedCalls

__all__ = ["QWEN3_XML"]

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
