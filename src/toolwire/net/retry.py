"""Decide when to retry: after transient faults, before the first byte of a response, and within the timeout."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random

from msgspec.structs import replace

from ..ir.response import Fault, UpstreamError

__all__ = ["NetworkError", "RetryPolicy", "is_transient", "network_fault", "resolve_retry_after"]

_TRANSIENT_KINDS = frozenset({"rate_limit", "overloaded", "timeout", "server"})


class RetryPolicy:
    """The number of retries and the waits between them: exponential with jitter, or as the provider demands.

    A provider that demands more than `max_delay` seconds gets no retry.
    """

    __slots__ = ("_initial_delay", "_max_delay", "_max_retries", "_random")

    def __init__(
        self, max_retries: int, *, initial_delay: float = 0.5, max_delay: float = 60.0, random: Random | None = None
    ) -> None:
        self._max_retries = max_retries
        self._initial_delay = initial_delay
        self._max_delay = max_delay
        self._random = random or Random()

    def next_delay(self, fault: Fault, attempt: int, remaining: float) -> float | None:
        """Return the seconds until the next attempt after number `attempt` ended in `fault`; None: no retry.

        If the provider demands a longer wait than is left, there is no retry: it would be refused as well.
        """
        if not is_transient(fault) or attempt >= self._max_retries:
            return None
        if fault.retry_after is None:
            wait = min(self._initial_delay * 2**attempt, self._max_delay) * self._random.uniform(0.5, 1.0)
        elif fault.retry_after > self._max_delay:
            return None
        else:
            wait = fault.retry_after * self._random.uniform(1.0, 1.1)  # so that not all refused clients retry at once
        return wait if wait < remaining else None


def is_transient(fault: Fault) -> bool:
    """Return whether the same request may succeed later."""
    return fault.kind in _TRANSIENT_KINDS if fault.retryable is None else fault.retryable


class NetworkError(UpstreamError):
    """There is no answer: the connection failed, or a timeout ended the wait. `fault.code` is `connection` or `timeout`."""


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
        retry_at = parsedate_to_datetime(value)
    except ValueError:
        return fault
    retry_at = retry_at if retry_at.tzinfo is not None else retry_at.replace(tzinfo=UTC)
    seconds = (retry_at - (now or datetime.now(UTC))).total_seconds()
    return replace(fault, retry_after=max(seconds, 0.0))
