"""When a request is made again."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random

import pytest

from toolwire.ir.response import Fault
from toolwire.net.model.upstream_exchange import RetryPolicy, resolve_retry_after

SLOW = Fault("rate_limit", "slow", 429)


def test_delays_grow_exponentially_with_jitter():
    retries = RetryPolicy(5, initial_delay=1.0, random=Random(1))
    waits = [[retries.next_delay(SLOW, attempt, 1e9) for _ in range(50)] for attempt in range(4)]
    for attempt, some in enumerate(waits):
        assert len(set(some)) > 10
        assert all(0.5 * 2**attempt <= wait <= 2**attempt for wait in some)


def test_number_of_retries_is_limited():
    assert RetryPolicy(2).next_delay(SLOW, 1, 1e9) is not None
    assert RetryPolicy(2).next_delay(SLOW, 2, 1e9) is None
    assert RetryPolicy(0).next_delay(SLOW, 0, 1e9) is None


@pytest.mark.parametrize(("asked", "waits"), [(0.0, True), (5.0, True), (61.0, False), (1e12, False)])
def test_retry_after_is_honoured_up_to_a_limit(asked, waits):
    wait = RetryPolicy(2).next_delay(Fault("overloaded", "", 529, retry_after=asked), 0, 1e15)
    assert (wait is not None and asked <= wait <= asked * 1.1) == waits
    assert (wait is None) != waits


def test_delay_beyond_the_deadline_is_not_retried():
    assert RetryPolicy(2).next_delay(Fault("server", "", 500, retry_after=5.0), 0, 4.0) is None


@pytest.mark.parametrize(
    "kind", ["invalid_request", "authentication", "billing", "permission", "not_found", "too_large"]
)
def test_permanent_errors_are_not_retried(kind):
    assert RetryPolicy(2).next_delay(Fault(kind, ""), 0, 1e9) is None
    assert RetryPolicy(2).next_delay(Fault(kind, "", retryable=True), 0, 1e9) is not None


def test_retry_after_date_is_converted_to_seconds():
    now = datetime(2026, 11, 1, 12, tzinfo=UTC)
    said = {"retry-after": format_datetime(now + timedelta(seconds=30), usegmt=True)}
    assert resolve_retry_after(SLOW, said, now).retry_after == 30
    assert resolve_retry_after(SLOW, said, now + timedelta(hours=1)).retry_after == 0
    assert resolve_retry_after(SLOW, {"retry-after": "soon"}, now) == SLOW
    assert resolve_retry_after(SLOW, {}, now) == SLOW
