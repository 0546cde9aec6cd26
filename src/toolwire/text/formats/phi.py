"""Calls of Phi-4 mini: an array after a keyword.

functools[{"name": "f", "arguments": {}}]
"""

from __future__ import annotations

from ..engine.format import Format
from ..styles.json_calls import JsonCalls

__all__ = ["PHI4MINI"]

PHI4MINI = Format(
    name="phi4mini",
    title="JSON array after functools",
    families=("*phi-4-mini*", "*phi4-mini*"),
    calls=JsonCalls(("functools",), (), array=True),
    noise=("<|end|>", "<|/tool_call|>", "<|endoftext|>"),
)
