"""Limits in Redis: the same decisions as in one process, counted once for all, and what happens while Redis is away."""

import asyncio
import logging
import time
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.gateway.config.settings import KeyRow
from toolwire.gateway.faults import RateLimited
from toolwire.gateway.keys import Caller, InProcessLimiter
from toolwire.gateway.state.redis_link import RedisLink
from toolwire.gateway.state.redis_stores import RedisLimiter
from toolwire.gateway.state.shared import SharedLimiter
from toolwire.ir.errors import ConfigError, StoreError
from waiting import SAFETY

UNREACHABLE_REDIS = "redis://me:geheim@127.0.0.1:1/0"


def caller(name="team", **limits):
    return Caller(name, KeyRow("0" * 64, **limits))


@asynccontextmanager
async def linked(url, now=lambda: 0.0):
    link = RedisLink(url, now, timeout=SAFETY)
    try:
        yield link
    finally:
        await link.aclose()


async def answer(limiter, who):
    try:
        await limiter.admit(who)
    except RateLimited as refused:
        return str(refused), refused.retry_after
    return None


async def answers_around_a_wrong_clock(limiter, set_clock):
    """Send requests at a correct clock, a year ahead, corrected again, and after the window; return which pass."""
    who = caller(requests_per_minute=2, tokens_per_day=100)
    year = 366 * 86_400.0
    found = []
    for now, count in ((0.0, 1), (year, 2), (5.0, 2), (30.0, 1), (70.0, 2)):
        set_clock(1_000_000.0 + now)
        found.append([await answer(limiter, who) is None for _ in range(count)])
        if now == year:
            await limiter.spend(who, 1)
    return found


ADMITTED_AROUND_A_WRONG_CLOCK = [[True], [True, True], [False, False], [False], [True, True]]
steps = st.lists(st.tuples(st.floats(0, 40), st.sampled_from(["ask", "ask", "spend"])), min_size=1, max_size=25)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=steps, most=st.integers(1, 4), tokens=st.integers(1, 40))
def test_redis_limiter_decides_like_the_in_process_limiter(redis_server, steps, most, tokens):
    url = redis_server.fresh(None)
    who = caller(requests_per_minute=most, tokens_per_minute=tokens, tokens_per_day=3 * tokens)
    now = 1_000_000.0

    async def compare():
        nonlocal now
        near = InProcessLimiter(lambda: now)
        async with linked(url) as link:
            far = RedisLimiter(link, lambda: now)
            for pause, what in steps:
                now = round(now + pause, 3)
                if what == "spend":
                    await asyncio.gather(near.spend(who, 10), far.spend(who, 10))
                else:
                    assert await answer(far, who) == await answer(near, who)

    asyncio.run(compare())


def test_several_limiters_share_one_exact_count(redis_url):
    async def ask():
        async with linked(redis_url) as one, linked(redis_url) as two, linked(redis_url) as three:
            limiters = [RedisLimiter(link) for link in (one, two, three)]
            answers = [answer(limiters[number % 3], caller(requests_per_minute=50)) for number in range(300)]
            return await asyncio.gather(*answers)

    began = time.time()
    answers = asyncio.run(ask())
    elapsed = time.time() - began
    assert answers.count(None) == 50
    assert all(60 - elapsed <= refused[1] <= 61 for refused in answers if refused)


def test_counters_expire(redis_url):
    async def look():
        async with linked(redis_url) as link:
            who = caller("a } key", requests_per_minute=5, tokens_per_day=5)
            limiter = RedisLimiter(link)
            await limiter.admit(who)
            await limiter.spend(who, 3)
            return {name: await link.client.pttl(name) for name in await link.client.keys("*")}

    began = time.time()
    left = asyncio.run(look())
    elapsed = 1000 * (time.time() - began)
    assert set(left) == {b"{toolwire:limit:a } key}:requests", b"{toolwire:limit:a } key}:day"}
    assert 62_000 - elapsed - 1 <= left[b"{toolwire:limit:a } key}:requests"] <= 62_000
    assert 62 * 1_440_000 - elapsed - 1 <= left[b"{toolwire:limit:a } key}:day"] <= 62 * 1_440_000


def test_key_without_limits_does_not_contact_redis():
    async def ask():
        async with linked(UNREACHABLE_REDIS) as link:
            limiter = RedisLimiter(link)
            await limiter.admit(caller())
            await limiter.spend(caller(), 5)

    asyncio.run(ask())


