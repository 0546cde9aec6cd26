"""Structured results, and results of tool searches, on wires whose results are text.

If a result has both, they have the same content (MCP's rule for `content` and `structuredContent`), and the text is
sent.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Media, Opaque, Text, ToolResult
from ..ir.text import dumps

__all__ = ["found_as_text", "result_parts", "structured_as_text"]

ResultPart = Text | Media | Opaque


def structured_as_text(result: ToolResult, path: str, losses: Losses) -> tuple[ResultPart, ...]:
    """Return all of a result as parts; a structured value without text becomes JSON text."""
    if result.structured is None:
        return result.parts
    has_text = any(isinstance(part, Text) and part.text for part in result.parts)
    detail = "results are text here: its text is sent" if has_text else "results are text here: sent as JSON"
    losses.add(f"{path}/structured", "structured result", "weakened", detail, "info")
    return result.parts if has_text else (Text(dumps(result.structured)), *result.parts)


def found_as_text(result: ToolResult, path: str, losses: Losses) -> ToolResult:
    """Return a result without references to tools that it loads; their names become text if it has no content."""
    if not result.found:
        return result
    detail = "results have no references to tools here: sent as text"
    losses.add(f"{path}/found", "tool references", "rewritten", detail, "info")
    has_text = result.structured is not None or any(isinstance(part, Text) and part.text for part in result.parts)
    parts = result.parts if has_text else (Text(result.text), *result.parts)
    return replace(result, found=(), parts=parts)


def result_parts(result: ToolResult, path: str, losses: Losses) -> tuple[ResultPart, ...]:
    """Return all of a result as parts, for a wire whose results have neither structured values nor references."""
    return structured_as_text(found_as_text(result, path, losses), path, losses)
