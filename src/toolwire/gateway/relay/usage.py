"""The usage that an answer reports, found while its bytes pass, without parsing or holding it.

Answers report it at their end, so the last bytes are kept. A quotation mark in a string of JSON is escaped, so `"usage":`
with a plain one is the name of a field: neither an embedding nor a text of the model can imitate it.
"""

from __future__ import annotations

import json
import re

from ...ir.pointer import JSON
from ...ir.response import Usage

_KEPT = 8 * 1024  # bytes: the usage of an answer of OpenAI with all details has less than 1,000
_FIELDS = re.compile(rb'"(?:usage|usageMetadata|billed_units|tokens)"\s*:\s*(?=\{)')
_COUNTS = re.compile(rb'"(prompt_eval_count|eval_count)"\s*:\s*(\d{1,12})')  # of Ollama, beside the other fields
_MAX_TOKENS = 10**9  # of one answer; more is an error of the upstream, which must not be charged
_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidatesTokenCount", "eval_count")
_decode = json.JSONDecoder().raw_decode  # which ignores the text after the document


class UsageScan:
    """The end of an answer that passes."""

    def __init__(self) -> None:
        self._end = b""

    def feed(self, piece: bytes) -> None:
        self._end = (self._end + piece)[-_KEPT:] if len(piece) < _KEPT else piece[-_KEPT:]

    def find(self) -> Usage | None:
        """Return the last usage that the answer reports, or None."""
        for field in reversed([*_FIELDS.finditer(self._end)]):
            usage = _read(_leading_object(self._end[field.end() :]))
            if usage is not None:
                return usage
        return _read({name.decode(): int(count) for name, count in _COUNTS.findall(self._end)})


def _leading_object(text: bytes) -> dict[str, JSON]:
    """Return the object at the start of a text; empty if it has no end, or is invalid."""
    try:
        document, _ = _decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _read(fields: dict[str, JSON]) -> Usage | None:
    """Return the usage of a provider's fields, or None if they have none that is plausible."""

    def first(names: tuple[str, ...]) -> int:
        return next((count for name in names if type(count := fields.get(name)) is int), 0)

    usage = Usage(first(_INPUT), first(_OUTPUT))
    total = fields.get("total_tokens", fields.get("totalTokenCount"))
    if not usage.input and not usage.output and type(total) is int:
        usage = Usage(total, 0)
    return usage if 0 < usage.total <= _MAX_TOKENS else None
