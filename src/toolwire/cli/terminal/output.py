"""Output of the commands: tables, colours, columns, progress bars and log lines.

Output is plain text without a terminal or with NO_COLOR. A progress bar is drawn on a terminal only.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from types import TracebackType
from typing import Any, Self, TextIO

from ...ir.losses import Loss
from ...ir.terminal import neutralise_json, neutralise_line, neutralise_text, reveal_line
from .layout import GAP, lay_out, text_width, wrap_command, wrap_text

_COLOURS = {
    "red": "31",
    "yellow": "33",
    "green": "32",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "dim": "2",
    "bold": "1",
}
_MAX_COLUMNS = 10_000  # a larger COLUMNS is a mistake, and lines are padded to it
_USUAL_COLUMNS = 100  # of a terminal that does not know its width, and of a rule below the headers in a file
_COMMAND = re.compile(r"(?:pip|toolwire) ")  # the begin of a hint that is a command
_QUOTED_COMMAND = re.compile(r"`[^`]{1,60}`")  # longer ones do not fit a line
SEVERITIES = {"error": "red", "warning": "yellow", "info": "blue"}
# One colour for one meaning in every table: header, then cell.
_CELL_COLOURS = {
    "severity": SEVERITIES,
    "level": SEVERITIES,
    "effect": {"pure": "green", "read": "green", "idempotent": "yellow", "write": "yellow"},
    "wire": {
        "openai_chat": "green",
        "openai_responses": "cyan",
        "anthropic": "yellow",
        "gemini": "blue",
        "gemini_interactions": "blue",
        "ollama": "magenta",
        "cohere": "red",
    },
    "key": {"set": "green", "missing": "yellow", "not needed": "dim"},
    "status": {
        "waiting": "yellow",
        "ready": "cyan",
        "running": "blue",
        "interrupted": "red",
        "done": "green",
        "failed": "red",
    },
}


def paint(text: str, colour: str | None, stream: TextIO | None = None) -> str:
    """Colour `text` if the stream (default: standard output) is a terminal and NO_COLOR is not set."""
    if colour is None or not (stream or sys.stdout).isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def clear_screen() -> None:
    """Clear the terminal, unless it has no cursor that can be moved."""
    if os.environ.get("TERM") != "dumb":
        print("\x1b[2J\x1b[H", end="")


def json_text(document: Any, *, sort_keys: bool = False) -> str:
    """Format a JSON document for a terminal or a pipe: indented, with control characters escaped."""
    return neutralise_json(json.dumps(document, indent=2, sort_keys=sort_keys, ensure_ascii=False))


def terminal_width(stream: TextIO | None = None) -> int:
    """Return COLUMNS, or the width of the terminal of a stream (default: standard output).

    A file or a pipe has no width: a row is one line there, for programs that search or cut lines.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) <= 5 and 0 < int(given) <= _MAX_COLUMNS:
        return int(given)
    stream = stream or sys.stdout
    try:
        if not stream.isatty():
            return sys.maxsize
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):  # closed, or without a descriptor: the window of a program
        return _USUAL_COLUMNS


def table(
    rows: Iterable[Sequence[str]],
    headers: Sequence[str] = (),
    *,
    bold: bool = False,
    hide: Sequence[str] = (),
    indent: str = "",
    stream: TextIO | None = None,
) -> list[str]:
    """Return the lines of a table for a stream (default: standard output); it fits the terminal (`layout`).

    `bold`: print the headers in bold. `hide`: columns that a narrow terminal leaves out, the least important one first.
    `indent` begins every line.
    """
    headers = tuple(map(neutralise_line, headers))
    rows = [(*map(_name_text, row[:-1]), *map(neutralise_line, row[-1:])) for row in rows]
    if not rows and not headers:
        return []
    is_terminal = (stream or sys.stdout).isatty()
    layout = lay_out(rows, headers, terminal_width(stream) - len(indent), hide if is_terminal else ())
    lines = []
    is_headed = bool(headers and layout.columns)
    for number, row_lines in enumerate(layout.rows):
        if number == 0 and is_headed:
            heads = [GAP.join(pieces).rstrip() for pieces in row_lines]
            lines += [paint(head, "bold" if bold else None, stream) for head in heads]
            *widths, last = layout.widths
            lines.append(GAP.join("─" * width for width in (*widths, min(last, _USUAL_COLUMNS))))
            continue
        row = rows[number - is_headed]
        colours = (
            [_CELL_COLOURS.get(headers[column], {}).get(row[column]) for column in layout.columns] if headers else []
        )
        for pieces in row_lines:
            painted = [paint(piece, colour, stream) for piece, colour in zip_longest(pieces, colours)]
            lines.append(GAP.join(painted).rstrip())
    if layout.hidden:
        them = "it" if len(layout.hidden) == 1 else "them"
        note = f"not shown: {', '.join(layout.hidden)} (a wider terminal shows {them})"
        lines += [paint(line, "dim", stream) for line in paragraph(note, stream=stream)]
    return [f"{indent}{line}" for line in lines] if indent else lines


