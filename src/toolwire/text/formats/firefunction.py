"""Calls of FireFunction v2: as `phi4mini`, with a leading space.

functools[{"name": "f", "arguments": {}}]
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["FIREFUNCTION_V2"]

FIREFUNCTION_V2 = Format(
    name="firefunction_v2",
    title="JSON array after functools",
    families=("*firefunction-v2*",),
    calls=JsonCalls((" functools", "functools"), (), array=True),
    noise=("<|eot_id|>", "<|end_of_text|>"),
)
