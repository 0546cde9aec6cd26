"""Content in the forms that wires accept: inline media as data URLs, structured results as text."""

from __future__ import annotations

from base64 import b64decode

from msgspec.structs import replace

from ..ir.losses import Losses
from ..ir.parts import Media, Opaque, Text, ToolCall, ToolResult
from ..ir.pointer import Object
from ..ir.text import dumps

# The types that providers accept. The standard library's table is longer, and is read from disk.
_BY_EXTENSION = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "heif": "image/heif",
    "pdf": "application/pdf",
    "json": "application/json",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "css": "text/css",
    "csv": "text/csv",
    "xml": "text/xml",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "aac": "audio/aac",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mov": "video/quicktime",
    "webm": "video/webm",
}

_BY_START = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def split_data_url(url: str) -> tuple[str | None, str | None, str | None]:
    """Split a plain data URL into (media type, base64 data, None); return (None, None, url) for anything else.

    >>> split_data_url("data:image/png;base64,iVBO")
    ('image/png', 'iVBO', None)
    """
    if url[:5] == "data:":
        head, comma, data = url[5:].partition(",")
        media_type, base64, rest = head.partition(";base64")
        if comma and base64 and not rest and media_type and ";" not in media_type:
            return media_type, data, None
    return None, None, url


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def guess_media_type(name: str) -> str | None:
    """Guess the media type from the extension of a file name or URL.

    >>> guess_media_type("https://example.com/paris.JPG?size=2")
    'image/jpeg'
    """
    path = name.partition("?")[0].partition("#")[0]
    return _BY_EXTENSION.get(path.rpartition(".")[2].lower())


def recognise_media_type(data: str) -> str | None:
    """Return the media type of base64 data by its first bytes: Ollama's clients send images without one.

    >>> recognise_media_type("iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB")
    'image/png'
    """
    try:
        start = b64decode(data[:16])
    except ValueError:
        return None
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for mark, media_type in _BY_START if start.startswith(mark)), None)


def media_placeholder(part: Media) -> Text:
    """Return a placeholder text for media that cannot be sent: the model should know that something is missing."""
    return Text(f"[{part.name or part.kind} left out]")


# Structured results, and results of tool searches, on wires whose results are text.
#
# If a result has both, they have the same content (MCP's rule for `content` and `structuredContent`), and the text is
# sent.


ResultPart = Text | Media | Opaque


def structured_as_text(result: ToolResult, path: str, losses: Losses) -> tuple[ResultPart, ...]:
    """Return all of a result as parts; a structured value without text becomes JSON text.

    The form of a structured value is a loss.
    """
    if result.structured is None:
        return result.parts
    has_text = any(isinstance(part, Text) and part.text for part in result.parts)
    detail = "results are text here: its text is sent" if has_text else "results are text here: sent as JSON"
    losses.add(f"{path}/structured", "structured result", "weakened", detail, "info")
    return result.parts if has_text else (Text(dumps(result.structured)), *result.parts)


def found_as_text(result: ToolResult, path: str, losses: Losses) -> ToolResult:
    """Return a result without references to tools that it loads; their names become text if it has no content.

    The references are a loss.
    """
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


def placeholder_arguments(call: ToolCall, losses: Losses, path: str) -> Object:
    """Return substitute arguments for a call whose arguments are not an object, and add the loss."""
    if call.kind == "freeform":
        losses.add(path, "freeform call", "rewritten", "sent as a call with one argument, `input`", "info")
        return {"input": call.raw or ""}
    detail = "not a JSON object; sent as text under `raw_arguments`"
    losses.add(f"{path}/arguments", "arguments", "rewritten", detail)
    return {"raw_arguments": call.raw or ""}
