"""Calls of Llama 4: a list of Python calls, optionally between tokens.

<|python_start|>[f(a='x')]<|python_end|>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.pythonic_calls import PythonicCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="llama4_pythonic",
    title="list of Python calls between <|python_start|> and <|python_end|>",
    families=("*llama-4*", "*llama4*"),
    calls=PythonicCalls(bare=True, open=("<|python_start|>",), close=("<|python_end|>",)),
    noise=("<|eot|>", "<|eom|>", "<|python_end|>"),
)
