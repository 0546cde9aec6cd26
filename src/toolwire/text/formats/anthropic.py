"""Calls of Claude 2 and of prompts in its style.

<function_calls>
<invoke name="f">
<parameter name="a">1</parameter>
</invoke>
</function_calls>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate
from ..styles.tag_families import invocations

__all__ = ["ANTHROPIC_LEGACY_XML"]

ANTHROPIC_LEGACY_XML = Format(
    name="anthropic_legacy_xml",
    title="<invoke> in <function_calls>",
    families=("*claude-2*", "*claude-instant*"),
    calls=invocations("<function_calls>", "</function_calls>"),
    halts=("<function_results>",),
    stops=("</function_calls>",),
    results=ResultTemplate(
        "<function_results>\n<result>\n<tool_name>{name}</tool_name>\n<stdout>\n{content}\n</stdout>\n</result>\n</function_results>"
    ),
)
