"""A progress bar on standard error. It is drawn on a terminal only, and removed at the end."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

__all__ = ["ProgressBar"]

_WIDTH = 30
_INTERVAL = 0.1  # seconds between two updates


class ProgressBar:
    """Draw finished and total items: `with ProgressBar("encoding") as bar: bar(3, 10)`."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._is_shown = sys.stderr.isatty()
        self._next_time = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
