"""Inline media as data URLs, which three of the wires use; and what stands in for media that a wire cannot take."""

from __future__ import annotations

from ..ir.parts import Media, Text

__all__ = ["data_url", "left_out", "split_data_url"]


def split_data_url(url: str) -> tuple[str | None, str | None, str | None]:
    """(media type, base64 data, None) of a plain data URL; (None, None, url) of anything else.

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


def left_out(part: Media) -> Text:
    """Words in place of media that cannot go out: the model should know that something is missing."""
    return Text(f"[{part.name or part.kind} left out]")
