"""The live view of `toolwire serve` on a terminal: one row per request, and the gateway's own log records between them.

time      key     client     model  answered by  status   ms  tokens  details
13:05:04  alice   anthropic  fast   house/qwen      200  412   90+12  get_weather · failed: openai rate_limit (2 times) · lost: top_k
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from time import localtime, strftime
from typing import TYPE_CHECKING

from ...ir.terminal import neutralise_line
from ..terminal.output import LogFormatter, paint

if TYPE_CHECKING:
    from ...gateway.observe.request_log import RequestLog


_HEADER_INTERVAL = 20  # rows; the header stays in view on a terminal of 24 lines
_MAX_NAMES = 8  # of calls, losses or failed attempts in a row
_MAX_DETAILS = 240  # characters, two lines of a wide terminal
_MAX_LOSSES = 1000  # searched for names; there may be hundreds of thousands
_WIDTHS = {"key": 10, "client": 16, "model": 22, "answered by": 26}


class RequestTable:
    """A sink that prints one row per request. `clean` redacts names that clients choose.

    `report_loss` is called for a row that cannot be printed, to a full disk, or to a pipe that is closed or not read.
    """

    def __init__(self, clean: Callable[[str], str], report_loss: Callable[[str, OSError], None]) -> None:
        from ...gateway.observe.log import to_stream

        self._rows = 0
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
                names = " ".join(f"{name:{width}}" for name, width in _WIDTHS.items())
                self._write(paint(f"{'time':8}  {names} {'':3} {'ms':>7} {'tokens':>9}  details", "dim"))
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
        cells = " ".join(
            f"{self._plain(cell)[:width]:{width}}"
            for cell, width in zip(
                (request_log.caller or "-", request_log.ingress, request_log.model or "-", answered_by),
                _WIDTHS.values(),
                strict=True,
            )
        )
        clock = strftime("%H:%M:%S", localtime(request_log.started))
        details = self._plain(" · ".join(_details(request_log)))[:_MAX_DETAILS]
        return f"{clock}  {cells} {status} {request_log.seconds * 1000:7.0f} {tokens:>9}  {details}".rstrip()

    def _plain(self, text: str) -> str:
        return neutralise_line(self._clean(text))


def _details(request_log: RequestLog) -> list[str]:
    """List the error with its path, the calls, the offered tools, the failed attempts and the losses."""
    details = []
    if request_log.error:
        code = "" if request_log.error_code is None else f" ({request_log.error_code})"
        details.append(f"{request_log.error}{code}: {request_log.method} {request_log.path}")
    if request_log.calls:
        details.append(_join_names(request_log.calls))
    if request_log.declared_tools:
        details.append(f"tools {request_log.offered_tools}/{request_log.declared_tools}")
    if request_log.failures:
        counts = request_log.count_failures().items()
        details.append("failed: " + _join_names(f"{name} {kind}{_times(count)}" for (name, kind), count in counts))
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
            self._write(paint(text, "yellow") if record.levelno >= logging.WARNING else text)
        except OSError:
            pass  # the output is full, closed or not read; a traceback for each record would not help
        except Exception:  # noqa: BLE001  # as every handler does
            self.handleError(record)
