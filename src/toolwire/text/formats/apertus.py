"""Calls of Apertus: an array of objects whose only key is the name.

<|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>
"""

from __future__ import annotations

from ..engine.envelope import CallFields
from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["APERTUS"]

APERTUS = Format(
    name="apertus",
    title="JSON array between <|tools_prefix|> and <|tools_suffix|>, names as keys",
    families=("*apertus*",),
    calls=JsonCalls(("<|tools_prefix|>",), ("<|tools_suffix|>",), keys=CallFields(name_is_key=True), array=True),
    reasoning=(("<|inner_prefix|>", "<|inner_suffix|>"),),
    calls_in_reasoning=True,
    noise=("<|tools_suffix|>", "<|assistant_end|>"),
)
