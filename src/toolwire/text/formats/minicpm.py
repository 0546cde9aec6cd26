"""Calls of MiniCPM models."""

from __future__ import annotations

from ..engine.format import Format
from ..styles.pythonic_calls import PythonicCalls
from ..styles.tagged_calls import TaggedCalls

__all__ = ["MINICPM4", "MINICPM5"]

MINICPM4 = Format(
    name="minicpm4",
    title="Python calls in a code block between <|tool_call_start|> and <|tool_call_end|>",
    families=("*minicpm3*", "*minicpm4*"),
    calls=PythonicCalls(
        open=("<|tool_call_start|>\n```python\n", "<|tool_call_start|>"),
        close=("\n```\n<|tool_call_end|>", "```\n<|tool_call_end|>", "```<|tool_call_end|>", "<|tool_call_end|>"),
        brackets=False,
        separator="\n",
        json=True,
    ),
    reasoning=(("<think>", "</think>"), ("<|thought_start|>", "<|thought_end|>")),
    noise=("<|im_end|>", "<|tool_call_end|>", "</s>"),
)
"""Calls of MiniCPM 3 and 4: Python calls, one per line, in a code block between tokens (hiyouga/LlamaFactory#8314).

<|tool_call_start|>
```python
f(a='x')
```
<|tool_call_end|>
"""

MINICPM5 = Format(
    name="minicpm5",
    title="<function name> and <param name>",
    families=("*minicpm5*", "*minicpm-5*"),
    calls=TaggedCalls(
        "<function",
        "</function>",
        "<param",
        "</param>",
        attribute="name",
        key_attribute="name",
        cdata=True,
        line="",
        between="\n",
    ),
    noise=("<|im_end|>", "</s>"),
)
"""Calls of MiniCPM 5: functions and parameters in tags, CDATA allowed.

<function name="f"><param name="a">1</param></function>
"""
