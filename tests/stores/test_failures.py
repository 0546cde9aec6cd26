"""Every row of the failure table, on every store, by real deaths of real processes (tests/support/ledger.py, FAILURES)."""

import sqlite3
import time
from contextlib import closing

import pytest

from stores import servers as store_servers
from stores import worker
from stores.servers import PROCESSES, open_test_store
from stores.worker import executions, run
from toolwire.ir.errors import StoreError
from toolwire.net.stores import open_store
from toolwire.net.stores.sqlite import SqliteStore
from toolwire.run.values.records import DAY
from waiting import wait_until

LEASE = 0.3


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


@pytest.fixture
def kill_worker_at(store_url, effects):
    """A process that kills itself at a point of claim, effect and completion."""

    def die(at, **how):
        process = PROCESSES.Process(
            target=worker.work, args=(store_url, effects, ["k"]), kwargs={"lease": LEASE, "die_at": at, **how}
        )
        process.start()
        process.join()
        assert process.exitcode == -9

    return die


def await_unknown(store, key="k"):
    wait_until(lambda: store.get(key).state != "running")
    assert store.get(key).state == "unknown"


@pytest.mark.failure(1)
def test_call_runs_after_a_worker_was_killed_before_the_claim(store, effects, kill_worker_at):
    kill_worker_at("before claim")
    assert store.get("k") is None
    assert run(store, effects, "k") is None
    assert executions(effects) == {"k": 1}


@pytest.mark.failure(2)
@pytest.mark.parametrize(("point", "executed"), [("after claim", 0), ("after effect", 1)])
def test_kill_between_claim_and_completion_leaves_the_outcome_unknown(store, effects, kill_worker_at, point, executed):
    kill_worker_at(point)
    await_unknown(store)
    assert run(store, effects, "k").state == "unknown"
    assert run(store, effects, "k", reclaim=False).result is None
    assert executions(effects).total() == executed
    assert [record.key for record in store.records("unknown")] == ["k"]


@pytest.mark.failure(3)
@pytest.mark.parametrize("point", ["after claim", "after effect"])
def test_reclaimable_call_is_run_again_after_a_kill(store, effects, kill_worker_at, point):
    kill_worker_at(point, reclaim=True)
    await_unknown(store)
    assert run(store, effects, "k", reclaim=True) is None
    assert store.get("k").result == "paid k"
    assert executions(effects)["k"] == (1 if point == "after claim" else 2)


@pytest.mark.failure(4)
def test_claim_holder_can_complete_after_lease_expiry_and_repeat_it(store, new_claim):
    """Also after the lease: who holds the token knows the outcome, as long as nobody else was let in."""
    claim = new_claim(lease=0.05)
    store.claim(claim)
    time.sleep(0.07)
    assert store.get("k").state == "unknown"
    assert store.complete("k", claim.token, "r", DAY)
    assert store.complete("k", claim.token, "r", DAY)
    assert store.claim(new_claim()).result == "r"


@pytest.mark.failure(4)
def test_result_is_replayed_after_a_kill_following_completion(store, effects, kill_worker_at):
    kill_worker_at("after complete")
    assert run(store, effects, "k").result == "paid k"
    assert executions(effects) == {"k": 1}


@pytest.mark.failure(5)
def test_duplicate_claim_returns_the_running_record(store, new_claim):
    first = new_claim()
    store.claim(first)
    for reclaim in (False, True):
        second = store.claim(new_claim(reclaim=reclaim))
        assert (second.state, second.token) == ("running", first.token)


@pytest.mark.failure(6)
@pytest.mark.parametrize("state", ["running", "unknown", "done"])
def test_claim_with_another_fingerprint_returns_the_existing_record(store, new_claim, state):
    first = new_claim(fingerprint="five euros")
    store.claim(first)
    if state != "running":
        store.complete("k", first.token, "r", DAY, state)
    second = store.claim(new_claim(fingerprint="six euros", reclaim=True))
    assert (second.fingerprint, second.token, second.state) == ("five euros", first.token, state)


@pytest.mark.failure(7)
def test_released_call_can_be_claimed_again(store, new_claim):
    claim, second = new_claim(), new_claim()
    store.claim(claim)
    assert store.release("k", claim.token)
    assert store.claim(second).token == second.token


