"""Shorten large results: the model gets the beginning and the end; the full text can be read by a handle."""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from ..ir.parts import Text, ToolResult
from .results import annotate

__all__ = ["LIMIT", "TruncatedOutputs", "cap_result"]

LIMIT = 64 * 1024
_MAX_TEXTS = 64


class TruncatedOutputs:
    """The full texts of shortened results, by handle. Keeps the latest ones, at most `max_size` characters in total."""

    def __init__(self, max_size: int = 256 * 1024 * 1024) -> None:
        self._max_size = max_size
        self._stored_size = 0
        self._texts: OrderedDict[str, str] = OrderedDict()

    def store(self, text: str, handle: str) -> None:
        """Store a text, and evict the oldest ones beyond the limits; a text above `max_size` is not stored."""
        if len(text) > self._max_size:
            return
        self._stored_size += len(text) - len(self._texts.pop(handle, ""))
        self._texts[handle] = text
        while self._stored_size > self._max_size or len(self._texts) > _MAX_TEXTS:
            _, removed = self._texts.popitem(last=False)
            self._stored_size -= len(removed)

    def read(self, handle: str, start: int = 0, length: int = LIMIT) -> str | None:
        """Return a slice of the text; None if it is not stored, or no longer stored."""
        text = self._texts.get(handle)
        return None if text is None else text[start : start + length]


def cap_result(result: ToolResult, limit: int, truncated_outputs: TruncatedOutputs | None) -> ToolResult:
    """Limit the text of a result to `limit` characters; media are not changed."""
    text = result.text
    if len(text) <= limit:
        return result
    head, tail = text[: limit * 3 // 4], text[len(text) - limit // 4 :]
    omitted = len(text) - len(head) - len(tail)
    handle = f"output:{result.call_id}"
    if truncated_outputs is not None:
        truncated_outputs.store(text, handle)
    notice = f"{head}\n\n[… {omitted:,} of {len(text):,} characters omitted …]\n\n{tail}"
    media = tuple(part for part in result.parts if not isinstance(part, Text))
    shortened = replace(result, parts=(Text(notice), *media), structured=None)
    return annotate(shortened, left_out=omitted, handle=handle)
