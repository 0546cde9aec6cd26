"""Output of the commands: tables, colours, columns, progress bars and log lines.

Output is plain text without a terminal or with NO_COLOR. A progress bar is drawn on a terminal only.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from ...ir.losses import Loss
from ...ir.terminal import neutralise_json, neutralise_line, neutralise_text, reveal_line

_COLOURS = {"red": "31", "yellow": "33", "green": "32", "blue": "34", "dim": "2", "bold": "1"}
_SEVERITIES = {"error": "red", "warning": "yellow", "info": "blue"}


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Colour `text` if the stream (default: standard output) is a terminal and NO_COLOR is not set."""
    if not (stream or sys.stdout).isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def json_text(document: Any, *, sort_keys: bool = False) -> str:
    """Format a JSON document for a terminal or a pipe: indented, with control characters escaped."""
    return neutralise_json(json.dumps(document, indent=2, sort_keys=sort_keys, ensure_ascii=False))


def table(rows: Iterable[Sequence[str]], headers: Sequence[str] = (), *, bold: bool = False) -> list[str]:
    """Return the lines of a table. Columns fit their content; the last one is wrapped at the terminal width.

    `bold`: print the headers in bold.
    """
    rows = [(*map(_name_text, row[:-1]), *map(neutralise_line, row[-1:])) for row in rows]
    every = [tuple(headers), *rows] if headers else rows
    widths = [max(len(row[column]) for row in every) for column in range(len(every[0]))] if every else []
    room = max(shutil.get_terminal_size((100, 24)).columns - sum(widths[:-1]) - 2 * len(widths), 30)
    lines: list[str] = []
    for number, row in enumerate(every):
        head = "  ".join(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False))
        wrapped = textwrap.wrap(row[-1], room) if len(row[-1]) > room else [row[-1]]
        lines.append(f"{head}  {wrapped[0]}".rstrip())
        lines += [f"{' ' * len(head)}  {line}" for line in wrapped[1:]]
        if headers and number == 0:
            lines.append("  ".join("─" * width for width in (*widths[:-1], min(widths[-1], room))))
    return [paint(lines[0], "bold"), *lines[1:]] if bold else lines


def print_note(text: str, colour: str = "yellow") -> None:
    """Print a line about the input, which is untrusted text, to standard error."""
    print(paint(neutralise_line(text), colour, sys.stderr), file=sys.stderr)


def _name_text(text: str) -> str:
    """Return a cell before the last one. Without a space it is a name; two names must not look the same."""
    return neutralise_line(text) if " " in text else reveal_line(text)


def losses_table(losses: Sequence[Loss], stream: TextIO) -> list[str]:
    """Return the lines of a table of losses, sorted by severity, errors first."""
    order = list(_SEVERITIES)
    ranked = sorted(losses, key=lambda loss: order.index(loss.severity))
    rows = [(loss.severity, _location(loss), f"{loss.concept} {loss.action}", loss.detail) for loss in ranked]
    lines = table(rows, ("severity", "location", "loss", "reason"))
    return [_paint_severity(line, stream) for line in lines]


def print_losses(title: str, losses: Sequence[Loss]) -> None:
    """Print the number of losses after a title, and their table, to standard error."""
    count = f"{len(losses)} {'loss' if len(losses) == 1 else 'losses'}" if losses else "no losses"
    print("\n".join([f"\n{title}{count}", *(losses_table(losses, sys.stderr) if losses else ())]), file=sys.stderr)


def _location(loss: Loss) -> str:
    """Return the pointer into the source, and the one into the target if it is another one."""
    path = loss.path or "/"
    return path if loss.target is None or loss.target == loss.path else f"{path} → {loss.target or '/'}"


def _paint_severity(line: str, stream: TextIO) -> str:
    severity = line.split(" ", 1)[0]
    if severity in _SEVERITIES:
        return paint(severity, _SEVERITIES[severity], stream) + line[len(severity) :]
    return line


def columns(texts: Mapping[str, str]) -> list[str]:
    """Return the lines of texts side by side under their titles, or one after the other on a narrow terminal."""
    texts = {neutralise_line(title): neutralise_text(text) for title, text in texts.items()}
    total = shutil.get_terminal_size((100, 24)).columns
    width = total // max(len(texts), 1) - 3
    if not sys.stdout.isatty() or width < 36:
        return [line for title, text in texts.items() for line in (paint(f"── {title} ──", "bold"), text, "")]
    wrapped = {
        title: [piece for line in text.splitlines() for piece in _wrap(line, width)] for title, text in texts.items()
    }
    height = max(map(len, wrapped.values()))
    lines = [" │ ".join(paint(title.ljust(width), "bold") for title in wrapped)]
    for row in range(height):
        cells = [block[row] if row < len(block) else "" for block in wrapped.values()]
        lines.append(" │ ".join(cell.ljust(width) for cell in cells))
    return lines


def _wrap(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=True, drop_whitespace=False) or [""]


_WIDTH = 30  # characters; fits with label and numbers into 80 columns
_INTERVAL = 0.1  # seconds between two updates


class ProgressBar:
    """Draw finished and total items: `with ProgressBar("encoding") as bar: bar(3, 10)`."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._is_shown = sys.stderr.isatty()
        self._next_time = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._is_shown or (now < self._next_time and done < total):
            return
        self._next_time = now + _INTERVAL
        filled = _WIDTH * done // max(total, 1)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        print(f"\r\x1b[K{self.label} {bar} {done}/{total}", end="", file=sys.stderr, flush=True)


class LogFormatter(logging.Formatter):
    """A formatter that escapes control characters; records of toolwire are limited to one line.

    Records contain text of servers and tools: error messages, names, arguments. Other libraries (asyncio) log records of
    several lines on purpose; those keep their line breaks.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name that logging requires
        text = super().formatMessage(record)
        return neutralise_line(text) if record.name.partition(".")[0] == "toolwire" else neutralise_text(text)

    def formatException(  # noqa: N802
        self, exc_info: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return neutralise_text(super().formatException(exc_info))


def neutralise_default_log() -> None:
    """Format records without a configured handler, which logging writes to standard error unchanged."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogFormatter())
