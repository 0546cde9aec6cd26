"""The stores of the Responses state: in memory, SQLite, Redis and PostgreSQL behave alike."""

from __future__ import annotations

import asyncio
import stat
import threading
import time
from pathlib import Path

import pytest

from hostile import run
from responses_sdk import create, text_answer, world
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.config.settings import ResponsesRow
from toolwire.gateway.responses import store as store_module
from toolwire.gateway.responses.store import HeldLock, InMemoryResponses, LockLost, LockReleases
from toolwire.gateway.state.opening import open_responses, open_state
from toolwire.gateway.state.sql_responses import SqlResponses
from toolwire.ir.errors import ConfigError, StoreError
from waiting import SAFETY, until

pytestmark = pytest.mark.finding("G5")


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def address(request, tmp_path):
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'responses.db'}"
    if request.param == "redis":
        return request.getfixturevalue("redis_url")
    url = request.getfixturevalue("postgres_url")
    request.getfixturevalue("postgres_server").execute(
        "DROP TABLE IF EXISTS toolwire_responses, toolwire_response_locks"
    )
    return url


def bounded(address, clock=time.time, **fields):
    return open_responses(ResponsesRow(store=address, **fields), {}, clock)


async def eventually(read, expected):
    """Read until the value is the expected one, by the clock of Redis."""
    for _ in range(6000):
        if await read() == expected:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {expected!r}")


@run
async def test_entries_belong_to_their_owner(address):
    store = bounded(address)
    data = bytes(range(256))
    await store.save("ann", "resp_1", data, 60)
    await store.save("bob", "resp_1", b"bob's", 60)
    assert await store.load("ann", ["resp_1", "resp_2"]) == {"resp_1": data}
    assert await store.load("bob", ["resp_1"]) == {"resp_1": b"bob's"}
    assert await store.load("eve", ["resp_1"]) == {}
    assert await store.load("ann", []) == {}
    await store.delete("eve", ["resp_1"])
    await store.delete("ann", ["resp_1", "unknown"])
    assert await store.load("ann", ["resp_1"]) == {}
    assert await store.load("bob", ["resp_1"]) == {"resp_1": b"bob's"}
    await store.aclose()


@run
async def test_names_and_ids_may_contain_anything(address):
    store = bounded(address)
    for owner, entry_id in (("a", "b\0c"), ("a\0b", "c"), ("é{}", "%s ?"), ("", "\ud800"), ("1:a", ""), ("1", ":a")):
        await store.save(owner, entry_id, f"{owner!a} {entry_id!a}".encode(), 60)
    for owner, entry_id in (("a", "b\0c"), ("a\0b", "c"), ("é{}", "%s ?"), ("", "\ud800"), ("1:a", ""), ("1", ":a")):
        assert await store.load(owner, [entry_id]) == {entry_id: f"{owner!a} {entry_id!a}".encode()}
    await store.aclose()


@run
async def test_replaced_entry_counts_once(address):
    store = bounded(address, max_key_bytes=250, max_key_entries=10)
    await store.save("ann", "other", b"x" * 100, 60)
    for _ in range(5):
        await store.save("ann", "resp_1", b"x" * 100, 60)
    assert set(await store.load("ann", ["resp_1", "other"])) == {"resp_1", "other"}
    await store.aclose()


@pytest.mark.parametrize("fields", [{"max_key_bytes": 350}, {"max_key_entries": 3}])
@run
async def test_entries_used_least_recently_are_dropped_beyond_the_bounds_of_their_owner(address, fields):
    clock = Clock()
    store = bounded(address, clock, **fields)
    await store.save("bob", "resp_0", b"x" * 300, 60)
    for number in range(3):
        clock.now += 1
        await store.save("ann", f"resp_{number}", b"x" * 100, 60)
    clock.now += 1
    await store.load("ann", ["resp_0"], 60)  # a use renews it
    clock.now += 1
    await store.save("ann", "resp_3", b"x" * 100, 60)
    assert set(await store.load("ann", [f"resp_{number}" for number in range(4)])) == {"resp_0", "resp_2", "resp_3"}
    assert len(await store.load("bob", ["resp_0"])) == 1
    clock.now += 1
    await store.save("ann", "huge", b"x" * 400, 60)
    left = await store.load("ann", [*(f"resp_{number}" for number in range(4)), "huge"])
    assert sum(map(len, left.values())) <= 350 or "max_key_entries" in fields
    await store.aclose()


