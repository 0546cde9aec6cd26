"""Calls of NexusRaven: Python calls after a keyword, in sequence.

Call: f(a='x'); g()<bot_end>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.pythonic_calls import PythonicCalls

__all__ = ["NEXUSRAVEN"]

NEXUSRAVEN = Format(
    name="nexusraven",
    title="Python calls after Call:",
    families=("*nexusraven*",),
    calls=PythonicCalls(open=("Call:",), close=("<bot_end>",), brackets=False, separator="; "),
    noise=("<bot_end>", "</s>"),
    stops=("<bot_end>",),
)
