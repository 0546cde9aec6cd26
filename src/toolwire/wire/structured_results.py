"""Structured results on wires whose results are text.

If a result has both, they have the same content (MCP's rule for `content` and `structuredContent`), and the text is
sent.
"""

from __future__ import annotations

from ..ir.losses import Losses
from ..ir.parts import Media, Opaque, Text, ToolResult
from ..ir.text import dumps

__all__ = ["structured_as_text"]


def structured_as_text(result: ToolResult, path: str, losses: Losses) -> tuple[Text | Media | Opaque, ...]:
    """Return all of a result as parts; a structured value without text becomes JSON text."""
    if result.structured is None:
        return result.parts
    has_text = any(isinstance(part, Text) and part.text for part in result.parts)
    detail = "results are text here: its text is sent" if has_text else "results are text here: sent as JSON"
    losses.add(f"{path}/structured", "structured result", "weakened", detail, "info")
    return result.parts if has_text else (Text(dumps(result.structured)), *result.parts)