def paragraph(text: str, indent: str = "", stream: TextIO | None = None) -> list[str]:
    """Return the lines of untrusted text. On a terminal they wrap at spaces, and names stay whole."""
    text = neutralise_line(text)
    if not (stream or sys.stdout).isatty():  # programs search messages
        return [indent + text]
    return [indent + line for line in wrap_text(text, terminal_width(stream) - len(indent), splits_words=False)]


def command_lines(text: str, indent: str = "", stream: TextIO | None = None) -> list[str]:
    """Return the lines of a command, after a text. On a terminal they wrap, and a shell reads them as one."""
    text = neutralise_line(text)
    if not (stream or sys.stdout).isatty():
        return [indent + text]
    first, *others = wrap_command(text, terminal_width(stream) - len(indent) - 4)
    return [indent + first, *(f"{indent}    {other}" for other in others)]


def address_lines(about: str, address: str, note: str = "(Ctrl-C stops it)") -> list[str]:
    """Return the lines of a server's address, green after an untrusted text; the note follows on the line if it fits."""
    lines = paragraph(f"{about} {address}")
    if sys.stdout.isatty() and text_width(lines[-1]) + len(note) + 3 > terminal_width():
        lines.append(note)
    else:
        lines[-1] += f"   {note}"
    return [line.replace(address, paint(address, "green")) for line in lines]


def text_lines(text: str, indent: str = "", stream: TextIO | None = None) -> list[str]:
    """Return the lines of an untrusted text of several lines. On a terminal each wraps, below its own indentation."""
    lines = []
    for line in neutralise_text(text).splitlines():
        words = line.lstrip()
        own = indent + line[: len(line) - len(words)]
        is_terminal = (stream or sys.stdout).isatty()
        wrapped = wrap_text(words, max(terminal_width(stream) - len(own), 1)) if is_terminal else [words]
        lines += [(own + part).rstrip() for part in wrapped]
    return lines


def print_text(text: str) -> None:
    """Print a sentence or several lines, which are untrusted text, to standard output. On a terminal they wrap."""
    print("\n".join(text_lines(text)))


def print_note(text: str, colour: str | None = "yellow") -> None:
    """Print a line about the input, which is untrusted text, to standard error. On a terminal it wraps at spaces."""
    first, *others = paragraph(text, "  ", sys.stderr)
    for line in (first[2:], *others):
        print(paint(line, colour, sys.stderr), file=sys.stderr)


def print_error(message: str, hint: str = "", *, program: str = "toolwire") -> None:
    """Print an error, which is untrusted text, to standard error: `toolwire: message (hint)`.

    On a terminal, the program is red, and commands can be copied: a hint that is a command has a line of its own, which
    only the terminal breaks, and a command in backticks stays on one line.
    """
    is_terminal = sys.stderr.isatty()
    own_line = hint if is_terminal and _COMMAND.match(hint) else ""
    text = neutralise_line(f"{program}: {message}" + (f" ({hint})" if hint and not own_line else ""))
    if is_terminal:
        text = _QUOTED_COMMAND.sub(lambda quoted: quoted[0].replace(" ", "\xa0"), text)
    first, *others = (line.replace("\xa0", " ") if is_terminal else line for line in paragraph(text, "  ", sys.stderr))
    first = first[2:]
    if first.startswith(f"{program}:"):
        first = paint(f"{program}:", "red", sys.stderr) + first[len(program) + 1 :]
    print("\n".join([first, *others, *([f"  {neutralise_line(own_line)}"] if own_line else ())]), file=sys.stderr)


