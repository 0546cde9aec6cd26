"""Turns in a shared state that may have a gap: they are found on this machine."""

import asyncio
import time

import pytest

from toolwire.bridge.conversation.turns import InMemoryTurns, StoredTurn
from toolwire.gateway.responses.store import OwnerBounds
from toolwire.gateway.state.database import PostgresLink, SqliteLink, StateDatabase
from toolwire.gateway.state.redis_link import RedisLink
from toolwire.gateway.state.redis_stores import RedisTurns
from toolwire.gateway.state.shared import FileGap, LocalTurns, ProcessGap, SharedTurns
from toolwire.gateway.state.sql_stores import TURN_TABLES, SqlTurns
from toolwire.ir.errors import StoreError
from toolwire.ir.parts import Text
from waiting import SAFETY

TURN = StoredTurn((Text("hi"),), origin="here")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    if request.param == "sqlite":
        return StateDatabase(SqliteLink(str(tmp_path / "turns.db"), TURN_TABLES), timeout=SAFETY)
    server = request.getfixturevalue("postgres_server")
    server.execute("DROP TABLE IF EXISTS toolwire_turns")
    link = PostgresLink(server.url, TURN_TABLES, "toolwire_turns", "[state] url")
    return StateDatabase(link, timeout=SAFETY)


def test_turns_in_a_database_belong_to_a_caller_and_expire(database):
    now = 1000.0

    async def run():
        nonlocal now
        table = SqlTurns(database, 60.0, clock=lambda _: now)
        await table.save("ann", ["a", "b"], b"1")
        await table.save("ann", ["b"], b"2")
        found = [await table.load("ann", ["a", "b", "c"]), await table.load("bob", ["a"])]
        now += 61
        found.append(await table.load("ann", ["a"]))
        await table.save("ann", ["d"], b"3")
        found.append(await database.transact(lambda execute: execute("SELECT turn FROM toolwire_turns", ())))
        await database.aclose()
        return found

    first, other, late, rows = asyncio.run(run())
    assert (first, other, late) == ({"a": b"1", "b": b"2"}, {}, {})
    assert [bytes(data) for (data,) in rows] == [b"3"]


def test_oldest_turns_beyond_the_bounds_are_dropped(database):
    now = 0.0

    async def run():
        nonlocal now
        table = SqlTurns(database, 1e6, bounds=OwnerBounds(100, 3), clock=lambda _: now)
        for number in range(10):
            now += 60
            await table.save("ann", [str(number)], b"x")
        count = len(await table.load("ann", [str(number) for number in range(10)]))
        now += 60
        await table.save("ann", ["large"], b"x" * 99)
        found = set(await table.load("ann", ["large", "9", "8"]))
        await database.aclose()
        return count, found

    count, found = asyncio.run(run())
    assert count == 3
    assert found == {"large", "9"}


class Away:
    """A table that is unavailable while `is_away`."""

    def __init__(self):
        self.entries = {}
        self.is_away = False

    async def save(self, caller, keys, data):
        self._check()
        self.entries |= {(caller, key): data for key in keys}

    async def load(self, caller, keys):
        self._check()
        return {key: self.entries[caller, key] for key in keys if (caller, key) in self.entries}

    def _check(self):
        if self.is_away:
            raise StoreError("away")


def test_turns_of_an_outage_are_found_by_another_worker_of_the_machine(tmp_path):
    async def run():
        database = StateDatabase(SqliteLink(str(tmp_path / "turns.db"), TURN_TABLES), timeout=SAFETY)
        table, local = Away(), LocalTurns(SqlTurns(database, 60.0))
        one = SharedTurns(table, local, FileGap(tmp_path / "gap"), strict=False)
        other = SharedTurns(table, local, FileGap(tmp_path / "gap"), strict=False)
        strict = SharedTurns(table, local, FileGap(tmp_path / "gap"), strict=True)
        await one.save("ann", ["early"], TURN, TURN.to_json())
        assert not (tmp_path / "gap").exists()
        table.is_away = True
        assert await other.load("ann", ["early", "none"]) == {"early": TURN}
        await one.save("ann", ["a"], TURN, TURN.to_json())
        with pytest.raises(StoreError):
            await strict.load("ann", ["a"])
        table.is_away = False
        found = await other.load("ann", ["a"])
        await database.aclose()
        return found

    assert asyncio.run(run()) == {"a": TURN}


def test_lost_contents_of_redis_are_noticed(redis_server, redis_url, tmp_path):
    async def run():
        link, gap = RedisLink(redis_url, time.monotonic, timeout=SAFETY), FileGap(tmp_path / "gap")
        table = RedisTurns(link, 60.0, gap)
        await table.open()
        await table.save("ann", ["a"], b"1")
        assert await table.load("ann", ["a", "b"]) == {"a": b"1"}
        before = gap.is_noted()
        redis_server.fresh(None)
        assert await table.load("ann", ["a"]) == {}
        await link.aclose()
        return before, gap.is_noted()

    assert asyncio.run(run()) == (False, True)


def test_entry_of_another_version_is_ignored():
    async def run():
        table = Away()
        table.entries["ann", "a"] = b'{"parts": 1}'
        turns = SharedTurns(table, InMemoryTurns(10, 1000, 60.0, time.monotonic), ProcessGap(), strict=False)
        return await turns.load("ann", ["a"])

    assert asyncio.run(run()) == {}
