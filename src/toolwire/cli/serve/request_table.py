"""The live view of `toolwire serve` on a terminal: one row per request, and the gateway's own log records between them.

time      key     client     model  answered by  status   ms  tokens  details
13:05:04  alice   anthropic  fast   house/qwen      200  412   90+12  get_weather · failed: openai rate_limit (2 times) · lost: top_k

On a narrow terminal the details have lines of their own, names wrap, and the least important ones are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from time import localtime, strftime
from typing import TYPE_CHECKING

from ...ir.terminal import neutralise_line
from ...ir.text import shorten
from ..terminal.layout import wrap_text
from ..terminal.output import LogFormatter, paint, terminal_width, text_lines

if TYPE_CHECKING:
    from ...gateway.observe.request_log import RequestLog


_HEADER_INTERVAL = 20  # rows; the header stays in view on a terminal of 24 lines
_MAX_NAMES = 8  # of calls, losses or failed attempts in a row
_MAX_DETAILS = 240  # characters, two lines of a wide terminal
_MAX_LOSSES = 1000  # searched for names; there may be hundreds of thousands
_WIDTHS = {"key": 10, "client": 16, "model": 22, "answered by": 26}  # the least important name first
_MIN_NAME = 11  # characters; names wrap, and in narrower columns they would have more lines than the details
_MAX_NAME_LINES = 3  # of a name that a client chose
_FIXED = 33  # characters of the time, the status, the milliseconds, the tokens and the spaces around them
_MIN_DETAILS = 30  # characters; a narrower column of details would be higher than the rows are many
_INDENT = 10  # of details on lines of their own, below the names


class RequestTable:
    """A sink that prints one row per request. `clean` redacts names that clients choose.

    `report_loss` is called for a row that cannot be printed, to a full disk, or to a pipe that is closed or not read.
    """

    def __init__(self, clean: Callable[[str], str], report_loss: Callable[[str, OSError], None]) -> None:
        from ...gateway.observe.log import to_stream

        self._rows = 0
        self._fit(terminal_width())
        self._write = to_stream("stdout")
        self._report_loss = report_loss
        self._clean = clean

    def __call__(self, request_log: RequestLog, /) -> None:
        """Print a finished request; repeat the header every 20 rows.

        A row that cannot be written is reported to `_report_loss`.
        """
        if request_log.status and not request_log.model and request_log.error is None:
            return  # health checks and model lists
        try:
            if self._rows % _HEADER_INTERVAL == 0:
                self._fit(terminal_width())
                names = " ".join(f"{name[:width]:{width}}" for name, width in self._widths.items())
                details = "  details" if self._is_wide else ""
                self._write(paint(f"{'time':8}  {names} {'':3} {'ms':>7} {'tokens':>9}{details}", "dim"))
            self._rows += 1
            self._write(self.format_row(request_log))
        except OSError as error:
            self._report_loss("row", error)

    def format_row(self, request_log: RequestLog) -> str:
        """Format one row; text from clients and models is redacted and has no control characters."""
        status = paint(f"{request_log.status}", "red" if request_log.error else "green")
        usage = request_log.usage
        tokens = "" if usage is None else f"{usage.input or 0}+{usage.output or 0}"
        answered_by = f"{request_log.upstream}/{request_log.upstream_model}" if request_log.upstream else "-"
        names = {
            "key": request_log.caller or "-",
            "client": request_log.ingress,
            "model": request_log.model or "-",
            "answered by": answered_by,
        }
        first, *others = self._name_lines(names)
        clock = strftime("%H:%M:%S", localtime(request_log.started))
        row = f"{clock}  {first} {status} {request_log.seconds * 1000:7.0f} {tokens:>9}"
        details = self._plain(" · ".join(_details(request_log)))[:_MAX_DETAILS]
        if self._is_wide:
            return f"{row}  {details}".rstrip()
        others += wrap_text(details, max(self._width - _INDENT, 20)) if details else []
        return "\n".join([row, *(" " * _INDENT + line.rstrip() for line in others)])

    def _name_lines(self, names: dict[str, str]) -> list[str]:
        """Return the lines of the names that are shown; they wrap in a narrow terminal."""
        cells: list[list[str]] = []
        for name, width in self._widths.items():
            text = shorten(self._plain(names[name]), width if self._is_wide else width * _MAX_NAME_LINES)
            cells.append([f"{part:{width}}" for part in ([text] if self._is_wide else wrap_text(text, width))])
        blank = [" " * width for width in self._widths.values()]
        count = max(map(len, cells))
        return [
            " ".join(cell[number] if number < len(cell) else space for cell, space in zip(cells, blank, strict=True))
            for number in range(count)
        ]

    def _fit(self, width: int) -> None:
        """Choose the names that are shown, their widths, and the place of the details."""
        self._width, self._widths = width, dict(_WIDTHS)
        self._is_wide = width - _FIXED - _names_width(self._widths) >= _MIN_DETAILS
        if self._is_wide:
            return
        while _names_width(self._widths) > width - _FIXED and len(self._widths) > 1:
            widest = max(self._widths, key=self._widths.__getitem__)
            if self._widths[widest] > _MIN_NAME:
                self._widths[widest] -= 1
            else:
                del self._widths[next(iter(self._widths))]

    def _plain(self, text: str) -> str:
        return neutralise_line(self._clean(text))


def _names_width(widths: dict[str, int]) -> int:
    return sum(widths.values()) + len(widths) - 1


def _details(request_log: RequestLog) -> list[str]:
    """List the error with its path, the calls, the runs of hosted tools, the offered tools, the failed attempts and the losses."""
    details = []
    if request_log.error:
        code = "" if request_log.error_code is None else f" ({request_log.error_code})"
        details.append(f"{request_log.error}{code}: {request_log.method} {request_log.path}")
    if request_log.calls:
        details.append(_join_names(request_log.calls))
    if request_log.hosted_runs:
        counts = request_log.hosted_runs.items()
        details.append("ran " + _join_names(f"{kind}{_times(count)}" for kind, count in counts))
    if request_log.declared_tools:
        details.append(f"tools {request_log.offered_tools}/{request_log.declared_tools}")
    if request_log.failures:
        failed = request_log.count_failures().items()
        details.append("failed: " + _join_names(f"{name} {kind}{_times(count)}" for (name, kind), count in failed))
    losses = islice(request_log.losses, _MAX_LOSSES)
    lost = dict.fromkeys(loss.concept for loss in losses if loss.severity != "info")
    if lost:
        details.append("lost: " + _join_names(lost))
    return details


def _join_names(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - _MAX_NAMES
    return ", ".join(shown[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _times(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"


class TableLogHandler(logging.Handler):
    """Print log records of the gateway between the rows of the table."""

    def __init__(self) -> None:
        from ...gateway.observe.log import to_stream

        super().__init__()
        self._write = to_stream("stdout")
        self.setFormatter(LogFormatter("%(asctime)s  %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            colour = "yellow" if record.levelno >= logging.WARNING else None
            first, *others = text_lines(text[_INDENT:], " " * _INDENT) or [""]
            self._write("\n".join(paint(line, colour) for line in (text[:_INDENT] + first[_INDENT:], *others)))
        except OSError:
            pass  # the output is full, closed or not read; a traceback for each record would not help
        except Exception:  # noqa: BLE001  # as every handler does
            self.handleError(record)