@run
async def test_expired_entry_is_gone(address):
    if address.startswith("unix"):  # Redis has its own clock
        store = bounded(address)
        await store.save("ann", "resp_1", b"x", 0.05)
        await store.save("ann", "resp_2", b"x", SAFETY)
        await store.load("ann", ["resp_2"], 2 * SAFETY)
        await eventually(lambda: store.load("ann", ["resp_1"]), {})
        assert await store.load("ann", ["resp_1", "resp_2"]) == {"resp_2": b"x"}
        [name] = await store._link.client.keys("*:e:*")
        assert await store._link.client.pttl(name) > 1000 * SAFETY  # a use renews it
        await store.aclose()
        return
    clock = Clock()
    store = bounded(address, clock)
    await store.save("ann", "resp_1", b"x", 60)
    await store.save("ann", "resp_2", b"x", 60)
    clock.now += 59
    assert len(await store.load("ann", ["resp_1"])) == 1
    await store.load("ann", ["resp_2"], 60)
    clock.now += 1
    assert set(await store.load("ann", ["resp_1", "resp_2"], 60)) == {"resp_2"}
    clock.now += 3600
    await store.save("ann", "resp_3", b"x", 60)  # deletes what has expired
    clock.now -= 3600
    assert await store.load("ann", ["resp_1"]) == {}
    await store.aclose()


@run
async def test_lock_has_one_holder_until_it_is_released_or_expires(address):
    clock = time.time if address.startswith("unix") else Clock()
    first, second = bounded(address, clock), bounded(address, clock)
    other = first if address == "memory:" else second  # memory is not shared
    assert await first.lock("ann", "conv_1", "a", 60)
    assert not await other.lock("ann", "conv_1", "b", 60)
    assert await first.lock("ann", "conv_1", "a", 60)  # renewed
    assert await other.lock("bob", "conv_1", "b", 60)
    await other.unlock("ann", "conv_1", "b")  # not the holder
    assert not await other.lock("ann", "conv_1", "b", 60)
    await first.unlock("ann", "conv_1", "a")
    assert await other.lock("ann", "conv_1", "b", 0.05)
    if isinstance(clock, Clock):
        clock.now += 1
    await eventually(lambda: first.lock("ann", "conv_1", "a", 60), True)
    await first.aclose()
    await second.aclose()


@run
async def test_concurrent_locks_have_one_winner(address):
    store = bounded(address)
    locked = await asyncio.gather(*(store.lock("ann", "conv_1", str(number), 60) for number in range(8)))
    assert sum(locked) == 1
    await store.aclose()


@run
async def test_conversation_is_continued_with_every_store(address):
    for stream in (False, True):
        async with world(*map(text_answer, "abcd"), store=address) as at:
            first = await create(at.client, stream=stream, model="anthropic/m", input="1")
            await create(at.client, stream=stream, model="anthropic/m", input="2", previous_response_id=first.id)
            assert [text for _, text in at.history()] == ["1", "a", "2"]
            conversation = await at.client.conversations.create()
            for question in "34":
                await create(at.client, stream=stream, model="gemini/m", input=question, conversation=conversation.id)
            assert [text for _, text in at.history()] == ["3", "c", "4"]


@run
async def test_conversation_is_unlocked_when_the_answer_ends(monkeypatch):
    unlock = InMemoryResponses.unlock

    async def unlock_later(*arguments):
        await asyncio.sleep(0.05)  # time for the next request, if the answer has ended
        await unlock(*arguments)

    monkeypatch.setattr(InMemoryResponses, "unlock", unlock_later)
    for stream in (False, True):
        async with world(*map(text_answer, "ab"), store="memory:") as at:
            conversation = await at.client.conversations.create()
            for question in "12":
                await create(at.client, stream=stream, model="gemini/m", input=question, conversation=conversation.id)


@run
async def test_two_gateways_share_a_conversation(address):
    if address == "memory:":
        return
    async with world(text_answer("a"), store=address) as one, world(text_answer("b"), store=address) as two:
        first = await one.client.responses.create(model="anthropic/m", input="1")
        await two.client.responses.create(model="anthropic/m", input="2", previous_response_id=first.id)
        assert [text for _, text in two.history()] == ["1", "a", "2"]


def test_file_is_readable_only_by_its_owner(tmp_path):
    path = tmp_path / "responses.db"
    store = bounded(str(path))
    asyncio.run(store.save("ann", "resp_1", b"x", 60))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    asyncio.run(store.aclose())


def test_store_of_the_settings():
    environment = {"STORE": "postgresql://me:secret@host/db"}
    assert isinstance(open_responses(ResponsesRow(), {}), InMemoryResponses)
    assert isinstance(open_responses(ResponsesRow(store_env="STORE"), environment), SqlResponses)
    for wrong in ("mysql://me:secret@host/db", "", "sqlite:///"):
        with pytest.raises(ConfigError) as caught:
            open_responses(ResponsesRow(store=wrong), {})
        assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError):
        open_responses(ResponsesRow(store="a", store_env="STORE"), environment)
    with pytest.raises(ConfigError):
        open_responses(ResponsesRow(store_env="UNSET"), environment)
    for field in ("seconds", "max_response_bytes", "max_responses", "max_key_bytes", "max_key_entries"):
        with pytest.raises(ConfigError) as caught:
            parse_settings({"responses": {field: 0}})
        assert f"[responses] {field}: must be positive" in str(caught.value)


def test_unusable_file_is_an_error_of_the_store(tmp_path):
    store = bounded(str(tmp_path / "missing" / "responses.db"))
    with pytest.raises(StoreError) as caught:
        asyncio.run(store.save("ann", "resp_1", b"x", 60))
    assert caught.value.status == 503


