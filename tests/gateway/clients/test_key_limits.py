"""Limits in one process: they hold in any minute, and what is said of the wait is true."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.gateway.config.settings import KeyRow
from toolwire.gateway.faults import RateLimited
from toolwire.gateway.keys import Caller, InProcessLimiter

HASH = "0" * 64


def caller(name="team", **limits):
    return Caller(name, KeyRow(HASH, **limits))


class Clock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


def admitted(limiter, who):
    """None, or the seconds to wait."""
    try:
        asyncio.run(limiter.admit(who))
    except RateLimited as refused:
        return refused.retry_after
    return None


@given(
    most=st.integers(1, 6),
    pauses=st.lists(st.one_of(st.floats(0, 3), st.floats(0, 90), st.just(0.0)), min_size=1, max_size=60),
)
def test_limit_holds_in_every_minute_and_the_wait_is_sufficient(most, pauses):
    clock = Clock()
    limiter, who = InProcessLimiter(clock), caller(requests_per_minute=most)
    let_in = []
    for pause in pauses:
        clock.now += pause
        wait = admitted(limiter, who)
        if wait is None:
            let_in.append(clock.now)
            assert len([one for one in let_in if one > clock.now - 60]) <= most
        else:
            assert len([one for one in let_in if one >= clock.now - 61]) >= most, "refused without a reason"
            assert 1 <= wait <= 61
            clock.now += wait
            assert admitted(limiter, who) is None
            let_in.append(clock.now)


def test_minute_boundary_does_not_reset_the_limit():
    clock = Clock(59.9)
    limiter, who = InProcessLimiter(clock), caller(requests_per_minute=10)
    assert [admitted(limiter, who) for _ in range(10)] == [None] * 10
    clock.now = 60.1
    assert admitted(limiter, who) == 60


def test_rejected_request_is_not_counted():
    clock = Clock()
    limiter, who = InProcessLimiter(clock), caller(requests_per_minute=1)
    assert admitted(limiter, who) is None
    for _ in range(50):
        clock.now += 1
        assert admitted(limiter, who) is not None
    clock.now = 1061.0
    assert admitted(limiter, who) is None


def test_capacity_is_restored_as_earlier_requests_expire():
    clock = Clock()
    limiter, who = InProcessLimiter(clock), caller(requests_per_minute=2)
    admitted(limiter, who)
    clock.now += 30
    admitted(limiter, who)
    assert admitted(limiter, who) == 31  # that of the first
    clock.now += 31
    assert admitted(limiter, who) is None
    assert admitted(limiter, who) == 30  # that of the second


@pytest.mark.parametrize(
    ("limits", "wait", "words"),
    [
        ({"tokens_per_minute": 100}, 61, "100 tokens per minute"),
        ({"tokens_per_day": 100}, 86_400 + 1440 - 1000, "per day"),
    ],
)
def test_token_limit_applies_after_tokens_are_spent(limits, wait, words):
    clock = Clock()
    limiter, who = InProcessLimiter(clock), caller(**limits)
    asyncio.run(limiter.spend(who, 99))
    assert admitted(limiter, who) is None
    asyncio.run(limiter.spend(who, 500))
    with pytest.raises(RateLimited, match=words) as refused:
        asyncio.run(limiter.admit(who))
    assert refused.value.retry_after == wait
    clock.now += wait
    assert admitted(limiter, who) is None


def test_several_limits_hold_at_once():
    limiter, who = InProcessLimiter(Clock()), caller(requests_per_minute=1, tokens_per_minute=9, tokens_per_day=9)
    assert admitted(limiter, who) is None
    assert admitted(limiter, who) == 61


def test_keys_have_separate_limits():
    limiter = InProcessLimiter(Clock())
    assert admitted(limiter, caller("a", requests_per_minute=1)) is None
    assert admitted(limiter, caller("b", requests_per_minute=1)) is None
    assert admitted(limiter, caller("a", requests_per_minute=1)) is not None


def test_changed_limit_applies_to_earlier_requests():
    limiter = InProcessLimiter(Clock())
    for _ in range(5):
        assert admitted(limiter, caller(requests_per_minute=10)) is None
    assert admitted(limiter, caller(requests_per_minute=5)) is not None
    assert admitted(limiter, caller(requests_per_minute=6)) is None


def test_only_the_last_minute_is_kept_in_memory():
    clock = Clock()
    limiter = InProcessLimiter(clock)
    for number in range(500):
        clock.now += 1
        admitted(limiter, caller(f"key {number}", requests_per_minute=1))
        assert len(limiter) <= 62
    who = caller("long", requests_per_minute=10**6)
    for _ in range(500):
        clock.now += 1
        admitted(limiter, who)
    assert len(limiter._windows["long"].by_name["requests"].amounts) <= 61


def test_removed_limit_counts_again_when_it_returns():
    """The settings may be changed twice within a minute."""
    limiter = InProcessLimiter(Clock())
    for _ in range(5):
        assert admitted(limiter, caller(requests_per_minute=5, tokens_per_minute=100)) is None
    asyncio.run(limiter.spend(caller(tokens_per_minute=100), 100))
    assert admitted(limiter, caller(tokens_per_day=1)) is None
    assert admitted(limiter, caller(requests_per_minute=5)) == 61
    assert admitted(limiter, caller(tokens_per_minute=100)) == 61
