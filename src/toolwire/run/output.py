"""Shorten large results: the model gets the beginning and the end; the full text can be read by a handle."""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from ..ir.parts import Text, ToolResult
from .results import annotate

__all__ = ["LIMIT", "TruncatedOutputs", "cap"]

LIMIT = 64 * 1024
_MOST = 64


class TruncatedOutputs:
    """The full texts of shortened results, by handle. Keeps the latest ones, at most `size` characters in total."""

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
        """Return a slice of the text; None if it is not stored, or no longer stored."""
        text = self._texts.get(handle)
        return None if text is None else text[start : start + length]


def cap(result: ToolResult, limit: int, truncated_outputs: TruncatedOutputs | None) -> ToolResult:
    """Limit the text of a result to `limit` characters; media are not changed."""
    text = result.text
    if len(text) <= limit:
        return result
    head, tail = text[: limit * 3 // 4], text[len(text) - limit // 4 :]
    left_out = len(text) - len(head) - len(tail)
    handle = f"output:{result.call_id}"
    if truncated_outputs is not None:
        truncated_outputs.keep(text, handle)
    words = f"{head}\n\n[… {left_out:,} of {len(text):,} characters omitted …]\n\n{tail}"
    media = tuple(part for part in result.parts if not isinstance(part, Text))
    short = replace(result, parts=(Text(words), *media), structured=None)
    return annotate(short, left_out=left_out, handle=handle)
