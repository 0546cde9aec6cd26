"""Every row of the failure table, on every store, by real deaths of real processes (tests/ledger.py, FAILURES)."""

import sqlite3
import time

import pytest

from stores import servers as store_servers
from stores import worker
from stores.servers import PROCESSES, open_place
from stores.worker import executions, run
from toolwire.ir.errors import StoreError
from toolwire.net.stores import open_store
from toolwire.net.stores.sqlite import SqliteStore
from toolwire.run.records import DAY
from waiting import wait_until

LEASE = 0.3


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


@pytest.fixture
def dies(place, effects):
    """A process that kills itself at a point of claim, effect and completion."""

    def die(at, **how):
        process = PROCESSES.Process(
            target=worker.work, args=(place, effects, ["k"]), kwargs={"lease": LEASE, "die_at": at, **how}
        )
        process.start()
        process.join()
        assert process.exitcode == -9

    return die


def await_unknown(store, key="k"):
    wait_until(lambda: store.get(key).state != "running")
    assert store.get(key).state == "unknown"


@pytest.mark.failure(1)
def test_killed_before_the_claim(store, effects, dies):
    dies("before claim")
    assert store.get("k") is None
    assert run(store, effects, "k") is None
    assert executions(effects) == {"k": 1}


@pytest.mark.failure(2)
@pytest.mark.parametrize(("point", "executed"), [("after claim", 0), ("after effect", 1)])
def test_killed_between_claim_and_completion(store, effects, dies, point, executed):
    dies(point)
    await_unknown(store)
    assert run(store, effects, "k").state == "unknown"
    assert run(store, effects, "k", reclaim=False).result is None
    assert executions(effects).total() == executed
    assert [record.key for record in store.records("unknown")] == ["k"]


@pytest.mark.failure(3)
@pytest.mark.parametrize("point", ["after claim", "after effect"])
def test_killed_where_running_twice_does_no_harm(store, effects, dies, point):
    dies(point, reclaim=True)
    await_unknown(store)
    assert run(store, effects, "k", reclaim=True) is None
    assert store.get("k").result == "paid k"
    assert executions(effects)["k"] == (1 if point == "after claim" else 2)


@pytest.mark.failure(4)
def test_the_completion_is_written_again_with_the_token(store, wish):
    """Also after the lease: who holds the token knows the outcome, as long as nobody else was let in."""
    claim = wish(lease=0.05)
    store.claim(claim)
    time.sleep(0.07)
    assert store.get("k").state == "unknown"
    assert store.complete("k", claim.token, "r", DAY)
    assert store.complete("k", claim.token, "r", DAY)
    assert store.claim(wish()).result == "r"


@pytest.mark.failure(4)
def test_killed_after_the_completion(store, effects, dies):
    dies("after complete")
    assert run(store, effects, "k").result == "paid k"
    assert executions(effects) == {"k": 1}


@pytest.mark.failure(5)
def test_a_duplicate_sees_the_first_at_work(store, wish):
    first = wish()
    store.claim(first)
    for reclaim in (False, True):
        second = store.claim(wish(reclaim=reclaim))
        assert (second.state, second.token) == ("running", first.token)


@pytest.mark.failure(6)
@pytest.mark.parametrize("state", ["running", "unknown", "done"])
def test_the_same_key_with_another_payload_is_told_and_not_taken(store, wish, state):
    first = wish(fingerprint="five euros")
    store.claim(first)
    if state != "running":
        store.complete("k", first.token, "r", DAY, state)
    second = store.claim(wish(fingerprint="six euros", reclaim=True))
    assert (second.fingerprint, second.token, second.state) == ("five euros", first.token, state)


@pytest.mark.failure(7)
def test_a_call_that_was_not_executed_is_forgotten(store, wish):
    claim, second = wish(), wish()
    store.claim(claim)
    assert store.release("k", claim.token)
    assert store.claim(second).token == second.token


@pytest.mark.failure(7)
def test_a_call_that_raised_nobody_knows_what_is_unknown_at_once(store, wish):
    claim = wish()
    store.claim(claim)
    assert store.complete("k", claim.token, "ConnectionResetError", DAY, "unknown")
    told = store.claim(wish())
    assert (told.state, told.result) == ("unknown", "ConnectionResetError")
    assert not store.renew("k", claim.token, 60)
    assert not store.release("k", claim.token)
    again = wish(reclaim=True)
    taken = store.claim(again)
    assert (taken.token, taken.result) == (again.token, None)


