"""Compare a repeated run with its recording: find the first difference of two JSON documents.

Recorded strings may have been redacted or cut; such a string matches any text with the same remaining pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..ir.errors import ToolwireError
from ..ir.pointer import JSON
from ..ir.text import dumps
from ..ir.value import Value
from .redact import REMOVED
from .results import NOTES_KEY

__all__ = ["Difference", "ReplayDifference", "first_difference", "without_notes"]

_MARKER = re.compile(rf"{re.escape(REMOVED)}|…\[cut: \d+ characters\]")
_MAX_SHOWN = 300  # characters of a value in a message
_ABSENT = object()


class Difference(Value, frozen=True):
    """The first difference. `step` names the operation, `pointer` the location in its document."""

    step: str
    pointer: str
    expected: str
    got: str

    def __str__(self) -> str:
        place = f"{self.step}, {self.pointer}" if self.pointer else self.step
        return f"{place}\n  recorded: {self.expected}\n  replayed: {self.got}"


class ReplayDifference(ToolwireError):
    """The replay of a run differs from its recording; `difference` is the first one."""

    def __init__(self, difference: Difference, hint: str = "") -> None:
        last_line = f"\n  hint: {hint}" if hint else ""
        super().__init__(f"the replay differs from the recording at {difference}{last_line}")
        self.difference = difference


def first_difference(step: str, expected: JSON, got: JSON) -> Difference | None:
    """Return the first difference of two documents in the order of the recorded one; None if they match."""
    for pointer, one, other in _differences(expected, got, ""):
        return Difference(step, pointer, _show(one), _show(other))
    return None


def _differences(expected: Any, got: Any, pointer: str) -> Iterator[tuple[str, Any, Any]]:
    if expected == REMOVED and got is not _ABSENT:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in [*expected, *(name for name in got if name not in expected)]:
            inner = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            yield from _differences(expected.get(name, _ABSENT), got.get(name, _ABSENT), inner)
    elif isinstance(expected, list) and isinstance(got, list):
        for index in range(max(len(expected), len(got))):
            one = expected[index] if index < len(expected) else _ABSENT
            yield from _differences(one, got[index] if index < len(got) else _ABSENT, f"{pointer}/{index}")
    elif isinstance(expected, str) and isinstance(got, str):
        if not _matches(expected, got):
            yield pointer, expected, got
    elif type(expected) is not type(got) or expected != got:
        yield pointer, expected, got


def _matches(recorded: str, text: str) -> bool:
    """Compare strings; a marker in the recorded one matches any text. Linear in both lengths."""
    if recorded == text:
        return True
    pieces = _MARKER.split(recorded)
    if len(pieces) == 1 or not text.startswith(pieces[0]):
        return False
    position = len(pieces[0])
    for piece in pieces[1:-1]:
        position = text.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return len(text) - len(pieces[-1]) >= position and text.endswith(pieces[-1])


def _show(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"


def without_notes(value: JSON) -> JSON:
    """Remove the notes of the runtime from results: they are never sent to a model."""
    if isinstance(value, dict):
        cleaned = {name: without_notes(item) for name, item in value.items() if name != NOTES_KEY}
        if cleaned.get("extra") == {}:
            del cleaned["extra"]
        return cleaned
    return [without_notes(item) for item in value] if isinstance(value, list) else value
