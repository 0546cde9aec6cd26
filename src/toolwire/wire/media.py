"""Inline media as data URLs, which three of the wires use, and placeholders for media that a wire cannot carry."""

from __future__ import annotations

from ..ir.parts import Media, Text

__all__ = ["data_url", "guess_media_type", "media_placeholder", "split_data_url"]

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


def media_placeholder(part: Media) -> Text:
    """Return a placeholder text for media that cannot be sent: the model should know that something is missing."""
    return Text(f"[{part.name or part.kind} left out]")
