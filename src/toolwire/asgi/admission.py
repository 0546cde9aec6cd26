"""Admission of connections and requests: a server refuses the excess at once, so that it answers the others in time.

`Admission` bounds requests by their number and by the queueing time of the CPU. `ConnectionCounts` bounds connections
by the descriptors of the process.

Without a bound, requests wait, clients give up, and the server works for clients that are gone. There are two bounds:

    requests in flight    each needs memory and two descriptors, for the client and for the upstream
    queueing time         of the CPU

Requests in flight are no measure of the CPU: 4,000 slow streams need little of it, 50 large translations need all. The
signal for the CPU is the delay of a timer. Everything that happens during a turn of the event loop waits for its end:
new connections, requests, answers of upstreams. So the delay is the queueing time of all of them, and it costs a
request nothing to measure. Large requests wait for threads, too; `Offload.is_late` is the bound on that wait, for each
client.

    calm          Nothing is refused. The delay is measured every 10 ms while requests are in flight. Three delays in a
                  row above the bound, over 200 ms or more, begin an overload. A burst, or a single long turn, does not:
                  only a queue that never becomes short is one (CoDel, RFC 8289, section 4). At four times the capacity
                  each turn is four times as long as the turn before. So after a late turn the 129th request of the next
                  one begins the overload, 50 ms after the last turn in time.
    overloaded    Each turn starts at most two requests and refuses the others that arrive in it, so a turn lasts about
                  as long as two requests and those refusals need. After a turn that was not late at all, their number
                  is doubled. One second without a refusal ends an overload.

A number of requests per turn that adapts to the delay was tried: if refusals alone, or other programs on the machine,
make turns long, it falls to one, and so does the throughput. A fixed number needs no tuning: more expensive requests
make longer turns, but they also last longer without overload. Refusing everything until the delay is short again was
not tried: several turns of requests would be admitted before the next measurement, so the latency should oscillate.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from logging import Logger, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from .http_exchange import HeaderPairs


ExceededBound: TypeAlias = Literal["requests", "delay"]
"""The bound that a refused request exceeds."""

_log = getLogger("toolwire.asgi")
_CALM_PERIOD = 0.01  # seconds; 100 timers a second are few beside the requests of a busy process
_TURN_PERIOD = 0.001  # seconds; shorter than any turn of an overloaded loop, and longer than the resolution of timers
_MIN_LATE = 3  # delays in a row; one long turn gives a single delay
# Seconds: longer than most bursts, and than the periods in which a control group limits the CPU (0.1 s).
_INTERVAL = 0.2
_RECOVERY = 1.0  # seconds without a refusal, several times the interval: an overload that pauses is not over
_REPORT_INTERVAL = 10.0  # seconds between two log lines: an overload refuses thousands of requests in this time
# Requests per turn. A request needs three turns or more, so those in flight are about seven, and each of them waits for the
# others: at four times the capacity the median of `bench/gateway/overload.py` was 7 ms, with 5 requests per turn 17 ms. The
# goodput is the same, since a loop that always has two requests to start is never idle.
_QUOTA = 2
_CALM_QUOTA = 128  # requests in 10 ms, many times more than a process can serve
_SHORT_INTERVAL = 0.05  # seconds; a quarter of the interval, for queues that grow fast
_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


class Admission:
    """The requests in flight, and the decision about the next one. `limit`: the number of requests in flight.

    `max_delay`: seconds of queueing in the event loop.
    The application adds its requests to `in_flight`, and removes them. The server calls `is_excess` before each, which subtracts it
    from `remaining`, the number that this turn may still start.
    """

    __slots__ = (
        *("_calm_at", "_clock", "_last_refusal_at", "_late_turns", "_measured_at", "_quota"),
        *("_refused", "_reported_at"),
        *("in_flight", "is_measuring", "is_overloaded", "limit", "max_delay", "on_refusal", "remaining"),
    )

    def __init__(self, limit: int, max_delay: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.max_delay = max_delay
        self.in_flight = 0
        self.on_refusal: Callable[[ExceededBound], object] | None = None
        self._refused = 0  # requests
        self.is_measuring = False
        self._clock = clock
        self.is_overloaded = False
        self._measured_at = 0.0  # by the clock, as all times here
        self._calm_at = 0.0
        self._late_turns = 0
        self._quota = _QUOTA
        self.remaining = _CALM_QUOTA
        self._last_refusal_at = 0.0
        self._reported_at = float("-inf")

    def is_excess(self) -> bool:
        """Count the next request in this turn, and return whether it exceeds a bound."""
        if not self.is_measuring:
            self.start_measuring()
        self.remaining -= 1
        return (self.remaining < 0 or self.in_flight >= self.limit) and self.find_refusal() is not None

    def find_refusal(self) -> ExceededBound | None:
        """Return the bound that the next request exceeds, or None if it is admitted.

        A refusal is counted and logged. More requests than the quota, after late turns, begin an overload.
        """
        if self.in_flight >= self.limit:
            return self._refuse("requests", f"{self.in_flight} requests are in flight")
        if self.remaining >= 0:
            return None
        now = self._clock()
        if not self.is_overloaded:
            if not self._late_turns or now - self._calm_at < _SHORT_INTERVAL:  # a burst, not yet a queue
                self.remaining = _CALM_QUOTA - 1
                return None
            self._begin_overload(now)
        self._last_refusal_at = now
        return self._refuse("delay", f"requests wait longer than {self.max_delay * 1000:g} ms for the CPU")

    def refuse_excess(self) -> None:
        """Count the refusal of a request that is in flight already, for servers that do not ask before."""
        self._refuse("requests", f"{self.limit} requests are in flight")

    def refuse_late(self) -> None:
        """Count the refusal of a request whose client waits too long for threads."""
        self._refuse("delay", "large requests of a client wait too long for threads")

    def _refuse(self, reason: ExceededBound, description: str) -> ExceededBound:
        """Count a refusal, report it to `on_refusal`, and log it at most every ten seconds. Return `reason`."""
        self._refused += 1
        if self.on_refusal is not None:
            self.on_refusal(reason)
        now = self._clock()
        if now - self._reported_at >= _REPORT_INTERVAL:
            self._reported_at = now
            _log.error("overloaded: %s; requests are refused with 503 (%d so far)", description, self._refused)
        return reason

    def start_measuring(self) -> None:
        """Measure delays in the running event loop, until no requests are in flight."""
        self.is_measuring = True
        self.remaining = _CALM_QUOTA
        self._late_turns = 0
        self._measured_at = self._calm_at = self._clock()
        asyncio.get_running_loop().call_later(_CALM_PERIOD, self._measure)

    def _measure(self) -> None:
        """Begin a turn with the delay of this timer. Set the next timer, unless no requests are in flight."""
        now, period = self._clock(), _TURN_PERIOD if self.is_overloaded else _CALM_PERIOD
        self.begin_turn(now, now - self._measured_at - period)
        self._measured_at = now
        self.is_measuring = self.in_flight > 0 or self.is_overloaded
        if self.is_measuring:
            period = _TURN_PERIOD if self.is_overloaded else _CALM_PERIOD
            asyncio.get_running_loop().call_later(period, self._measure)

    def begin_turn(self, now: float, delay: float) -> None:
        """Renew the quota for a turn that begins `delay` seconds late, and begin or end an overload."""
        if self.is_overloaded:
            # A turn that was in time although its whole quota was used could have started more requests.
            self._quota = _QUOTA if delay > _TURN_PERIOD else self._quota if self.remaining > 0 else 2 * self._quota
            self.remaining = self._quota
            if now - self._last_refusal_at > _RECOVERY:
                self.is_overloaded, self.remaining = False, _CALM_QUOTA
                self._calm_at, self._late_turns = now, 0
            return
        self.remaining = _CALM_QUOTA
        if delay <= self.max_delay:
            self._calm_at, self._late_turns = now, 0
        else:
            self._late_turns += 1
            if self._late_turns >= _MIN_LATE and now - self._calm_at >= _INTERVAL:
                self._begin_overload(now)

    def _begin_overload(self, now: float) -> None:
        self.is_overloaded = True
        self._quota, self.remaining, self._last_refusal_at = _QUOTA, 0, now


def memory_limit() -> int | None:
    """Return the bytes of memory that this process may use: of the machine, or of its control group if that is less."""
    limits = [
        _read_limit(folder / name) for folder in _own_groups() for name in ("memory.max", "memory.limit_in_bytes")
    ]
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # Windows
        pass
    return min([limit for limit in limits if limit is not None], default=None)


def _own_groups() -> list[Path]:
    """List the folders of this process's control groups and the groups around them.

    A container usually sees its own group as the root. A systemd service sees the whole tree.
    """
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:  # `0::/path` in version 2, `9:memory:/path` in version 1 (cgroups(7))
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "" or "memory" in controllers.split(","):
            root = _CGROUP / "memory" if controllers else _CGROUP
            group = root / path.strip("/")
            folders += [group, *(parent for parent in group.parents if parent.is_relative_to(root))]
    return folders


def _read_limit(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max" if there is none
        return None


class ConnectionLimits(Protocol):
    """The limits of a connection."""

    @property
    def head(self) -> int:
        """Bytes of a request before its body."""
        ...

    @property
    def slow_client(self) -> float:
        """Seconds for a request's head, for its body, and for reading part of the answer."""
        ...

    @property
    def body(self) -> int:
        """Bytes of a message of a WebSocket. Bodies of requests are limited by the application."""
        ...


