"""Calls of DeepSeek V3.2: invocations whose arguments state whether they are strings.

<｜DSML｜function_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.prompt import ResultTemplate
from .engine.tag_families import invocations

__all__ = ["FORMAT"]

FORMAT = Format(
    name="deepseek_dsml_v32",
    title="<｜DSML｜invoke> in <｜DSML｜function_calls>",
    families=("*deepseek-v3.2*",),
    calls=invocations(
        "<｜DSML｜function_calls>",
        "</｜DSML｜function_calls>",
        prefix="｜DSML｜",
        bare=True,
        type_attribute="string",
        json_body=True,
    ),
    noise=("<｜end▁of▁sentence｜>",),
    halts=("<function_results>",),
    results=ResultTemplate("<function_results>\n<result>{content}</result>\n</function_results>", role="tool"),
)
