"""Calls of Functionary models."""

from __future__ import annotations

from ..engine.format import Format
from ..styles.header_calls import HeaderCalls
from ..styles.recipient_calls import RecipientCalls

__all__ = ["FUNCTIONARY_V31", "FUNCTIONARY_V32"]

FUNCTIONARY_V31 = Format(
    name="functionary_v31",
    title="JSON in <function=name> tags",
    families=("*functionary*v3.1*", "*functionary-medium-v3.1*"),
    calls=HeaderCalls(("<function=",), (">",), ("</function>",)),
    noise=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
)
"""Calls of Functionary 3.1 and of Llama 3.1 with custom tools.

<function=f>{"a": 1}</function>
"""

FUNCTIONARY_V32 = Format(
    name="functionary_v32",
    title=">>>name and JSON on the next line",
    families=("*functionary*v3.2*",),
    calls=RecipientCalls(),
    noise=("<|eot_id|>", "<|end_of_text|>"),
)
"""Calls of Functionary 3.2: messages to recipients, each after three angle brackets; `all` is the user.

`>>>all` Let me look. `>>>f` {"a": 1}, with a line break after each name.
"""
