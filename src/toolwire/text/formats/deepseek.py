"""Calls of DeepSeek models."""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.header_calls import HeaderCalls
from ..styles.tag_families import invocations
from ..styles.tagged_calls import TaggedCalls

__all__ = ["DEEPSEEK_DSML_V4", "DEEPSEEK_DSML_V32", "DEEPSEEK_DSML_V41", "DEEPSEEK_V3", "DEEPSEEK_V31"]

_NOISE = (
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜end▁of▁sentence｜>",
)


def _dsml_calls(section: str, prefix: str = "｜DSML｜") -> TaggedCalls:
    """Return the style of invocations in a section. Each argument states whether it is a string."""
    opening, closing = f"<{prefix}{section}>", f"</{prefix}{section}>"
    return invocations(opening, closing, prefix=prefix, bare=True, type_attribute="string", json_body=True)


DEEPSEEK_V3 = Format(
    name="deepseek_v3",
    title="name and a JSON code block between special tokens",
    families=("*deepseek-v3", "*deepseek-v3-0324*", "*deepseek-chat*", "*deepseek-r1*", "*deepseek-reasoner*"),
    calls=HeaderCalls(
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁call▁begin｜>"),
        ("\n```json\n", "\n```\n", "\r\n```json\r\n"),
        ("\n```<｜tool▁call▁end｜>", "```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        between="\n",
    ),
    ends_reasoning=("<｜tool▁calls▁begin｜>",),
    noise=_NOISE,
    halts=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
    results=ResultTemplate("<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>", role="tool"),
)
"""Calls of DeepSeek V3, R1 and its distillations: the name, then the arguments in a code block.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
```json
{"a": 1}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

DEEPSEEK_V31 = Format(
    name="deepseek_v31",
    title="name and JSON between special tokens",
    families=("*deepseek-v3.1*", "*deepseek-v3.2-exp*", "*deepseek-v3-1*"),
    calls=HeaderCalls(
        ("<｜tool▁call▁begin｜>",),
        ("<｜tool▁sep｜>",),
        ("<｜tool▁call▁end｜>",),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
    ),
    ends_reasoning=("<｜tool▁calls▁begin｜>",),
    noise=_NOISE,
    halts=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
    declare=ToolPrompt("## Tools\n\nYou have access to the following tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("<｜tool▁output▁begin｜>{content}<｜tool▁output▁end｜>", role="tool"),
)
"""Calls of DeepSeek V3.1: the name, then the arguments.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

DEEPSEEK_DSML_V32 = Format(
    name="deepseek_dsml_v32",
    title="<｜DSML｜invoke> in <｜DSML｜function_calls>",
    families=("*deepseek-v3.2*",),
    calls=_dsml_calls("function_calls"),
    noise=("<｜end▁of▁sentence｜>",),
    halts=("<function_results>",),
    results=ResultTemplate("<function_results>\n<result>{content}</result>\n</function_results>", role="tool"),
)
"""Calls of DeepSeek V3.2: invocations whose arguments state whether they are strings.

<｜DSML｜function_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

DEEPSEEK_DSML_V4 = Format(
    name="deepseek_dsml_v4",
    title="<｜DSML｜invoke> in <｜DSML｜tool_calls>",
    families=("*deepseek-v4*",),
    calls=_dsml_calls("tool_calls"),
    noise=("<｜end▁of▁sentence｜>", "<｜DSML｜toolcalls>", "<｜DSML｜tool>"),  # two damaged section openers
    halts=("<function_results>",),
    results=ResultTemplate("<tool_result>{content}</tool_result>", role="tool"),
)
"""Calls of DeepSeek V4: invocations whose arguments state whether they are strings.

<｜DSML｜tool_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>
"""

DEEPSEEK_DSML_V41 = Format(
    name="deepseek_dsml_v41",
    title="<｜DSML｜ invoke> in <｜DSML｜ calls>",
    families=("*deepseek-v4.1*", "*deepseek-v4-1*"),
    calls=_dsml_calls("calls", prefix="｜DSML｜ "),
    noise=("<｜end▁of▁sentence｜>",),
    halts=("<function_results>",),
    results=ResultTemplate("<function_results>\n<result>{content}</result>\n</function_results>", role="tool"),
)
"""Calls of DeepSeek V4.1: as V4, with a space after the special token of every tag.

<｜DSML｜ calls>
<｜DSML｜ invoke name="f">
<｜DSML｜ parameter name="a" string="false">1</｜DSML｜ parameter>
</｜DSML｜ invoke>
</｜DSML｜ calls>
"""
