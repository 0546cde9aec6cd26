"""Calls in the style of ReAct: thoughts, an action, its input.

Thought: I need the weather.
Action: f
Action Input: {"a": 1}
"""

from __future__ import annotations

from .engine.format import Format
from .engine.prompt import ResultTemplate, ToolPrompt
from .engine.react_calls import ReactCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="react",
    title="Thought / Action / Action Input",
    families=(),
    calls=ReactCalls(),
    reasoning=(),
    halts=("\nObservation:",),
    stops=("\nObservation:",),
    one_call=True,
    declare=ToolPrompt("You can use these tools:\n\n", "", entry="prose", join="\n\n"),
    results=ResultTemplate("Observation: {content}", grouped=False),
)
