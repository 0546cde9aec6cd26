"""Content of Ollama messages: one text, and images beside it.

    {"role": "user", "content": "What is this?", "images": ["iVBORw0KGgo…"]}

The server puts the images before the text, and so do we. An image is bare base64; its first bytes identify the type.
Thinking, images, text and calls are separate fields, so their relative order is fixed, and the text is one string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from ...ir.losses import Losses
from ...ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall, part_label
from ...ir.pointer import JSON, Object
from ..fields import decode_list, read_optional_string, type_error
from ..media import media_placeholder

__all__ = ["FORM", "NAME", "LocatedPart", "read_content", "reasoning_text", "report_order", "write_content"]

NAME = "ollama"
FORM = "ollama~"
LocatedPart = tuple[str, Part]
"""A part, and its path for losses."""

_IMAGE_PREFIXES = (("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"))


def _image_type(data: str) -> str | None:
    if data.startswith("UklGR") and data[12:16] == "RUJQ":  # RIFF, and EBP of WEBP
        return "image/webp"
    return next((name for beginning, name in _IMAGE_PREFIXES if data.startswith(beginning)), None)


def read_content(raw: Object, form: Object) -> list[Part]:
    """Read the images and the text of a message. Spelling that the parts do not preserve goes into `form`."""
    parts: list[Part] = [*decode_list(raw, "images", _read_image)]
    if text_content := read_optional_string(raw, "content"):
        parts.append(Text(text_content))
    elif "content" not in raw:
        form[":content"] = "absent"
    return parts


def _read_image(data: JSON) -> Media:
    if type(data) is not str:
        raise type_error("base64 text", data)
    return Media("image", _image_type(data), data)


def write_content(parts: Sequence[LocatedPart], form: Object, losses: Losses, separator: str) -> Object:
    """Return the fields `content` and `images`. `separator` is put between texts that were separate parts."""
    text_content: list[str] = []
    images: list[str] = []
    for path, part in parts:
        if isinstance(part, Text):
            _report_text(part, path, losses)
            text_content.append(part.text)
        elif isinstance(part, Refusal):
            losses.add(path, "refusal", "rewritten", "Ollama has no refusal field; sent as text", "info")
            text_content.append(part.text)
        elif isinstance(part, Media):
            _write_media(part, path, text_content, images, losses)
        else:
            losses.add(path, part_label(part), "dropped", "Ollama messages have no field for it", "error")
    out: Object = {}
    if text_content or (":content" not in form and "content" not in form):
        out["content"] = separator.join(text_content)
    if images:
        out["images"] = images
    return out


def _report_text(part: Text, path: str, losses: Losses) -> None:
    """Report the losses of a text on this wire: artefacts, the cache mark, or the whole part if it is empty."""
    if part.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Ollama has no field for it")
    if part.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", "Ollama has no cache marks", "info")
    if not part.text:
        losses.add(path, "text", "dropped", "it has no text", "info")


def _write_media(part: Media, path: str, text_content: list[str], images: list[str], losses: Losses) -> None:
    """Append an inline image to `images`; for any other media, append a placeholder to `text_content`."""
    if part.kind != "image" or part.data is None:
        detail = f"Ollama accepts only inline images, not {'a URL' if part.kind == 'image' else part.kind}"
        losses.add(path, part.kind, "dropped", detail, "error")
        text_content.append(media_placeholder(part).text)
        return
    images.append(part.data)
    for concept in ("name", "detail", "cache"):
        if getattr(part, concept) is not None:
            losses.add(f"{path}/{concept}", concept, "dropped", "an Ollama image is only base64 data", "info")
    if part.media_type != _image_type(part.data):
        losses.add(f"{path}/media_type", "media type", "dropped", "an Ollama image is only base64 data", "info")


_FIELD_ORDER: dict[type[Part], int] = {Reasoning: 0, Media: 1, Text: 2, Refusal: 2, ToolCall: 3}


def report_order(parts: Sequence[LocatedPart], losses: Losses) -> None:
    """Report the order of parts and the boundaries of texts, which the fields of a message do not preserve."""
    if len(parts) < 2:
        return
    parts = [(path, part) for path, part in parts if type(part) in _FIELD_ORDER]  # the others are dropped
    ranks = [_FIELD_ORDER[type(part)] for _, part in parts]
    counts = Counter(ranks)
    highest = list(accumulate(ranks, max))
    lowest = list(accumulate(reversed(ranks), min))[::-1]
    for (path, part), rank, before, after in zip(parts, ranks, highest, lowest, strict=True):
        if before > rank or after < rank:
            losses.add(path, "order", "moved", "Ollama has a fixed order: thinking, images, text, calls", "info")
        if rank in (0, 2) and counts[rank] > 1:
            losses.add(path, part_label(part), "rewritten", "joined, because a message has one string", "info")


def reasoning_text(part: Reasoning, path: str, losses: Losses) -> str:
    """Return the text of a reasoning part."""
    if part.artefacts:
        losses.add(f"{path}/artefacts", "artefact", "dropped", "Ollama has no field for it")
    if part.summary:
        losses.add(f"{path}/summary", "reasoning summary", "rewritten", "Ollama thinking is plain text", "info")
    text = part.joined_text
    if not text:
        losses.add(path, "reasoning", "dropped", "it has no text", "info")
    return text
