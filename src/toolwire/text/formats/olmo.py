"""Calls of OLMo 3: Python calls, one per line, in tags.

<function_calls>f(a='x')
g()</function_calls>
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.pythonic_calls import PythonicCalls

__all__ = ["OLMO3"]

OLMO3 = Format(
    name="olmo3",
    title="Python calls, one per line, in <function_calls>",
    families=("*olmo-3*", "*olmo3*"),
    calls=PythonicCalls(open=("<function_calls>",), close=("</function_calls>",), brackets=False, separator="\n"),
    noise=("<|im_end|>", "<|endoftext|>"),
)
