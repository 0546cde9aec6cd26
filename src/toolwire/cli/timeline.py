"""Draw operations as bars on a common time axis, one line each, so that parallel ones are below each other."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from ..ir.terminal import neutralise_line
from .show import paint

__all__ = ["TimelineRow", "draw_timeline", "format_ms"]

_MIN_WIDTH = 80
_MIN_BAR = 12
_MAX_LABEL = 28
_MAX_NOTE = 28
_DURATION = 8  # characters of a duration column


class TimelineRow(NamedTuple):
    """An operation. `end` is None if it never ended; `colour` is that of its bar."""

    label: str
    start: float  # milliseconds
    end: float | None
    note: str = ""
    colour: str = "blue"
    depth: int = 0


def draw_timeline(rows: Sequence[TimelineRow], total: float) -> list[str]:
    """Return the lines of a timeline: label, bar, duration and note. `total` is the length of the axis in milliseconds."""
    width = max(shutil.get_terminal_size((100, 24)).columns, _MIN_WIDTH)
    labels = [_cut("  " * min(row.depth, 6) + neutralise_line(row.label), _MAX_LABEL) for row in rows]
    label_width = max(map(len, labels), default=0)
    note_width = min(max((len(neutralise_line(row.note)) for row in rows), default=0), _MAX_NOTE)
    bar_width = max(width - label_width - _DURATION - note_width - 6, _MIN_BAR)
    end = format_ms(total)
    axis = "0".ljust(bar_width - len(end)) + end
    lines = [paint(f"{' ' * label_width}  {axis}".rstrip(), "dim")]
    for row, label in zip(rows, labels, strict=True):
        bar = paint(_bar(row, total, bar_width), row.colour)
        duration = "no end" if row.end is None else format_ms(row.end - row.start)
        note = _cut(neutralise_line(row.note), note_width)
        lines.append(f"{label.ljust(label_width)}  {bar}  {duration.rjust(_DURATION)}  {note}".rstrip())
    return lines


def _bar(row: TimelineRow, total: float, width: int) -> str:
    """Return the bar of a row: at least one character, and never longer than the axis."""
    scale = width / total if total > 0 else 0.0
    first = min(int(row.start * scale), width - 1)
    last = width if row.end is None else math.ceil(row.end * scale)
    length = max(min(last, width) - first, 1)
    body = "━" * length if row.end is not None else "━" * (length - 1) + "╌"
    return (" " * first + body).ljust(width)


def format_ms(ms: float) -> str:
    """Format a duration: 0.4 ms, 412 ms, 1.84 s, 12 min.

    >>> [format_ms(ms) for ms in (0.42, 412.6, 1842.0, 720_000.0)]
    ['0.4 ms', '413 ms', '1.84 s', '12.0 min']
    """
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.2f} s" if ms < 120_000 else f"{ms / 60_000:.1f} min"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