@pytest.mark.failure(8)
def test_a_result_is_forgotten_after_its_time_and_what_is_open_never(store, wish):
    done, unknown, running = wish("done"), wish("unknown", ttl=0.05), wish("running", ttl=0.05)
    for claim in (done, unknown, running):
        store.claim(claim)
    store.complete("done", done.token, "r", 0.05)
    store.complete("unknown", unknown.token, "?", 0.05, "unknown")
    time.sleep(0.1)
    again = wish("done", fingerprint="other")
    assert store.claim(again).token == again.token
    assert store.claim(wish("unknown")).state == "unknown"
    assert store.claim(wish("running")).state == "running"


@pytest.mark.failure(9)
def test_a_late_worker_cannot_overwrite_who_came_after(store, wish):
    late, second = wish(lease=0.05), wish(reclaim=True)
    store.claim(late)
    time.sleep(0.07)
    assert store.claim(second).token == second.token
    assert not store.renew("k", late.token, 60)
    assert not store.release("k", late.token)
    assert not store.complete("k", late.token, "late", DAY)
    assert store.complete("k", second.token, "second", DAY)
    assert not store.complete("k", late.token, "late", DAY)
    assert store.get("k").result == "second"


@pytest.mark.failure(10)
@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:9/0",
        "unix:///nowhere/redis.sock",
        "postgresql://127.0.0.1:9/db",
        "postgresql:///db?host=/nowhere",
        "/nowhere/at/all/records.db",
    ],
)
def test_a_store_that_is_not_there_says_so_quickly(url, wish):
    store = open_store(url)
    for operation in (
        lambda: store.claim(wish()),
        lambda: store.renew("k", "t", 60),
        lambda: store.complete("k", "t", "r", DAY),
        lambda: store.release("k", "t"),
        lambda: store.get("k"),
        store.records,
        lambda: store.resolve("k", "r"),
        store.sweep,
    ):
        with pytest.raises(StoreError):
            operation()


@pytest.mark.failure(10)
def test_a_closed_store_says_so(store, wish):
    if isinstance(store, store_servers._Served):
        store = open_store("memory:")
    store.claim(wish())
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.claim(wish("other"))


@pytest.mark.failure(11)
@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_what_was_acknowledged_survives_the_death_of_the_server(servers, name, tmp_path, wish):
    server = servers(name)
    store = open_place(server.fresh(tmp_path))
    done = wish("done")
    store.claim(done)
    store.complete("done", done.token, "r", DAY)
    store.claim(wish("running"))
    server.crash()
    assert store.claim(wish("done")).result == "r"
    assert store.claim(wish("running")).state == "running"
    store.close()


@pytest.mark.failure(11)
def test_a_redis_that_keeps_nothing_forgets_a_claim(wish):
    """Why docs/stores.md asks for `appendfsync always`."""
    server = store_servers.Redis(keeps=False)
    try:
        store = open_place(server.url)
        store.claim(wish())
        server.crash()
        second = wish()
        assert store.claim(second).token == second.token
        store.close()
    finally:
        server.stop()


@pytest.mark.failure(11)
def test_memory_is_gone_with_its_process(wish):
    first, second = open_store("memory:"), open_store("memory:")
    first.claim(wish())
    assert second.get("k") is None


@pytest.mark.failure(11)
def test_sqlite_waits_for_the_disk_where_it_matters(tmp_path, wish, monkeypatch):
    """FULL for a durable claim and for its completion, whoever completes it; NORMAL otherwise."""
    modes = {1: "NORMAL", 2: "FULL"}
    path = str(tmp_path / "records.db")
    store, other = SqliteStore(path), SqliteStore(path)

    def mode(of):
        return modes[of._connection.execute("PRAGMA synchronous").fetchone()[0]]

    light, durable = wish("light", durable=False), wish("durable")
    store.claim(light)
    assert mode(store) == "NORMAL"
    store.claim(durable)
    assert mode(store) == "FULL"
    other.complete("light", light.token, "r", DAY)
    assert mode(other) == "NORMAL"
    other.complete("durable", durable.token, "r", DAY)
    assert mode(other) == "FULL"
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()
    other.close()


@pytest.mark.failure(11)
def test_sqlite_survives_the_death_of_its_only_process(tmp_path, effects):
    path = str(tmp_path / "records.db")
    process = PROCESSES.Process(target=worker.work, args=(path, effects, ["k"]), kwargs={"die_at": "after complete"})
    process.start()
    process.join()
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert open_store(path).get("k").result == "paid k"
