"""Calls of DeepSeek V4: invocations whose arguments say whether they are strings.

<｜DSML｜tool_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>
"""

from __future__ import annotations

from .engine.declare import Results
from .engine.format import Format
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="deepseek_dsml_v4",
    title="<｜DSML｜invoke> in <｜DSML｜tool_calls>",
    families=("*deepseek-v4*",),
    calls=TaggedCalls(
        "<｜DSML｜invoke",
        "</｜DSML｜invoke>",
        "<｜DSML｜parameter",
        "</｜DSML｜parameter>",
        attribute="name",
        key_attribute="name",
        section_open="<｜DSML｜tool_calls>",
        section_close="</｜DSML｜tool_calls>",
        bare=True,
        type_attribute="string",
        json_body=True,
    ),
    noise=("<｜end▁of▁sentence｜>",),
    halts=("<function_results>",),
    results=Results("<function_results>\n<result>{content}</result>\n</function_results>", role="tool"),
)
