"""Cooldowns of failed targets that several gateways share, in Redis, SQLite and PostgreSQL."""

import asyncio
import time

import pytest

from toolwire.gateway.routing.health import MAX_COOLDOWNS, SharedHealthTable
from toolwire.gateway.state.database import PostgresLink, SqliteLink, StateDatabase
from toolwire.gateway.state.redis_link import RedisLink
from toolwire.gateway.state.redis_stores import RedisCooldowns
from toolwire.gateway.state.sql_stores import COOLDOWN_TABLES, SqlCooldowns
from toolwire.ir.errors import StoreError
from waiting import SAFETY, until


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def open_store(request, tmp_path):
    """Return a function that opens the store and the function that closes it."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")

        def open_redis():
            link = RedisLink(url, time.monotonic, timeout=SAFETY)
            return RedisCooldowns(link), link.aclose

        return open_redis
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        server.execute("DROP TABLE IF EXISTS toolwire_cooldowns")

    def open_sql():
        if request.param == "sqlite":
            link = SqliteLink(str(tmp_path / "state.db"), COOLDOWN_TABLES)
        else:
            link = PostgresLink(server.url, COOLDOWN_TABLES, "toolwire_cooldowns", "[state] url")
        database = StateDatabase(link, timeout=SAFETY)
        return SqlCooldowns(database), database.aclose

    return open_sql


class Gateway:
    """The targets of a gateway with a shared table."""

    def __init__(self, store, clock=time.monotonic):
        self.table = SharedHealthTable(store, clock)
        self.table.cooldown = 60.0

    def health_of(self, label):
        return self.table.health_of(label, label[0], 0.2, can_probe=False)

    def state_of(self, label):
        self.table.refresh()
        return self.health_of(label).state

    def fail(self, label):
        now = self.table.clock()
        self.health_of(label).fail(now, now)
        self.table.note_change(label, self.health_of(label))

    def succeed(self, label):
        now = self.table.clock()
        self.health_of(label).succeed(now, now)
        self.table.note_change(label, self.health_of(label))


def test_cooldown_of_one_gateway_holds_for_the_other(open_store):
    async def run():
        (first_store, close_first), (second_store, close_second) = open_store(), open_store()
        first, second = Gateway(first_store), Gateway(second_store)
        first.fail("a/m")
        assert first.state_of("a/m") == "cooling"  # at once
        await until(lambda: second.state_of("a/m") == "cooling")
        assert second.state_of("b/m") == "closed"
        second.succeed("a/m")
        await until(lambda: first.state_of("a/m") == "closed")
        for part in (first, second):
            await part.table.aclose()
        await close_first()
        await close_second()

    asyncio.run(run())


def test_cooldowns_end_and_their_number_is_bounded(open_store):
    async def run():
        store, close = open_store()
        await store.save({f"ü/{number}": 60.0 + number for number in range(MAX_COOLDOWNS + 50)} | {"over/m": 0.001})
        await asyncio.sleep(0.05)
        remaining = await store.load()
        await store.save({"ü/1000": 0.0})
        later = await store.load()
        await close()
        return remaining, later

    began = time.time()
    remaining, later = asyncio.run(run())
    elapsed = time.time() - began
    assert len(remaining) == MAX_COOLDOWNS
    assert "over/m" not in remaining
    assert 1059 - elapsed < remaining["ü/1000"] <= 1060
    assert set(remaining) - set(later) == {"ü/1000"}


class BrokenStore:
    async def load(self):
        raise StoreError("away")

    async def save(self, changes):
        raise StoreError("away")


def test_gateway_keeps_its_own_cooldowns_without_the_store():
    async def run():
        now = 0.0
        gateway = Gateway(BrokenStore(), lambda: now)
        gateway.fail("a/m")
        await gateway.table.aclose()
        found = [gateway.health_of("a/m").is_preferred(now)]
        now = 67.0
        found.append(gateway.health_of("a/m").is_preferred(now))
        await gateway.table.aclose()
        return found

    assert asyncio.run(run()) == [False, True]


class MemoryStore:
    def __init__(self, clock):
        self._clock = clock
        self._ends = {}

    async def load(self):
        return {label: end - self._clock() for label, end in self._ends.items() if end > self._clock()}

    async def save(self, changes):
        self._ends |= {label: self._clock() + seconds for label, seconds in changes.items()}


@pytest.mark.finding("OP10")
def test_cooldown_that_expires_in_the_store_is_no_success():
    """Each worker ends a shared cooldown a little later, and a failure may have prolonged its own."""

    async def run():
        now = [100.0]
        store = MemoryStore(lambda: now[0])
        gateways = [Gateway(store, lambda: now[0]) for _ in range(8)]
        for gateway in gateways:
            gateway.table.processes = 8
            gateway.state_of("a/m")
        await asyncio.sleep(0.01)
        gateways[0].fail("a/m")
        await gateways[0].table.aclose()
        states = []
        for moment in (101.0, 130.0, 150.0, 161.0, 164.0, 168.5):
            now[0] = moment
            for gateway in gateways:
                gateway.state_of("a/m")
                await gateway.table.aclose()
            states.append([gateway.state_of("a/m") for gateway in gateways])
            if moment == 150.0:
                gateways[0].health_of("a/m").fail(150.0, 150.0)
        return states, [gateway.health_of("a/m").cooldown_end for gateway in gateways]

    states, ends = asyncio.run(run())
    assert states == [["cooling"] * 8] * 6
    assert all(160.0 <= end <= 176.0 for end in ends[1:])
    assert max(ends[1:]) - min(ends[1:]) > 0.1  # their trials are not sent together
