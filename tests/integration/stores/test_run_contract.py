"""Check the promises of `toolwire.run.stored_runs.RunStore` on every store."""

import math
import threading
import time

import pytest
from msgspec.structs import replace

from stores.servers import open_test_store
from toolwire.ir.errors import StoreError
from toolwire.run import stored_runs
from toolwire.run.stored_runs import MAX_STATE_BYTES, WEEK, StoredRun
from waiting import SAFETY

SHORT = 0.05
RUN = StoredRun("r1", '{"phase": "ask"}', "waiting", "weather in Paris")


@pytest.fixture
def runs(store):
    return store.runs


def wait_for_expiry():
    time.sleep(SHORT + 0.02)


def test_new_run_gets_version_one_and_times(runs):
    stored = runs.put(RUN, 0, ttl=90.0)
    assert stored == runs.get("r1")
    assert (stored.run_id, stored.state, stored.status, stored.summary) == (
        RUN.run_id,
        RUN.state,
        "waiting",
        RUN.summary,
    )
    assert (stored.version, stored.token, stored.lease_until) == (1, "", 0.0)
    assert stored.expires_at - stored.updated_at == pytest.approx(90.0, abs=1e-3)
    assert stored.created_at == stored.updated_at == pytest.approx(time.time(), abs=60)
    assert runs.get("r2") is None


def test_put_is_a_compare_and_set_on_the_version(runs):
    first = runs.put(RUN, 0)
    second = runs.put(replace(RUN, state="b"), 1)
    assert (second.version, second.state, second.created_at) == (2, "b", first.created_at)
    for expected_version in (0, 1, 3):
        assert runs.put(replace(RUN, state="c"), expected_version) is None
    assert runs.get("r1") == second


def test_absent_run_is_created_only_with_version_zero(runs):
    assert runs.put(RUN, 1) is None
    assert runs.get("r1") is None


def test_repeating_a_put_returns_the_stored_run(runs):
    """The response to a put may be lost."""
    assert runs.put(RUN, 0) == runs.put(RUN, 0)
    assert runs.put(replace(RUN, state="b"), 1) == runs.put(replace(RUN, state="b"), 1)
    assert runs.get("r1").version == 2


def test_only_one_of_many_threads_wins_each_version(runs):
    runs.put(replace(RUN, state="0"), 0)
    wins = []

    def write(name):
        for _ in range(20):
            seen = runs.get("r1")
            if runs.put(replace(RUN, state=f"{name} {seen.version}"), seen.version) is not None:
                wins.append(seen.version)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(1, len(wins) + 1))
    assert runs.get("r1").version == len(wins) + 1


def test_lease_excludes_other_tokens(runs):
    runs.put(RUN, 0)
    leased = runs.lease("r1", "a", 60)
    assert (leased.token, leased.state, leased.version) == ("a", RUN.state, 1)
    assert leased == runs.get("r1")
    assert runs.lease("r1", "b", 60) is None
    assert runs.lease("r1", "a", 60).token == "a"
    assert runs.lease("absent", "a", 60) is None


def test_put_without_the_token_of_the_lease_is_refused(runs):
    runs.put(RUN, 0)
    runs.lease("r1", "a", 60)
    for token in ("", "b"):
        assert runs.put(replace(RUN, state="x", token=token), 1) is None
    assert runs.put(replace(RUN, state="x", token="a", status="running"), 1).version == 2


def test_expired_lease_can_be_taken_and_fences_the_old_holder(runs):
    runs.put(RUN, 0)
    runs.lease("r1", "a", SHORT)
    wait_for_expiry()
    assert runs.lease("r1", "b", 60).token == "b"
    assert runs.put(replace(RUN, state="late", token="a", status="running"), 1) is None
    assert not runs.renew("r1", "a", 60)
    assert not runs.release("r1", "a")
    assert runs.get("r1").token == "b"


def test_writer_without_lease_may_change_a_run_whose_lease_expired(runs):
    runs.put(RUN, 0)
    runs.lease("r1", "a", SHORT)
    wait_for_expiry()
    assert runs.put(replace(RUN, state="approved"), 1).token == ""
    assert runs.put(replace(RUN, state="late", token="a", status="running"), 1) is None


def test_running_run_keeps_its_lease_and_every_other_status_ends_it(runs):
    stored = runs.put(replace(RUN, status="running", token="a"), 0, lease=30.0)
    assert stored.token == "a"
    assert stored.lease_until - stored.updated_at == pytest.approx(30.0, abs=1e-3)
    for version, status in enumerate(("waiting", "done", "failed"), 1):
        ended = runs.put(replace(RUN, status=status, token="a"), version)
        assert (ended.token, ended.lease_until) == ("", 0.0)


def test_renew_extends_and_release_ends_the_lease(runs):
    runs.put(RUN, 0)
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
    runs.put(RUN, 0, ttl=SHORT)
    wait_for_expiry()
    assert runs.get("r1") is None
    assert runs.list() == ()
    assert runs.lease("r1", "a", 60) is None
    assert runs.put(replace(RUN, state="b"), 1) is None
    assert runs.put(replace(RUN, state="b"), 0).version == 1


def test_run_with_a_lease_does_not_expire(runs):
    runs.put(replace(RUN, status="running", token="a"), 0, ttl=SHORT, lease=60)
    wait_for_expiry()
    assert runs.get("r1").token == "a"
    assert runs.sweep() == 0
    assert runs.release("r1", "a")
    assert runs.get("r1") is None


def test_put_renews_the_time_to_live(runs):
    for ttl in (SHORT, 10 * SHORT, SAFETY):
        runs.put(RUN, 0, ttl=ttl)
        if runs.put(replace(RUN, state="b"), 1, ttl=WEEK) is not None:  # the first one had not expired yet
            break
    time.sleep(ttl + 0.02)
    assert runs.get("r1").state == "b"


