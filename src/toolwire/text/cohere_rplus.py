"""Calls of Command R+: an array in a code block after "Action:".

Action:
```json
[{"tool_name": "f", "parameters": {}}]
```
"""

from __future__ import annotations

from .engine.envelope import CallFields
from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

_OPEN = tuple(f"Action:{space}```json{line}" for line in ("\n", "\r\n") for space in (line, " ", ""))

FORMAT = Format(
    name="cohere_rplus",
    title="JSON array in a code block after Action:",
    families=("*command-r-plus*", "*command-r"),
    calls=JsonCalls(
        _OPEN,
        ("```",),
        keys=CallFields(name=("tool_name",), arguments=("parameters",)),
        array=True,
        pad=("", "\n"),
    ),
    noise=("<|END_OF_TURN_TOKEN|>",),
)
