"""Check the promises of `toolwire.run.values.records.RunStore` on every store."""

import math
import threading
import time

import pytest
from msgspec.structs import replace

from stores.servers import open_test_store
from toolwire.ir.errors import StoreError
from toolwire.run.values.records import MAX_ROW_BYTES, WEEK, RunConflict, StoredRun, read_rows
from waiting import SAFETY

SHORT = 0.05
RUN = StoredRun("r1", "waiting", "weather in Paris")


def put(runs, run, expected_version, text="a", **options):
    """Append a row with a text."""
    return runs.append(run, [text.encode("utf-8", "surrogatepass")], expected_version, **options)


def log(runs, run_id="r1"):
    """Return the log of a run as a text."""
    return b"".join(read_rows(runs, runs.get(run_id))).decode("utf-8", "surrogatepass")


@pytest.fixture
def runs(store):
    return store.runs


def wait_for_expiry():
    time.sleep(SHORT + 0.02)


def test_new_run_gets_version_one_and_times(runs):
    stored = put(runs, RUN, 0, ttl=90.0)
    assert stored == runs.get("r1")
    assert (stored.run_id, stored.status, stored.summary, stored.rows) == (RUN.run_id, "waiting", RUN.summary, 1)
    assert log(runs) == "a"
    assert (stored.version, stored.token, stored.lease_until) == (1, "", 0.0)
    assert stored.expires_at - stored.updated_at == pytest.approx(90.0, abs=1e-3)
    assert stored.created_at == stored.updated_at == pytest.approx(time.time(), abs=60)
    assert runs.get("r2") is None


def test_append_is_a_compare_and_set_on_the_version(runs):
    first = put(runs, RUN, 0)
    second = put(runs, RUN, 1, "b")
    assert (second.version, second.rows, second.created_at) == (2, 2, first.created_at)
    for expected_version in (0, 1, 3):
        assert put(runs, RUN, expected_version, "c") is None
    assert runs.get("r1") == second
    assert log(runs) == "ab"


def test_absent_run_is_created_only_with_version_zero(runs):
    assert put(runs, RUN, 1) is None
    assert runs.get("r1") is None


def test_repeating_an_append_returns_the_stored_run(runs):
    """The response to an append may be lost."""
    assert put(runs, RUN, 0) == put(runs, RUN, 0)
    assert put(runs, RUN, 1, "b") == put(runs, RUN, 1, "b")
    assert runs.get("r1").version == 2
    assert log(runs) == "ab"


def test_only_one_of_many_threads_wins_each_version(runs):
    put(runs, RUN, 0, "0;")
    wins = []

    def write(name):
        for _ in range(20):
            seen = runs.get("r1")
            if put(runs, RUN, seen.version, f"{name} {seen.version};") is not None:
                wins.append(seen.version)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(1, len(wins) + 1))
    assert runs.get("r1").version == len(wins) + 1
    assert [int(line.split()[-1]) for line in log(runs).split(";")[1:-1]] == sorted(wins)


def test_lease_excludes_other_tokens(runs):
    put(runs, RUN, 0)
    leased = runs.lease("r1", "a", 60)
    assert (leased.token, leased.rows, leased.version) == ("a", 1, 1)
    assert leased == runs.get("r1")
    assert runs.lease("r1", "b", 60) is None
    assert runs.lease("r1", "a", 60).token == "a"
    assert runs.lease("absent", "a", 60) is None


def test_append_without_the_token_of_the_lease_is_refused(runs):
    put(runs, RUN, 0)
    runs.lease("r1", "a", 60)
    for token in ("", "b"):
        assert put(runs, replace(RUN, token=token), 1, "x") is None
    assert put(runs, replace(RUN, token="a", status="running"), 1, "x").version == 2


def test_expired_lease_can_be_taken_and_fences_the_old_holder(runs):
    put(runs, RUN, 0)
    runs.lease("r1", "a", SHORT)
    wait_for_expiry()
    assert runs.lease("r1", "b", 60).token == "b"
    assert put(runs, replace(RUN, token="a", status="running"), 1, "late") is None
    assert not runs.renew("r1", "a", 60)
    assert not runs.release("r1", "a")
    assert runs.get("r1").token == "b"


def test_writer_without_lease_may_change_a_run_whose_lease_expired(runs):
    put(runs, RUN, 0)
    runs.lease("r1", "a", SHORT)
    wait_for_expiry()
    assert put(runs, RUN, 1, "approved").token == ""
    assert put(runs, replace(RUN, token="a", status="running"), 1, "late") is None


def test_running_run_keeps_its_lease_and_every_other_status_ends_it(runs):
    stored = put(runs, replace(RUN, status="running", token="a"), 0, lease=30.0)
    assert stored.token == "a"
    assert stored.lease_until - stored.updated_at == pytest.approx(30.0, abs=1e-3)
    for version, status in enumerate(("waiting", "done", "failed"), 1):
        ended = put(runs, replace(RUN, status=status, token="a"), version)
        assert (ended.token, ended.lease_until) == ("", 0.0)