def test_infinite_time_to_live_never_expires(runs):
    assert runs.put(RUN, 0, ttl=math.inf).expires_at == math.inf
    assert runs.sweep() == 0
    assert runs.get("r1").expires_at == math.inf


def test_list_is_newest_first_by_status_and_limit_and_without_states(runs):
    for number, status in enumerate(("waiting", "running", "done", "waiting", "failed")):
        runs.put(replace(RUN, run_id=f"r{number}", status=status), 0)
        time.sleep(0.002)
    assert [run.run_id for run in runs.list()] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run.run_id for run in runs.list(limit=2)] == ["r4", "r3"]
    assert [run.run_id for run in runs.list("waiting")] == ["r3", "r0"]
    assert [run.run_id for run in runs.list("failed", 1)] == ["r4"]
    assert {run.state for run in runs.list()} == {""}
    assert runs.list()[0] == replace(runs.get("r4"), state="")


def test_list_defaults_to_100_runs(runs):
    for number in range(120):
        runs.put(replace(RUN, run_id=f"r{number}"), 0)
    assert len(runs.list()) == 100
    assert len(runs.list(limit=1000)) == 120


def test_delete_refuses_a_leased_run(runs):
    assert not runs.delete("r1")
    runs.put(RUN, 0)
    runs.lease("r1", "a", 60)
    assert not runs.delete("r1")
    runs.release("r1", "a")
    assert runs.delete("r1")
    assert runs.get("r1") is None
    assert runs.list() == ()


def test_sweep_deletes_only_expired_runs(runs):
    for run_id, ttl in (("over", SHORT), ("over too", SHORT), ("lasts", WEEK)):
        runs.put(replace(RUN, run_id=run_id), 0, ttl=ttl)
    wait_for_expiry()
    assert runs.sweep() == 2
    assert runs.sweep() == 0
    assert [run.run_id for run in runs.list()] == ["lasts"]


def test_two_connections_share_the_runs(store_url, runs):
    other = open_test_store(store_url)
    runs.put(RUN, 0)
    assert other.runs.put(replace(RUN, state="b"), 1).version == 2
    assert runs.get("r1").state == "b"
    assert runs.put(replace(RUN, state="c"), 1) is None
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
    runs.put(replace(RUN, run_id="bystander"), 0)
    stored = runs.put(StoredRun(text, text, "running", text, token=text), 0)
    assert (stored.run_id, stored.state, stored.summary, stored.token) == (text, text, text, text)
    assert runs.get(text) == stored
    assert text in [run.run_id for run in runs.list()]
    assert runs.get("bystander").version == 1


def test_state_at_the_limit_is_stored(runs, monkeypatch):
    monkeypatch.setattr(stored_runs, "MAX_STATE_BYTES", 1000)
    assert runs.put(replace(RUN, state="é" * 500), 0).state == "é" * 500


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (replace(RUN, state="x" * (MAX_STATE_BYTES + 1)), "the maximum is 16777216"),
        (replace(RUN, state="é" * (MAX_STATE_BYTES // 2 + 1)), "the maximum is 16777216"),
        (replace(RUN, run_id="x" * 256), "1 to 255 characters, got 256"),
        (replace(RUN, run_id=""), "1 to 255 characters, got 0"),
        (replace(RUN, summary="x" * 1001), "at most 1000 characters, got 1001"),
    ],
    ids=["state", "state in bytes", "long id", "empty id", "summary"],
)
def test_run_that_is_too_large_is_refused(runs, run, message):
    with pytest.raises(StoreError, match=message):
        runs.put(run, 0)
    assert runs.list() == ()


def test_five_megabyte_state_is_stored(runs):
    state = "".join(map(chr, range(32, 0x2FF))) * 7_000
    assert runs.put(replace(RUN, state=state), 0).state == state
    assert runs.get("r1").state == state


def test_closed_store_refuses_runs(store_url):
    store = open_test_store(store_url)
    store.close()
    if not store_url.startswith("served:"):
        with pytest.raises(StoreError, match="closed"):
            store.runs.get("r1")


def test_tenant_is_kept_and_another_one_cannot_replace_the_run(runs):
    stored = runs.put(replace(RUN, tenant="a\0ü"), 0)
    assert stored.tenant == runs.get("r1").tenant == "a\0ü"
    for tenant in ("", "b"):
        assert runs.put(replace(RUN, state="x", tenant=tenant), 1) is None
        assert runs.put(replace(RUN, tenant=tenant), 0) is None, "not a repetition of the first put"
    assert runs.lease("r1", "t", 60).tenant == "a\0ü"
    assert runs.put(replace(stored, state="y", token="t"), 1).tenant == "a\0ü"


def test_runs_are_listed_by_tenant(runs):
    for number, tenant in enumerate(("a", "b", "", "a")):
        runs.put(replace(RUN, run_id=f"r{number}", tenant=tenant, status="done" if number == 3 else "waiting"), 0)
    assert {run.run_id for run in runs.list()} == {"r0", "r1", "r2", "r3"}
    assert {run.run_id for run in runs.list(tenant="a")} == {"r0", "r3"}
    assert [run.run_id for run in runs.list("waiting", tenant="a")] == ["r0"]
    assert [run.run_id for run in runs.list(tenant="")] == ["r2"]
    assert len(runs.list(limit=1, tenant="a")) == 1
    assert runs.list(tenant="c") == ()


def test_long_tenant_is_refused(runs):
    with pytest.raises(StoreError, match="tenant must have at most 255"):
        runs.put(replace(RUN, tenant="a" * 256), 0)
