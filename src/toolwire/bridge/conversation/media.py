"""Images and files in a request, and their kinds."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.parts import Media, MediaKind, ToolResult
from ...ir.request import Request


def content_kind(part: Media) -> MediaKind:
    """Return the kind of the content: providers reject audio and video as a file, and a document as an image."""
    media_type = part.media_type or ""
    if media_type.startswith("audio/"):
        return "audio"
    if media_type.startswith("video/"):
        return "video"
    return "file" if media_type == "application/pdf" else part.kind


def iterate_media(request: Request) -> Iterator[tuple[int, Media]]:
    """Yield the media of all messages and results with the index of the message, the newest first."""
    for index in range(len(request.messages) - 1, -1, -1):
        for part in reversed(request.messages[index].parts):
            if isinstance(part, Media):
                yield index, part
            elif isinstance(part, ToolResult):
                yield from ((index, item) for item in reversed(part.parts) if isinstance(item, Media))


def has_media(request: Request, kinds: frozenset[str]) -> bool:
    return any(content_kind(media) in kinds for _, media in iterate_media(request))