class DefaultLimits(Struct, frozen=True):
    """The limits of a server without settings for them."""

    head: int = 64 * 1024  # bytes; nginx allows 32 KiB (`large_client_header_buffers`)
    slow_client: float = 30.0  # seconds; half of nginx's `client_header_timeout`: a slow network pauses for a few
    body: int = 32 * 1024 * 1024  # bytes; as `limits.body` of the gateway


class AdmissionGate(Protocol):
    """An application that refuses requests above its capacity."""

    @property
    def admission(self) -> Admission: ...

    def encode_refusal(self, method: str, path: str, headers: HeaderPairs) -> tuple[int, HeaderPairs, bytes]:
        """Return the status, the headers and the body of a refusal in the client's protocol."""
        ...


# Keep the number of client connections below the number of descriptors that the process may open.
#
# Without a free descriptor an event loop cannot accept a connection, and resets it without a log line. So connections
# beyond a limit are answered with 503, and some descriptors are left for health checks, upstreams and files. Idle
# connections occupy those for health checks, too, until they time out. A request in flight has a connection to its
# client and a connection to an upstream.


_SHARE = 4  # a quarter of few descriptors is for files, sockets and pipes of the process
# Bytes of a request in flight besides its body, which `limits.memory` bounds: 36 kB of a stream and its two connections
# were measured, and the buffers of the sockets take some of the kernel's memory.
_BYTES_PER_REQUEST = 64 * 1024
_MEMORY_SHARE = 2  # half of the memory is for the program, for bodies and for caches
_MIN_REQUESTS = 16  # also of a process with few descriptors
_FILES = 128  # descriptors for the log, the store, the pipes and the event loop; not measured
_RESERVE = 32  # connections beyond the limit that are served, for health checks of a few load balancers
_UNLIMITED = 1_000_000  # descriptors; a process runs out of memory before


class ConnectionCounts:
    """The maximum number of client connections, and of those beyond it that may still send a health check."""

    def __init__(self, limit: int, reserve: int) -> None:
        self.limit = limit
        self.reserve = reserve
        self._reported_at = float("-inf")

    @classmethod
    def from_descriptors(cls, requests: int | None = None) -> ConnectionCounts:
        """Raise this process's limit of descriptors, and divide them between clients and upstreams.

        `requests` are for upstreams, by default as many as for clients. Clients get at least half.
        """
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
    """Return the number of requests that this process, one of `workers`, can have in flight.

    Its descriptors, whose limit is raised first, and its memory bound them.
    """
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