def test_limiter_counts_locally_while_redis_is_unavailable(caplog):
    async def ask():
        async with linked(UNREACHABLE_REDIS) as link:
            limiter = SharedLimiter(RedisLimiter(link), InProcessLimiter(lambda: 0.0), strict=False)
            return [await answer(limiter, caller(requests_per_minute=2)) for _ in range(3)]

    first, second, third = asyncio.run(ask())
    assert (first, second) == (None, None)
    assert third is not None
    [line] = [record.getMessage() for record in caplog.records if record.name == "toolwire.gateway"]
    assert "redis://127.0.0.1:1 is unavailable" in line
    assert "geheim" not in line


def test_strict_limiter_rejects_requests_without_redis():
    async def ask():
        async with linked(UNREACHABLE_REDIS) as link:
            limiter = SharedLimiter(RedisLimiter(link), InProcessLimiter(lambda: 0.0), strict=True)
            await limiter.spend(caller(tokens_per_day=1), 5)  # never an error: the answer is given
            await limiter.admit(caller(requests_per_minute=2))

    with pytest.raises(StoreError) as error:
        asyncio.run(ask())
    assert error.value.status == 503
    assert "127.0.0.1" not in str(error.value)


def test_limit_of_one_machine_holds_after_redis_has_lost_its_counts(redis_server, redis_url):
    async def ask():
        async with linked(redis_url) as link, linked(redis_url) as other_link:
            who = caller(requests_per_minute=4)
            here = SharedLimiter(RedisLimiter(link), InProcessLimiter(lambda: 0.0), strict=False)
            elsewhere = SharedLimiter(RedisLimiter(other_link), InProcessLimiter(lambda: 0.0), strict=False)
            found = [await answer(limiter, who) is None for limiter in (here, here, elsewhere, elsewhere, here)]
            redis_server.fresh(None)
            # the refused request counted nowhere, so this machine has room for two
            return found + [await answer(here, who) is None for _ in range(3)]

    assert asyncio.run(ask()) == [True] * 4 + [False] + [True, True, False]


def test_redis_is_used_again_after_a_cooldown(redis_server, redis_url, caplog):
    caplog.set_level(logging.WARNING)
    now = 0.0

    async def ask():
        nonlocal now
        async with linked(redis_url, lambda: now) as link:
            with pytest.raises(StoreError):
                await link.execute(("NOSUCHCOMMAND",))
            with pytest.raises(StoreError):
                await link.execute(("PING",))  # not even asked
            now = 1.0
            assert await link.execute(("ECHO", "a"), ("ECHO", "b")) == [b"a", b"b"]

    asyncio.run(ask())
    first, second = [record.getMessage() for record in caplog.records]
    assert "unknown command" in first
    assert second.endswith("is available again")


def test_failed_command_does_not_affect_concurrent_commands(redis_url):
    async def ask():
        async with linked(redis_url) as link:
            asked = [
                link.execute(("ECHO", 1)),
                link.execute(("NOSUCHCOMMAND",)),
                link.execute(("ECHO", 2), ("ECHO", 3)),
            ]
            return await asyncio.gather(*asked, return_exceptions=True)

    first, second, third = asyncio.run(ask())
    assert (first, third) == ([b"1"], [b"2", b"3"])
    assert isinstance(second, StoreError)


def test_cancelled_command_does_not_affect_concurrent_commands(redis_url):
    async def ask():
        async with linked(redis_url) as link:
            gone = asyncio.ensure_future(link.execute(("ECHO", 1)))
            stays = asyncio.ensure_future(link.execute(("ECHO", 2)))
            await asyncio.sleep(0)
            gone.cancel()
            return await stays

    assert asyncio.run(ask()) == [b"2"]


def test_restarted_redis_is_used_again(redis_server, redis_url):
    async def ask():
        async with linked(redis_url) as link:
            limiter = RedisLimiter(link)
            who = caller(requests_per_minute=1)
            assert await answer(limiter, who) is None
            await asyncio.to_thread(redis_server.crash)  # forgets all, and the script, too
            assert await answer(limiter, who) is None

    asyncio.run(ask())


def test_invalid_redis_url_is_rejected():
    with pytest.raises(ConfigError, match=r"invalid \[state\] url"):
        RedisLink("redis://me:geheim@host:port/0", lambda: 0.0)


@pytest.mark.finding("SE3")
def test_clock_of_redis_that_was_ahead_locks_no_key_out(redis_url):
    now = 0.0

    def set_clock(seconds):
        nonlocal now
        now = seconds

    async def run():
        async with linked(redis_url) as link:
            return await answers_around_a_wrong_clock(RedisLimiter(link, lambda: now), set_clock)

    assert asyncio.run(run()) == ADMITTED_AROUND_A_WRONG_CLOCK
