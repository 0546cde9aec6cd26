"""Calls of Gorilla OpenFunctions: Python calls after a mark.

<<function>>f(a='x')
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.pythonic_calls import PythonicCalls

__all__ = ["GORILLA"]

GORILLA = Format(
    name="gorilla",
    title="Python calls after <<function>>",
    families=("*gorilla*",),
    calls=PythonicCalls(open=("<<function>>", "<<<api_call>>>:"), brackets=False, separator="<<function>>"),
    noise=("<|EOT|>", "<｜end▁of▁sentence｜>"),
)
