"""One call as a bare object, wrapped or not: for models that are only prompted for it.

{"tool_call": {"name": "f", "arguments": {}}}
"""

from __future__ import annotations

from .engine.format import Format
from .engine.json_calls import JsonCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="generic_json",
    title="bare JSON object",
    families=(),
    calls=JsonCalls(("```json\n",), ("```",), bare=("{", "["), write_open=False),
)
