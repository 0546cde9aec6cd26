"""Calls of Llama 3.2 and ToolACE: a list of Python calls.

[f(a='x', b=[1]), g()]
"""

from __future__ import annotations

from .engine.format import Format
from .engine.pythonic_calls import PythonicCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="pythonic",
    title="list of Python calls",
    families=("*toolace*",),
    calls=PythonicCalls(bare=True, open=("<|python_start|>",), close=("<|python_end|>",), write_open=False),
    noise=("<|eot_id|>", "<|eom_id|>", "<|python_end|>"),
)
