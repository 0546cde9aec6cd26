"""Calls of DeepSeek V4: invocations whose arguments state whether they are strings.

<｜DSML｜tool_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.prompt import ResultTemplate
from .engine.tag_families import invocations

__all__ = ["FORMAT"]

FORMAT = Format(
    name="deepseek_dsml_v4",
    title="<｜DSML｜invoke> in <｜DSML｜tool_calls>",
    families=("*deepseek-v4*",),
    calls=invocations(
        "<｜DSML｜tool_calls>",
        "</｜DSML｜tool_calls>",
        prefix="｜DSML｜",
        bare=True,
        type_attribute="string",
        json_body=True,
    ),
    noise=("<｜end▁of▁sentence｜>",),
    halts=("<function_results>",),
    results=ResultTemplate("<function_results>\n<result>{content}</result>\n</function_results>", role="tool"),
)
