"""Calls of Seed-OSS: as `qwen3_xml`, with its own section and values on one line.

<seed:tool_call>
<function=f>
<parameter=a>1</parameter>
</function>
</seed:tool_call>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.tagged_calls import TaggedCalls

__all__ = ["SEED_OSS"]

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