@pytest.mark.failure(7)
def test_ambiguous_failure_marks_the_record_unknown_immediately(store, new_claim):
    claim = new_claim()
    store.claim(claim)
    assert store.complete("k", claim.token, "ConnectionResetError", DAY, "unknown")
    told = store.claim(new_claim())
    assert (told.state, told.result) == ("unknown", "ConnectionResetError")
    assert not store.renew("k", claim.token, 60)
    assert not store.release("k", claim.token)
    again = new_claim(reclaim=True)
    taken = store.claim(again)
    assert (taken.token, taken.result) == (again.token, None)


@pytest.mark.failure(8)
def test_only_completed_records_expire(store, new_claim):
    done, unknown, running = new_claim("done"), new_claim("unknown", ttl=0.05), new_claim("running", ttl=0.05)
    for claim in (done, unknown, running):
        store.claim(claim)
    store.complete("done", done.token, "r", 0.05)
    store.complete("unknown", unknown.token, "?", 0.05, "unknown")
    time.sleep(0.1)
    again = new_claim("done", fingerprint="other")
    assert store.claim(again).token == again.token
    assert store.claim(new_claim("unknown")).state == "unknown"
    assert store.claim(new_claim("running")).state == "running"


@pytest.mark.failure(9)
def test_late_worker_cannot_overwrite_a_reclaimed_record(store, new_claim):
    late, second = new_claim(lease=0.05), new_claim(reclaim=True)
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
def test_unreachable_store_fails_fast(url, new_claim):
    store = open_store(url)
    for operation in (
        lambda: store.claim(new_claim()),
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
def test_closed_store_raises_store_error(store, new_claim):
    if isinstance(store, store_servers._Served):
        store = open_store("memory:")
    store.claim(new_claim())
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.claim(new_claim("other"))


@pytest.mark.failure(11)
@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_acknowledged_writes_survive_a_server_crash(servers, name, tmp_path, new_claim):
    server = servers(name)
    store = open_test_store(server.fresh(tmp_path))
    done = new_claim("done")
    store.claim(done)
    store.complete("done", done.token, "r", DAY)
    store.claim(new_claim("running"))
    server.crash()
    assert store.claim(new_claim("done")).result == "r"
    assert store.claim(new_claim("running")).state == "running"
    store.close()


@pytest.mark.failure(11)
def test_redis_without_persistence_loses_claims_in_a_crash(new_claim):
    """Why docs/stores.md asks for `appendfsync always`."""
    server = store_servers.Redis(keeps=False)
    try:
        store = open_test_store(server.url)
        store.claim(new_claim())
        server.crash()
        second = new_claim()
        assert store.claim(second).token == second.token
        store.close()
    finally:
        server.stop()


@pytest.mark.failure(11)
def test_memory_stores_do_not_share_records(new_claim):
    first, second = open_store("memory:"), open_store("memory:")
    first.claim(new_claim())
    assert second.get("k") is None


@pytest.mark.failure(11)
def test_sqlite_uses_full_sync_only_for_durable_claims(tmp_path, new_claim, monkeypatch):
    """FULL for a durable claim and for its completion, whoever completes it; NORMAL otherwise."""
    modes = {1: "NORMAL", 2: "FULL"}
    path = str(tmp_path / "records.db")
    store, other = SqliteStore(path), SqliteStore(path)

    def mode(of):
        return modes[of._file._connection.execute("PRAGMA synchronous").fetchone()[0]]

    light, durable = new_claim("light", durable=False), new_claim("durable")
    store.claim(light)
    assert mode(store) == "NORMAL"
    store.claim(durable)
    assert mode(store) == "FULL"
    other.complete("light", light.token, "r", DAY)
    assert mode(other) == "NORMAL"
    other.complete("durable", durable.token, "r", DAY)
    assert mode(other) == "FULL"
    assert store._file._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()
    other.close()


@pytest.mark.failure(11)
def test_sqlite_file_survives_a_killed_process(tmp_path, effects):
    path = str(tmp_path / "records.db")
    process = PROCESSES.Process(target=worker.work, args=(path, effects, ["k"]), kwargs={"die_at": "after complete"})
    process.start()
    process.join()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with closing(open_store(path)) as store:
        assert store.get("k").result == "paid k"
