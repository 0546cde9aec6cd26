"""Calls of FireFunction v2: as `phi4mini`, with a leading space.

functools[{"name": "f", "arguments": {}}]
"""

from __future__ import annotations

from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="firefunction_v2",
    title="JSON array after functools",
    families=("*firefunction-v2*",),
    calls=JsonCalls((" functools", "functools"), (), array=True),
    noise=("<|eot_id|>",),
)
