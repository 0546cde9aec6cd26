"""Format the log records of a command for standard error: one line each, without terminal escape sequences.

Records contain text of servers and tools: error messages, names, arguments. Other libraries (asyncio) log records of
several lines on purpose; those keep their line breaks.
"""

from __future__ import annotations

import logging
from types import TracebackType

from ...ir.terminal import neutralise_line, neutralise_text


class LogFormatter(logging.Formatter):
    """A formatter that escapes control characters; records of toolwire are limited to one line."""

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
