"""Calls of Command R+: an array in a code block behind "Action:".

Action:
```json
[{"tool_name": "f", "parameters": {}}]
```
"""

from __future__ import annotations

from .engine.envelope import Keys
from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="cohere_rplus",
    title="JSON array in a code block behind Action:",
    families=("*command-r-plus*", "*command-r"),
    calls=JsonCalls(
        ("Action:\n```json\n", "Action: ```json\n", "Action:```json\n"),
        ("```",),
        keys=Keys(name=("tool_name",), arguments=("parameters",)),
        array=True,
        pad=("", "\n"),
    ),
    noise=("<|END_OF_TURN_TOKEN|>",),
)