def test_renew_extends_and_release_ends_the_lease(runs):
    put(runs, RUN, 0)
    runs.lease("r1", "a", SHORT)
    assert runs.renew("r1", "a", 60)
    wait_for_expiry()
    assert runs.lease("r1", "b", 60) is None
    assert runs.release("r1", "a")
    assert not runs.release("r1", "a")
    assert not runs.renew("r1", "a", 60)
    assert runs.lease("r1", "b", 60).token == "b"
    for empty in (runs.renew("r2", "", 1), runs.release("r2", "")):
        assert empty is False


def test_expired_run_is_absent_and_its_id_is_free(runs):
    put(runs, RUN, 0, ttl=SHORT)
    wait_for_expiry()
    assert runs.get("r1") is None
    assert runs.list() == ()
    assert runs.lease("r1", "a", 60) is None
    assert put(runs, RUN, 1, "b") is None
    assert put(runs, RUN, 0, "b").version == 1


def test_run_with_a_lease_does_not_expire(runs):
    put(runs, replace(RUN, status="running", token="a"), 0, ttl=SHORT, lease=60)
    wait_for_expiry()
    assert runs.get("r1").token == "a"
    assert runs.sweep() == 0
    assert runs.release("r1", "a")
    assert runs.get("r1") is None


def test_append_renews_the_time_to_live(runs):
    for ttl in (SHORT, 10 * SHORT, SAFETY):
        put(runs, RUN, 0, ttl=ttl)
        if put(runs, RUN, 1, "b", ttl=WEEK) is not None:  # the first one had not expired yet
            break
    time.sleep(ttl + 0.02)
    assert log(runs) == "ab"


def test_infinite_time_to_live_never_expires(runs):
    assert put(runs, RUN, 0, ttl=math.inf).expires_at == math.inf
    assert runs.sweep() == 0
    assert runs.get("r1").expires_at == math.inf


def test_list_is_newest_first_by_status_and_limit(runs):
    for number, status in enumerate(("waiting", "running", "done", "waiting", "failed")):
        put(runs, replace(RUN, run_id=f"r{number}", status=status), 0)
        time.sleep(0.002)
    assert [run.run_id for run in runs.list()] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run.run_id for run in runs.list(limit=2)] == ["r4", "r3"]
    assert [run.run_id for run in runs.list("waiting")] == ["r3", "r0"]
    assert [run.run_id for run in runs.list("failed", 1)] == ["r4"]
    assert runs.list()[0] == runs.get("r4")


def test_list_defaults_to_100_runs(runs):
    for number in range(120):
        put(runs, replace(RUN, run_id=f"r{number}"), 0)
    assert len(runs.list()) == 100
    assert len(runs.list(limit=1000)) == 120


def test_ready_runs_are_those_that_run_and_that_no_process_continues(runs):
    for number in range(3):
        put(runs, replace(RUN, run_id=f"r{number}", status="running"), 0)
        time.sleep(0.002)
    put(runs, replace(RUN, run_id="waits"), 0)
    put(runs, replace(RUN, run_id="expired", status="running"), 0, ttl=SHORT)
    put(runs, replace(RUN, run_id="leased", status="running", token="a"), 0)
    wait_for_expiry()
    assert list(runs.ready()) == ["r2", "r1", "r0"]
    assert list(runs.ready(2)) == ["r2", "r1"]

    runs.lease("r0", "b", 60)
    put(runs, replace(RUN, run_id="r1", status="done"), 1, "b")
    assert list(runs.ready()) == ["r2"]
    time.sleep(0.002)
    runs.release("leased", "a")
    put(runs, replace(RUN, run_id="waits", status="running"), 1, "b")  # decided
    assert list(runs.ready()) == ["waits", "leased", "r2"]
    runs.delete("r2")
    assert list(runs.ready()) == ["waits", "leased"]


def test_delete_refuses_a_leased_run(runs):
    assert not runs.delete("r1")
    put(runs, RUN, 0)
    runs.lease("r1", "a", 60)
    assert not runs.delete("r1")
    runs.release("r1", "a")
    assert runs.delete("r1")
    assert runs.get("r1") is None
    assert runs.list() == ()


def test_sweep_deletes_only_expired_runs(runs):
    for run_id, ttl in (("over", SHORT), ("over too", SHORT), ("lasts", WEEK)):
        put(runs, replace(RUN, run_id=run_id), 0, ttl=ttl)
    wait_for_expiry()
    assert runs.sweep() == 2
    assert runs.sweep() == 0
    assert [run.run_id for run in runs.list()] == ["lasts"]


def test_two_connections_share_the_runs(store_url, runs):
    other = open_test_store(store_url)
    put(runs, RUN, 0)
    assert put(other.runs, RUN, 1, "b").version == 2
    assert log(runs) == "ab"
    assert put(runs, RUN, 1, "c") is None
    other.close()


