"""Calls of Functionary 3.1 and of Llama 3.1 with custom tools.

<function=f>{"a": 1}</function>
"""

from __future__ import annotations

from .engine.format import Format
from .engine.header_calls import HeaderCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="functionary_v31",
    title="JSON in <function=name> tags",
    families=("*functionary*v3.1*", "*functionary-medium-v3.1*"),
    calls=HeaderCalls(("<function=",), (">",), ("</function>",)),
    noise=("<|eom_id|>", "<|eot_id|>"),
)
