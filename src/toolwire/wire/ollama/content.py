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
from ..media import media_placeholder
from ..shape import decode_list, optional_string, wrong_type

__all__ = ["FORM", "NAME", "LocatedPart", "read_content", "reasoning_text", "report_order", "write_content"]

NAME = "ollama"
FORM = "ollama~"
LocatedPart = tuple[str, Part]
"""A part, and its path for losses."""

_BEGINNINGS = (("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"))


def _image_type(data: str) -> str | None:
    if data.startswith("UklGR") and data[12:16] == "RUJQ":  # RIFF, and EBP of WEBP
        return "image/webp"
    return next((name for beginning, name in _BEGINNINGS if data.startswith(beginning)), None)


def read_content(raw: Object, form: Object) -> list[Part]:
    """Read the images and the text of a message. Spelling that the parts do not preserve goes into `form`."""
    parts: list[Part] = [*decode_list(raw, "images", _read_image)]
    if words := optional_string(raw, "content"):
        parts.append(Text(words))
    elif "content" not in raw:
        form[":content"] = "absent"
    return parts


def _read_image(data: JSON) -> Media:
    if type(data) is not str:
        raise wrong_type("base64 text", data)
    return Media("image", _image_type(data), data)


def write_content(parts: Sequence[LocatedPart], form: Object, losses: Losses, joint: str) -> Object:
    """Return the fields `content` and `images`. `joint` separates texts that were separate parts."""
    words: list[str] = []
    images: list[str] = []
    for where, part in parts:
        if isinstance(part, Text):
            _report_text(part, where, losses)
            words.append(part.text)
        elif isinstance(part, Refusal):
            losses.add(where, "refusal", "rewritten", "Ollama has no refusal field; sent as text", "info")
            words.append(part.text)
        elif isinstance(part, Media):
            _write_media(part, where, words, images, losses)
        else:
            losses.add(where, part_label(part), "dropped", "Ollama messages have no field for it", "error")
    out: Object = {}
    if words or (":content" not in form and "content" not in form):
        out["content"] = joint.join(words)
    if images:
        out["images"] = images
    return out


def _report_text(part: Text, where: str, losses: Losses) -> None:
    if part.artefacts:
        losses.add(f"{where}/artefacts", "artefact", "dropped", "Ollama has no field for it")
    if part.cache is not None:
        losses.add(f"{where}/cache", "cache", "dropped", "Ollama has no cache marks", "info")
    if not part.text:
        losses.add(where, "text", "dropped", "it has no text", "info")


def _write_media(part: Media, where: str, words: list[str], images: list[str], losses: Losses) -> None:
    if part.kind != "image" or part.data is None:
        detail = f"Ollama accepts only inline images, not {'a URL' if part.kind == 'image' else part.kind}"
        losses.add(where, part.kind, "dropped", detail, "error")
        words.append(media_placeholder(part).text)
        return
    images.append(part.data)
    for concept in ("name", "detail", "cache"):
        if getattr(part, concept) is not None:
            losses.add(f"{where}/{concept}", concept, "dropped", "an Ollama image is only base64 data", "info")
    if part.media_type != _image_type(part.data):
        losses.add(f"{where}/media_type", "media type", "dropped", "an Ollama image is only base64 data", "info")


_FIELD_ORDER: dict[type[Part], int] = {Reasoning: 0, Media: 1, Text: 2, Refusal: 2, ToolCall: 3}


def report_order(parts: Sequence[LocatedPart], losses: Losses) -> None:
    """Report the order of parts and the boundaries of texts, which the fields of a message do not preserve."""
    ranks = [_FIELD_ORDER.get(type(part), 2) for _, part in parts]
    counts = Counter(ranks)
    highest = list(accumulate(ranks, max))
    lowest = list(accumulate(reversed(ranks), min))[::-1]
    for (where, part), rank, before, after in zip(parts, ranks, highest, lowest, strict=True):
        if before > rank or after < rank:
            losses.add(where, "order", "moved", "Ollama has a fixed order: thinking, images, text, calls", "info")
        if rank in (0, 2) and counts[rank] > 1:
            losses.add(where, part_label(part), "rewritten", "joined, because a message has one string", "info")


def reasoning_text(part: Reasoning, where: str, losses: Losses) -> str:
    """Return the text of a reasoning part."""
    if part.artefacts:
        losses.add(f"{where}/artefacts", "artefact", "dropped", "Ollama has no field for it")
    if part.summary:
        losses.add(f"{where}/summary", "reasoning summary", "rewritten", "Ollama thinking is plain text", "info")
    text = part.text or "\n\n".join(part.summary)
    if not text:
        losses.add(where, "reasoning", "dropped", "it has no text", "info")
    return text
