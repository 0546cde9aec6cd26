"""Calls for any model that is prompted for them: one per turn; generation stops at the closer.

    <function=f>
    <parameter=a>1</parameter>
    </function>

The format of OpenHands, which is used for most models without native calls.
"""

from __future__ import annotations

from .engine.format import Format
from .engine.prompt import ResultTemplate, ToolPrompt
from .engine.tagged_calls import TaggedCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="function_xml",
    title="arguments in <parameter=key> tags, one call per turn",
    families=(),
    calls=TaggedCalls("<function=", "</function>", "<parameter=", "</parameter>", one=True),
    stops=("</function",),
    one_call=True,
    declare=ToolPrompt("You have access to the following functions:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("EXECUTION RESULT of [{name}]:\n{content}"),
)