def test_state_of_a_gateway_has_the_store(tmp_path):
    path = tmp_path / "responses.db"
    state = open_state(parse_settings({"responses": {"store": str(path)}}), {})
    asyncio.run(state.responses.save("ann", "resp_1", b"x", 60))
    asyncio.run(state.aclose())
    assert Path(path).is_file()


@run
async def test_cancelled_statement_ends_before_the_next_one():
    """Threads have no order: the release of a lock would overtake the lock, which would last until it expires."""
    began, may_end, log = threading.Event(), threading.Event(), []

    class Link:
        def execute(self, statement):
            kind = statement[0].split()[0]
            if kind == "INSERT":
                began.set()
                may_end.wait(SAFETY)
            log.append(kind)
            return [[(1,)]]

    store = SqlResponses(Link(), None, time.time)

    async def lock_and_release():
        try:
            await store.lock("ann", "conv_1", "a", 60)
        finally:
            await store.unlock("ann", "conv_1", "a")

    locking = asyncio.create_task(lock_and_release())
    await asyncio.to_thread(began.wait)
    for _ in range(3):  # such as a client that leaves, and then a server that stops
        locking.cancel()
        await asyncio.wait({locking}, timeout=0.05)
    assert log == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await locking
    assert log == ["INSERT", "DELETE"]


@run
async def test_entry_is_not_changed_with_a_lost_lock(address):
    store = bounded(address)
    lock = HeldLock("state_resp_1", "first")
    assert await store.lock("ann", *lock, 60)
    await store.save("ann", "resp_1", b"first", 60, lock)
    await store.unlock("ann", *lock)
    for holder in (None, "second"):  # the lock is free, or another holder has it
        assert holder is None or await store.lock("ann", "state_resp_1", holder, 60)
        with pytest.raises(LockLost):
            await store.save("ann", "resp_1", b"late", 60, lock)
        with pytest.raises(LockLost):
            await store.delete("ann", ["resp_1"], lock)
    second = HeldLock("state_resp_1", "second")
    with pytest.raises(LockLost):
        await store.save("bob", "resp_1", b"bob's", 60, second)
    assert await store.load("ann", ["resp_1"]) == {"resp_1": b"first"}
    await store.save("ann", "resp_1", b"second", 60, second)
    assert await store.load("ann", ["resp_1"]) == {"resp_1": b"second"}
    await store.delete("ann", ["resp_1"], second)
    assert await store.load("ann", ["resp_1"]) == {}
    await store.aclose()


@run
async def test_lock_is_released_after_a_moment_without_redis(redis_url, monkeypatch):
    monkeypatch.setattr(store_module, "_RELEASE_PAUSE", 0.01)
    store = bounded(redis_url)
    assert await store.lock("ann", "conv_1", "first", 900)
    store._link._cooldown_until = store._link._clock() + 0.05  # as after any failure
    await store.unlock("ann", "conv_1", "first")
    await eventually(lambda: can_lock(store, "conv_1"), True)
    await store.aclose()


async def can_lock(store, entry_id):
    try:
        return await store.lock("ann", entry_id, "second", 60)
    except StoreError:
        return False


class UnlockedLocks:
    """Releases of locks, of which the first ones fail."""

    def __init__(self, failures):
        self.failures = failures
        self.released = []

    async def unlock(self, *lock):
        if self.failures:
            self.failures -= 1
            raise StoreError("unavailable")
        self.released.append(lock)


@run
async def test_failed_releases_are_repeated_until_they_succeed(monkeypatch, caplog):
    monkeypatch.setattr(store_module, "_RELEASE_PAUSE", 0.001)
    locks = UnlockedLocks(5)
    releases = LockReleases(locks.unlock)
    for number in (1, 2):
        await releases.release("ann", f"conv_{number}", "token")
    await until(lambda: len(locks.released) == 2)
    assert locks.released == [("ann", "conv_1", "token"), ("ann", "conv_2", "token")]
    assert "cannot unlock" in caplog.text
    await until(lambda: releases._task.done())
    await releases.release("ann", "conv_3", "token")
    assert len(locks.released) == 3
    await releases.aclose()


@run
async def test_failed_releases_end_with_their_locks_and_are_bounded(monkeypatch):
    monkeypatch.setattr(store_module, "_RELEASE_PAUSE", 0.001)
    monkeypatch.setattr(store_module, "_RELEASE_SECONDS", 0.0)
    monkeypatch.setattr(store_module, "_MAX_RELEASES", 3)
    locks = UnlockedLocks(10**9)
    releases = LockReleases(locks.unlock)
    for number in range(5):
        await releases.release("ann", f"conv_{number}", "token")
    assert len(releases._failed) == 3
    await until(lambda: releases._task.done())
    assert not releases._failed
    await releases.aclose()


@run
async def test_failed_releases_have_a_last_attempt_at_the_end():
    locks = UnlockedLocks(1)
    releases = LockReleases(locks.unlock)
    await releases.release("ann", "conv_1", "token")
    await releases.aclose()
    assert locks.released == [("ann", "conv_1", "token")] and releases._task.done()
