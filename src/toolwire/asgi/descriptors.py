"""Keep the number of client connections below the number of descriptors that the process may open.

Without a free descriptor an event loop cannot accept a connection, and resets it without a log line. So connections beyond a
limit are answered with 503, and some descriptors are left for health checks, upstreams and files. Idle connections occupy
those for health checks, too, until they time out. A request in flight has a connection to its client and a connection to an upstream.
"""

from __future__ import annotations

import time
from logging import Logger

from .admission import memory_limit

__all__ = ["ConnectionCounts", "max_requests"]

_SHARE = 4  # a quarter of few descriptors is for files, sockets and pipes of the process
# Bytes of a request in flight besides its body, which `limits.memory` bounds: 36 kB of a stream and its two connections
# were measured, and the buffers of the sockets take some of the kernel's memory.
_BYTES_PER_REQUEST = 64 * 1024
_MEMORY_SHARE = 2  # half of the memory is for the program, for bodies and for caches
_MIN_REQUESTS = 16  # also of a process with few descriptors
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
    def from_descriptors(cls, requests: int | None = None) -> ConnectionCounts:
        """Divide the descriptors of this process: `requests` of them are for upstreams, by default as many as for clients."""
        descriptors = _raise_limit()
        reserve = min(_RESERVE, descriptors // 8)
        free = descriptors - min(_FILES, descriptors // _SHARE) - reserve
        return cls(max(free - requests, free // 2) if requests is not None else free // 2, reserve)

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


def max_requests(workers: int = 1) -> int:
    """Return the number of requests that this process, one of `workers`, can have in flight by its descriptors and memory."""
    by_descriptors = ConnectionCounts.from_descriptors().limit
    memory = memory_limit()
    by_memory = by_descriptors if memory is None else memory // _MEMORY_SHARE // workers // _BYTES_PER_REQUEST
    return max(_MIN_REQUESTS, min(by_descriptors, by_memory))


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
