"""Cooldowns of failed targets that several gateways share, in Redis, SQLite and PostgreSQL."""

import asyncio
import time

import pytest

from toolwire.gateway.shared.cooldowns import MAX_COOLDOWNS, SharedHealthTable
from toolwire.gateway.shared.redis_cooldowns import RedisCooldowns
from toolwire.gateway.shared.redis_link import RedisLink
from toolwire.gateway.shared.sql_cooldowns import COOLDOWN_TABLES, SqlCooldowns
from toolwire.gateway.shared.sql_link import PostgresLink, SqliteLink
from toolwire.gateway.shared.sql_state import StateDatabase
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
