"""Calls of Toolformer: a Python call in brackets inside a sentence. The arrow after it asks for the result.

The answer is [Calculator(400 / 1400)] → 0.29
"""

from __future__ import annotations

from ..engine.format import Format
from ..engine.prompt import ResultTemplate, ToolPrompt
from ..styles.inline_calls import InlineCalls

__all__ = ["TOOLFORMER"]

TOOLFORMER = Format(
    name="toolformer",
    title="Python call in brackets inside a sentence",
    families=("*toolformer*",),
    calls=InlineCalls(),
    stops=("→",),
    needs_tools=True,
    declare=ToolPrompt("You can use these tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("→ {content}", grouped=False),
)
