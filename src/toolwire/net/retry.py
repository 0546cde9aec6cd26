"""Decide when to retry: after transient faults, before the first byte of a response, and within the timeout."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random

from msgspec.structs import replace

from ..ir.response import Fault

__all__ = ["RetryPolicy", "network_fault", "resolve_retry_after"]

_TRANSIENT_KINDS = frozenset({"rate_limit", "overloaded", "timeout", "server"})


class RetryPolicy:
    """The number of retries and the waits between them: exponential with jitter, or as the provider demands."""

    __slots__ = ("_first", "_longest", "_most", "_random")

    def __init__(self, most: int, *, first: float = 0.5, longest: float = 60.0, random: Random | None = None) -> None:
        self._most = most
        self._first = first
        self._longest = longest
        self._random = random or Random()

    def wait(self, fault: Fault, attempt: int, left: float) -> float | None:
        """Return the seconds until the next attempt after number `attempt` ended in `fault`; None: no retry.

        If the provider demands a longer wait than is left, there is no retry: it would be refused as well.
        """
        passing = fault.kind in _TRANSIENT_KINDS if fault.retryable is None else fault.retryable
        if not passing or attempt >= self._most:
            return None
        if fault.retry_after is None:
            wait = min(self._first * 2**attempt, self._longest) * self._random.uniform(0.5, 1.0)
        else:
            wait = fault.retry_after * self._random.uniform(1.0, 1.1)  # so that not all refused clients retry at once
        return wait if wait <= self._longest and wait < left else None


def network_fault(error: TimeoutError | ConnectionError, origin: str) -> Fault:
    """Convert a network error to a fault."""
    if isinstance(error, TimeoutError):
        return Fault("timeout", f"no response from {origin} in time: {error}", 504, "timeout")
    return Fault("server", f"no connection to {origin}: {error}", 502, "connection")


def resolve_retry_after(fault: Fault, headers: Mapping[str, str], now: datetime | None = None) -> Fault:
    """Add a `retry-after` header that is a date; the decoders cannot evaluate it because they have no clock."""
    value = headers.get("retry-after")
    if fault.retry_after is not None or value is None:
        return fault
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return fault
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    seconds = (until - (now or datetime.now(UTC))).total_seconds()
    return replace(fault, retry_after=max(seconds, 0.0))
