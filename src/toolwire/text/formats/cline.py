"""Calls in the style of Cline and Roo: the names themselves are the tags, one call per turn.

<f>
<a>1</a>
</f>
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.named_calls import NamedCalls

__all__ = ["CLINE_XML"]

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
