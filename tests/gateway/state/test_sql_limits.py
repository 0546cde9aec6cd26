"""Limits in PostgreSQL: the same decisions as in one process, counted once for all, and without a database."""

import asyncio
import logging
import time
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_redis_limits import (
    ADMITTED_AROUND_A_WRONG_CLOCK,
    answer,
    answers_around_a_wrong_clock,
    caller,
    steps,
)

from toolwire.gateway.keys import InProcessLimiter
from toolwire.gateway.state.database import PostgresLink, SqliteLink, StateDatabase
from toolwire.gateway.state.shared import SharedLimiter
from toolwire.gateway.state.sql_stores import LIMIT_TABLES, SqlLimiter
from toolwire.ir.errors import StoreError
from waiting import SAFETY


@pytest.fixture
def open_link(postgres_server):
    """Open another connection to one empty database."""
    postgres_server.execute("DROP TABLE IF EXISTS toolwire_limits")
    return lambda: PostgresLink(postgres_server.url, LIMIT_TABLES, "toolwire_limits", "[state] url")


@asynccontextmanager
async def opened(link):
    database = StateDatabase(link, timeout=SAFETY)
    try:
        yield database
    finally:
        await database.aclose()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=steps, most=st.integers(1, 4), tokens=st.integers(1, 40))
def test_sql_limiter_decides_like_the_in_process_limiter(open_link, steps, most, tokens):
    who = caller(requests_per_minute=most, tokens_per_minute=tokens, tokens_per_day=3 * tokens)
    now = 1_000_000.0

    async def compare():
        nonlocal now
        near = InProcessLimiter(lambda: now)
        async with opened(open_link()) as database:
            await database.transact(lambda execute: execute("DELETE FROM toolwire_limits", ()))
            far = SqlLimiter(database, clock=lambda _: now)
            for pause, what in steps:
                now = round(now + pause, 3)
                if what == "spend":
                    await asyncio.gather(near.spend(who, 10), far.spend(who, 10))
                else:
                    assert await answer(far, who) == await answer(near, who)

    asyncio.run(compare())


def test_several_limiters_share_one_exact_count(open_link):
    callers = [caller(name, requests_per_minute=50) for name in ("ann", "bob", "cid")]

    async def ask():
        async with opened(open_link()) as one, opened(open_link()) as two, opened(open_link()) as three:
            limiters = [SqlLimiter(database) for database in (one, two, three)]
            await asyncio.gather(*(database.open() for database in (one, two, three)))
            # each asks in another order of keys, which must not deadlock
            order = [callers[(number + turn) % 3] for number in range(300) for turn in range(3)]
            asked = [answer(limiters[number % 3], who) for number, who in enumerate(order)]
            return list(zip(order, await asyncio.gather(*asked), strict=True))

    began = time.time()
    answers = asyncio.run(ask())
    elapsed = time.time() - began
    for who in callers:
        own = [found for asker, found in answers if asker is who]
        assert (len(own), own.count(None)) == (300, 50)
        assert all(60 - elapsed <= refused[1] <= 61 for refused in own if refused)


def test_expired_counts_are_deleted(open_link):
    now = 1_000_000.0

    async def look():
        nonlocal now
        async with opened(open_link()) as database:
            limiter = SqlLimiter(database, clock=lambda _: now)
            await limiter.admit(caller("old", requests_per_minute=1))
            now += 100
            limiter._next_sweep = 0.0
            await limiter.admit(caller("new", requests_per_minute=1))
            await limiter._task
            [(count,)] = await database.transact(lambda execute: execute("SELECT count(*) FROM toolwire_limits", ()))
            return count

    assert asyncio.run(look()) == 1


def test_limiter_counts_locally_while_its_database_is_unavailable(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    folder = tmp_path / "later"
    now = 0.0

    async def ask():
        nonlocal now
        link = SqliteLink(str(folder / "state.db"), LIMIT_TABLES)
        database = StateDatabase(link, lambda: now, timeout=SAFETY)
        limiter = SharedLimiter(SqlLimiter(database), InProcessLimiter(lambda: 0.0), strict=False)
        strict = SqlLimiter(database)
        who = caller(requests_per_minute=2)
        found = [await answer(limiter, who) for _ in range(3)]
        with pytest.raises(StoreError, match="shared state") as error:
            await strict.admit(who)
        assert str(folder) not in str(error.value)
        folder.mkdir()
        now = 1.0
        found += [await answer(SqlLimiter(database), who) for _ in range(3)]
        await database.aclose()
        return [one is None for one in found]

    assert asyncio.run(ask()) == [True, True, False, True, True, False]
    first, last = [record.getMessage() for record in caplog.records]
    assert "is unavailable" in first
    assert "is available again" in last


@pytest.mark.finding("SE3")
def test_clock_of_the_database_that_was_ahead_locks_no_key_out(open_link):
    now = 366 * 86_400.0 * 60

    def set_clock(seconds):
        nonlocal now
        now = seconds

    async def run():
        async with opened(open_link()) as database:
            limiter = SqlLimiter(database, clock=lambda _: now)
            await limiter.admit(caller("removed", requests_per_minute=1))
            found = await answers_around_a_wrong_clock(limiter, set_clock)
            limiter._next_sweep = 0.0
            await limiter.admit(caller("new", requests_per_minute=1))
            await limiter._task
            [(count,)] = await database.transact(lambda execute: execute("SELECT count(*) FROM toolwire_limits", ()))
            return found, count

    assert asyncio.run(run()) == (ADMITTED_AROUND_A_WRONG_CLOCK, 2)  # the row of the removed key is deleted
