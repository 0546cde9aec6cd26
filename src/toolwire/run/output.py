"""Large results: the beginning and the end for the model, the rest behind a handle."""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from ..ir.parts import Text, ToolResult
from .results import told

__all__ = ["LIMIT", "Shelf", "cap"]

LIMIT = 64 * 1024
_MOST = 64


class Shelf:
    """What was cut out of results, by handle: the latest only, and no more than `size` characters together."""

    def __init__(self, size: int = 256 * 1024 * 1024) -> None:
        self._size = size
        self._held = 0
        self._texts: OrderedDict[str, str] = OrderedDict()

    def keep(self, text: str, handle: str) -> None:
        if len(text) > self._size:
            return
        self._held += len(text) - len(self._texts.pop(handle, ""))
        self._texts[handle] = text
        while self._held > self._size or len(self._texts) > _MOST:
            _, gone = self._texts.popitem(last=False)
            self._held -= len(gone)

    def read(self, handle: str, start: int = 0, length: int = LIMIT) -> str | None:
        """A piece of it; None where it is not, or no longer, there."""
        text = self._texts.get(handle)
        return None if text is None else text[start : start + length]


def cap(result: ToolResult, limit: int, shelf: Shelf | None) -> ToolResult:
    """At most `limit` characters of text; media are left alone."""
    text = result.text
    if len(text) <= limit:
        return result
    head, tail = text[: limit * 3 // 4], text[len(text) - limit // 4 :]
    left_out = len(text) - len(head) - len(tail)
    handle = f"output:{result.call_id}"
    if shelf is not None:
        shelf.keep(text, handle)
    words = f"{head}\n\n[… {left_out:,} of {len(text):,} characters are left out …]\n\n{tail}"
    media = tuple(part for part in result.parts if not isinstance(part, Text))
    short = replace(result, parts=(Text(words), *media), structured=None)
    return told(short, left_out=left_out, handle=handle)