def print_command(command: str, purpose: str) -> None:
    """Print what to do next to standard error: a command, which stays whole, and its purpose beside or below it."""
    is_narrow = sys.stderr.isatty() and text_width(f"{command}   {purpose}") > terminal_width(sys.stderr)
    print(f"{command}{chr(10) if is_narrow else ''}   {paint(purpose, 'dim', sys.stderr)}", file=sys.stderr)


def _name_text(text: str) -> str:
    """Return a cell before the last one. Without a space it is a name; two names must not look the same."""
    return neutralise_line(text) if " " in text else reveal_line(text)


def losses_table(losses: Sequence[Loss], stream: TextIO) -> list[str]:
    """Return the lines of a table of losses, sorted by severity, errors first."""
    order = list(SEVERITIES)
    ranked = sorted(losses, key=lambda loss: order.index(loss.severity))
    rows = [(loss.severity, _location(loss), f"{loss.concept} {loss.action}", loss.detail) for loss in ranked]
    return table(rows, ("severity", "location", "loss", "reason"), stream=stream)


def print_losses(title: str, losses: Sequence[Loss]) -> None:
    """Print the number of losses after a title, and their table, to standard error."""
    count = f"{len(losses)} {'loss' if len(losses) == 1 else 'losses'}" if losses else "no losses"
    print("\n".join([f"\n{title}{count}", *(losses_table(losses, sys.stderr) if losses else ())]), file=sys.stderr)


def _location(loss: Loss) -> str:
    """Return the pointer into the source, and the one into the target if it is another one."""
    path = loss.path or "/"
    return path if loss.target is None or loss.target == loss.path else f"{path} → {loss.target or '/'}"


def columns(texts: Mapping[str, str]) -> list[str]:
    """Return the lines of texts side by side under their titles, or one after the other on a narrow terminal."""
    texts = {neutralise_line(title): neutralise_text(text) for title, text in texts.items()}
    width = terminal_width() // max(len(texts), 1) - 3
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
    """Wrap a line of code; its other lines are indented more than the first."""
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    first, *others = wrap_text(text, max(width - len(indent) - 2, 1))
    return [indent + first, *(f"{indent}  {other}" for other in others)]


_MAX_BAR = 30  # characters; longer bars show no more
_INTERVAL = 0.1  # seconds between two updates
_ESTIMATE_AFTER = 1.0  # seconds of work; a shorter beginning does not show the speed


class ProgressBar:
    """Draw finished and total items and the time left: `with ProgressBar("encoding") as bar: bar(3, 10)`."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._is_shown = sys.stderr.isatty()
        self._started = self._next_time = time.monotonic()

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
        text = f"{done}/{total}"
        seconds = now - self._started
        if done and seconds >= _ESTIMATE_AFTER:
            text += f", {format_seconds(max(seconds * (total - done) / done, 0))} left"
        self._draw(done, total, text)

    def _draw(self, done: int, total: int, text: str) -> None:
        # The last column stays free: some terminals begin a new line after it, which could not be redrawn.
        width = terminal_width(sys.stderr) - 1
        room = max(min(width - text_width(self.label) - len(text) - 2, _MAX_BAR), 0)
        filled = room * done // max(total, 1)
        bar = f"{'█' * filled}{'░' * (room - filled)} " if total else ""
        print(f"\r\x1b[K{f'{self.label} {bar}{text}'[:width]}", end="", file=sys.stderr, flush=True)


@contextmanager
def show_waiting(label: str, limit: float | None = None) -> Iterator[None]:
    """Draw the seconds of a work whose length is unknown, and the most that it can take, if there is such a limit."""
    ended = threading.Event()

    def draw() -> None:
        started = time.monotonic()
        while not ended.wait(_ESTIMATE_AFTER):  # nothing is drawn for work that ends within it
            text = format_seconds(time.monotonic() - started)
            bar._draw(0, 0, text if limit is None else f"{text} of at most {format_seconds(limit)}")

    with ProgressBar(label) as bar:
        thread = threading.Thread(target=draw, name="toolwire-waiting", daemon=True)
        if sys.stderr.isatty():
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()


def format_seconds(seconds: float) -> str:
    """Return a duration in its two largest units.

    >>> format_seconds(4.2), format_seconds(75), format_seconds(7300)
    ('4 s', '1 min 15 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


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