HOSTILE = [
    "a\0b",
    "Ключ 🔑 \u202e\ufeff",
    "\ud83d",
    "'; DROP TABLE runs; --",
    "]] redis.call('FLUSHALL') --[[",
    "*",
    "{x}:runs",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_any_text_is_accepted(runs, text):
    put(runs, replace(RUN, run_id="bystander"), 0)
    stored = put(runs, StoredRun(text, "running", text, token=text), 0, text)
    assert (stored.run_id, stored.summary, stored.token) == (text, text, text)
    assert log(runs, text) == text
    assert runs.get(text) == stored
    assert text in [run.run_id for run in runs.list()]
    assert runs.get("bystander").version == 1


@pytest.mark.parametrize(
    ("run", "row", "message"),
    [
        (RUN, b"x" * (MAX_ROW_BYTES + 1), "the maximum is 1048576"),
        (replace(RUN, run_id="x" * 256), b"", "1 to 255 characters, got 256"),
        (replace(RUN, run_id=""), b"", "1 to 255 characters, got 0"),
        (replace(RUN, summary="x" * 1001), b"", "at most 1000 characters, got 1001"),
    ],
    ids=["row", "long id", "empty id", "summary"],
)
def test_value_that_is_too_large_is_refused(runs, run, row, message):
    with pytest.raises(StoreError, match=message):
        runs.append(run, [row], 0)
    assert runs.list() == ()


@pytest.mark.finding("RU2")
def test_log_of_many_rows_is_stored_in_one_append_and_read_in_pages(runs):
    rows = [bytes([number]) * MAX_ROW_BYTES for number in range(19)] + [b"end"]
    stored = runs.append(RUN, rows, 0)
    assert runs.append(RUN, rows, 0) == stored, "a repeated append"
    assert runs.append(RUN, rows, 7) is None
    assert (stored.version, stored.rows) == (1, 20)
    again = runs.append(RUN, rows, 1)
    assert (again.version, again.rows) == (2, 40)
    assert list(read_rows(runs, stored)) == rows, "the version that was read, not the newest one"
    assert list(read_rows(runs, again)) == rows * 2
    assert list(runs.rows("r1", 18, 21)) == [rows[18], b"end", rows[0]]


def test_empty_append_changes_only_the_summary(runs):
    put(runs, RUN, 0)
    assert runs.append(replace(RUN, status="done"), (), 1).version == 2
    assert (log(runs), runs.get("r1").status) == ("a", "done")


def test_restart_replaces_the_log(runs):
    first = put(runs, RUN, 0, "old")
    put(runs, RUN, 1, "older")
    again = put(runs, RUN, 2, "new", restart=True)
    assert (again.version, again.rows, again.created_at) == (3, 1, first.created_at)
    assert log(runs) == "new"
    assert put(runs, RUN, 2, "x", restart=True) is None


def test_log_of_an_expired_or_deleted_run_is_gone(runs):
    put(runs, RUN, 0, "old", ttl=SHORT)
    wait_for_expiry()
    put(runs, RUN, 0, "new")
    assert log(runs) == "new"
    seen = runs.get("r1")
    assert runs.delete("r1")
    assert list(runs.rows("r1", 0, 10)) == []
    with pytest.raises(RunConflict, match="has 0 rows, expected 1"):
        list(read_rows(runs, seen))
    put(runs, RUN, 0, "old", ttl=SHORT)
    wait_for_expiry()
    runs.sweep()
    assert list(runs.rows("r1", 0, 10)) == []


def test_closed_store_refuses_runs(store_url):
    store = open_test_store(store_url)
    store.close()
    if not store_url.startswith("served:"):
        with pytest.raises(StoreError, match="closed"):
            store.runs.get("r1")


def test_tenant_is_kept_and_another_one_cannot_replace_the_run(runs):
    stored = put(runs, replace(RUN, tenant="a\0ü"), 0)
    assert stored.tenant == runs.get("r1").tenant == "a\0ü"
    for tenant in ("", "b"):
        assert put(runs, replace(RUN, tenant=tenant), 1, "x") is None
        assert put(runs, replace(RUN, tenant=tenant), 0) is None, "not a repetition of the first put"
    assert runs.lease("r1", "t", 60).tenant == "a\0ü"
    assert put(runs, replace(stored, token="t"), 1, "y").tenant == "a\0ü"


def test_runs_are_listed_by_tenant(runs):
    for number, tenant in enumerate(("a", "b", "", "a")):
        put(runs, replace(RUN, run_id=f"r{number}", tenant=tenant, status="done" if number == 3 else "waiting"), 0)
    assert {run.run_id for run in runs.list()} == {"r0", "r1", "r2", "r3"}
    assert {run.run_id for run in runs.list(tenant="a")} == {"r0", "r3"}
    assert [run.run_id for run in runs.list("waiting", tenant="a")] == ["r0"]
    assert [run.run_id for run in runs.list(tenant="")] == ["r2"]
    assert len(runs.list(limit=1, tenant="a")) == 1
    assert runs.list(tenant="c") == ()


def test_long_tenant_is_refused(runs):
    with pytest.raises(StoreError, match="tenant must have at most 255"):
        put(runs, replace(RUN, tenant="a" * 256), 0)
