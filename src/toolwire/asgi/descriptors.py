"""Keep the number of client connections below the number of descriptors that the process may open.

Without a free descriptor an event loop cannot accept a connection, and resets it without a log line. So connections beyond a
limit are answered with 503, and some descriptors are left for health checks, upstreams and files. Idle connections occupy
those for health checks, too, until they time out.
"""

from __future__ import annotations

import time
from logging import Logger

__all__ = ["ConnectionCounts"]

_SHARE = 4  # a quarter of few descriptors is for upstreams, another one for files, sockets and pipes of the process
_UPSTREAMS = 512  # descriptors
_FILES = 128
_RESERVE = 32  # connections beyond the limit that are served, for health checks
_UNLIMITED = 1_000_000
_REPORT_INTERVAL = 10.0  # seconds


class ConnectionCounts:
    """The maximum number of client connections, and of those beyond it that may still send a health check."""

    def __init__(self, limit: int, reserve: int) -> None:
        self.limit = limit
        self.reserve = reserve
        self._reported_at = float("-inf")

    @classmethod
    def from_descriptors(cls) -> ConnectionCounts:
        """Divide the descriptors of this process, after raising their number as far as it is allowed."""
        descriptors = _raise_limit()
        reserve = min(_RESERVE, descriptors // 8)
        return cls(
            descriptors - min(_UPSTREAMS, descriptors // _SHARE) - min(_FILES, descriptors // _SHARE) - reserve, reserve
        )

    def report(self, count: int, log: Logger) -> None:
        """Log that there are too many connections, at most every ten seconds."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_INTERVAL:
            self._reported_at = now
            log.error(
                "%d client connections; the limit is %d: only health checks are served (raise the limit of descriptors, "
                "`ulimit -n`, or add machines)",
                count,
                self.limit,
            )


def _raise_limit() -> int:
    """Raise the number of descriptors to the maximum for this process, and return it."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # some systems report a maximum that they do not allow
    return _UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, _UNLIMITED)
