"""One JSON line a request. Never a body, never a key.

{"ts":"2026-11-15T10:00:00.000Z","level":"info","event":"request","request_id":"…","ingress":"anthropic", …}
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from logging import Handler, LogRecord, getLogger
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec import Struct

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_json
from .turn import Turn

__all__ = ["AccessLog", "LogFile", "LogLines", "Write", "to_logger", "to_stderr"]

_PROBES = frozenset({"alive", "ready", "metrics"})
_LONGEST = 200  # characters of a name that comes from outside
_CLEAN = {"clean": True}
_is_our_own = re.compile("[0-9a-f]{24}").fullmatch  # an id that the gateway made up
_encode = msgspec.json.Encoder().encode

Write = Callable[[str], None]


class Tokens(Struct, frozen=True, omit_defaults=True):
    input: int | None = None
    output: int | None = None


class Line(Struct, frozen=True, omit_defaults=True):
    """What is written of a request; what is not known is left out."""

    ts: datetime
    level: str
    event: str
    request_id: str
    ingress: str
    status: int
    ms: float
    action: str = ""
    upstream: str = ""
    model: str = ""
    upstream_model: str = ""
    key: str = ""  # its name
    stream: bool = False
    passed: bool = False
    ttfc_ms: float | None = None
    overhead_ms: float | None = None
    tokens: Tokens | None = None
    stop: str | None = None
    calls: int = 0
    losses: int = 0
    lost: tuple[str, ...] = ()
    repairs: int = 0
    attempts: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    error: str | None = None


class AccessLog:
    """A sink. `clean` is for names that clients choose."""

    def __init__(self, write: Write, clean: Callable[[str], str] = str) -> None:
        self._write = write
        self._clean = lru_cache(4096)(lambda text: clean(text[:_LONGEST]))

    def __call__(self, turn: Turn, /) -> None:
        if turn.action not in _PROBES:
            self._write(neutralise_json(_encode(self.line(turn)).decode()))

    def line(self, turn: Turn) -> Line:
        clean, usage = self._clean, turn.usage
        return Line(
            datetime.fromtimestamp(round(turn.started, 3), UTC),
            _level(turn),
            "request",
            turn.id if _is_our_own(turn.id) else clean(turn.id),
            turn.front,
            turn.status,
            round(turn.seconds * 1000, 3),
            turn.action,
            turn.upstream,
            clean(turn.model),
            clean(turn.upstream_model),
            turn.caller,
            turn.stream,
            turn.passed,
            None if turn.first is None else round(turn.first * 1000, 3),
            round(turn.overhead * 1000, 3) if turn.attempts else None,
            None if usage is None else Tokens(usage.input, usage.output),
            turn.stop,
            len(turn.calls),
            len(turn.losses),
            tuple(sorted({clean(loss.concept) for loss in turn.losses})) if turn.losses else (),
            len(turn.repairs),
            turn.attempts,
            turn.failures,
            turn.error,
        )


def _level(turn: Turn) -> str:
    if turn.status >= 500 or (turn.error is not None and turn.status < 400):
        return "error"
    return "warning" if turn.status >= 400 else "info"


class LogLines(Handler):
    """What else is logged under `toolwire`, in lines of the same kind."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: LogRecord) -> None:
        try:
            self._write(neutralise_json(_encode(_document(record)).decode()))
        except Exception:  # noqa: BLE001  # as every handler does
            self.handleError(record)


def _document(record: LogRecord) -> dict[str, object]:
    line: dict[str, object] = {
        "ts": datetime.fromtimestamp(round(record.created, 3), UTC),
        "level": record.levelname.lower(),
        "event": "log",
        "logger": record.name,
        "message": record.getMessage(),
    }
    if record.exc_text:
        line["traceback"] = record.exc_text
    return line


def to_logger() -> Write:
    """The logger `toolwire.gateway.access`, for those who collect logs in Python."""
    logger = getLogger("toolwire.gateway.access")
    return lambda line: logger.info("%s", line, extra=_CLEAN)


def to_stderr(stream: TextIO | None = None) -> Write:
    def write(line: str) -> None:
        out = stream or sys.stderr
        out.write(line + "\n")
        out.flush()

    return write


class LogFile:
    """A file that grows. Who has moved it away lets it be opened anew: `reopen`."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._out = self._opened()

    def write(self, line: str) -> None:
        self._out.write(line + "\n")

    def reopen(self) -> None:
        """ConfigError where that cannot be; then lines go where they went."""
        before, self._out = self._out, self._opened()
        before.close()

    def close(self) -> None:
        self._out.close()

    def _opened(self) -> TextIO:
        try:
            return self._path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise ConfigError(f"cannot write the log {self._path}: {error.strerror}") from None
