"""Structured results on wires whose results are words.

Where a result has both, they say the same (MCP's rule for `content` and `structuredContent`), and the words go out.
"""

from __future__ import annotations

from ..ir.losses import Losses
from ..ir.parts import Media, Opaque, Text, ToolResult
from ..ir.text import dumps

__all__ = ["in_words"]


def in_words(result: ToolResult, path: str, losses: Losses) -> tuple[Text | Media | Opaque, ...]:
    """All of a result as parts."""
    if result.structured is None:
        return result.parts
    spoken = any(isinstance(part, Text) and part.text for part in result.parts)
    detail = "results are text here: its words stand for it" if spoken else "results are text here: sent as JSON"
    losses.add(f"{path}/structured", "structured result", "weakened", detail, "info")
    return result.parts if spoken else (Text(dumps(result.structured)), *result.parts)
