"""Log losses that no caller collects: each distinct one once, as a warning, so that no loss is silent.

A conversation repeats its losses with every request; repetitions are logged at the level DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..ir.losses import Loss

__all__ = ["LossLog"]

_MAX_DISTINCT = 1000  # details may contain values of requests


class LossLog:
    """The losses that one client has logged."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._seen: set[tuple[str, str, str]] = set()

    def report(self, losses: Iterable[Loss]) -> None:
        """Log losses: new ones as warnings, those of severity `info` and repetitions for debugging."""
        for loss in losses:
            key = (loss.concept, loss.action, loss.detail)
            is_new = loss.severity != "info" and key not in self._seen and len(self._seen) < _MAX_DISTINCT
            if is_new:
                self._seen.add(key)
            self._log.log(logging.WARNING if is_new else logging.DEBUG, "%s", loss)
