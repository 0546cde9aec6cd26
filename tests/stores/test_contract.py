"""The guarantees of `toolwire.run.values.records.Store`, tested on every store."""

import math
import threading
import time

import pytest

from stores.servers import open_test_store
from toolwire.run.values.records import DAY

SHORT = 0.05


def wait_for_lease_expiry():
    time.sleep(SHORT + 0.02)


def test_claim_is_granted_and_stored(store, new_claim):
    claim = new_claim(lease=30.0, ttl=90.0)
    record = store.claim(claim)
    assert (record.key, record.tool, record.fingerprint, record.token) == ("k", "pay", "f", claim.token)
    assert (record.state, record.result) == ("running", None)
    assert record.lease_until - record.created_at == pytest.approx(30.0, abs=1e-3)
    assert record.expires_at - record.created_at == pytest.approx(90.0, abs=1e-3)
    assert record.created_at == pytest.approx(time.time(), abs=60)
    assert store.get("k") == record


def test_repeating_a_claim_returns_the_same_record(store, new_claim):
    """The answer to a claim may be lost on its way."""
    claim = new_claim()
    assert store.claim(claim) == store.claim(claim)


def test_a_result_is_replayed(store, new_claim):
    claim = new_claim()
    store.claim(claim)
    assert store.complete("k", claim.token, '{"paid": "5 €"}', DAY)
    again = store.claim(new_claim())
    assert (again.state, again.result, again.token) == ("done", '{"paid": "5 €"}', claim.token)


def test_complete_is_idempotent_and_never_overwrites_the_result(store, new_claim):
    """The answer to a completion may be lost, too; but what is done stays as it is."""
    claim = new_claim()
    store.claim(claim)
    assert store.complete("k", claim.token, "a", DAY)
    assert store.complete("k", claim.token, "a", DAY)
    assert not store.complete("k", claim.token, "b", DAY)
    assert not store.complete("k", claim.token, "a", DAY, "unknown")
    assert (store.get("k").state, store.get("k").result) == ("done", "a")


def test_complete_renew_and_release_require_the_claim_token(store, new_claim):
    store.claim(new_claim())
    assert not store.complete("k", "another", "stolen", DAY)
    assert not store.renew("k", "another", 60)
    assert not store.release("k", "another")
    assert store.get("k").state == "running"
    for absent in (store.complete("none", "t", "r", DAY), store.renew("none", "t", 60), store.release("none", "t")):
        assert absent is False


def test_renew_extends_the_lease(store, new_claim):
    claim = new_claim(lease=SHORT)
    store.claim(claim)
    assert store.renew("k", claim.token, 60)
    wait_for_lease_expiry()
    assert store.get("k").state == "running"
    assert store.claim(new_claim(reclaim=True)).token == claim.token


def test_release_deletes_the_record(store, new_claim):
    claim = new_claim()
    store.claim(claim)
    assert store.release("k", claim.token)
    assert store.get("k") is None
    assert store.records() == []
    second = new_claim()
    assert store.claim(second).token == second.token


def test_completed_record_cannot_be_renewed_or_released(store, new_claim):
    claim = new_claim()
    store.claim(claim)
    store.complete("k", claim.token, "r", DAY)
    assert not store.renew("k", claim.token, 60)
    assert not store.release("k", claim.token)
    assert store.get("k").result == "r"


def test_expired_lease_is_reported_as_unknown_by_every_operation(store, new_claim):
    claim = new_claim(lease=SHORT)
    store.claim(claim)
    wait_for_lease_expiry()
    assert store.get("k").state == "unknown"
    assert store.claim(new_claim()).state == "unknown"
    assert [record.state for record in store.records()] == ["unknown"]
    assert [record.key for record in store.records("unknown")] == ["k"]
    assert store.records("running") == []


def test_reclaim_takes_only_unknown_records_with_the_same_fingerprint(store, new_claim):
    store.claim(new_claim(lease=60))
    assert store.claim(new_claim(reclaim=True)).state == "running"
    store.claim(new_claim("lost", lease=SHORT))
    wait_for_lease_expiry()
    assert store.claim(new_claim("lost", reclaim=True, fingerprint="other")).state == "unknown"
    second = new_claim("lost", reclaim=True)
    taken = store.claim(second)
    assert (taken.token, taken.state) == (second.token, "running")


def test_records_are_listed_newest_first_by_state_and_limit(store, new_claim):
    for number in range(6):
        claim = new_claim(f"k{number}")
        store.claim(claim)
        if number % 2:
            store.complete(claim.key, claim.token, "r", DAY)
        if number == 4:
            store.complete(claim.key, claim.token, "?", DAY, "unknown")
        time.sleep(0.002)
    assert [record.key for record in store.records()] == ["k5", "k4", "k3", "k2", "k1", "k0"]
    assert [record.key for record in store.records(limit=2)] == ["k5", "k4"]
    assert [record.key for record in store.records("done", limit=2)] == ["k5", "k3"]
    assert [record.key for record in store.records("running")] == ["k2", "k0"]
    assert [record.key for record in store.records("unknown")] == ["k4"]


def test_records_span_several_pages_and_default_to_100(store, new_claim):
    for number in range(230):
        store.claim(new_claim(f"k{number}", durable=False))
    assert len(store.records(limit=1000)) == 230
    assert len(store.records()) == 100


def test_resolve_accepts_only_unknown_records(store, new_claim):
    assert not store.resolve("none", "r")
    running = new_claim("running")
    store.claim(running)
    assert not store.resolve("running", "r")
    assert not store.resolve("running", None)
    store.complete("running", running.token, "mine", DAY)
    assert not store.resolve("running", "r")
    assert not store.resolve("running", None)
    assert store.get("running").result == "mine"


def test_resolve_with_a_result_completes_the_record(store, new_claim):
    claim = new_claim(lease=SHORT)
    store.claim(claim)
    wait_for_lease_expiry()
    assert store.resolve("k", "it was paid")
    replay = store.claim(new_claim())
    assert (replay.state, replay.result) == ("done", "it was paid")
    assert not store.complete("k", claim.token, "late", DAY), "the person's word stands"
    assert store.records("unknown") == []


def test_resolve_without_a_result_deletes_the_record(store, new_claim):
    claim = new_claim(lease=SHORT)
    store.claim(claim)
    wait_for_lease_expiry()
    assert store.resolve("k", None)
    assert store.get("k") is None
    assert not store.complete("k", claim.token, "late", DAY)
    second = new_claim()
    assert store.claim(second).token == second.token


def test_sweep_deletes_only_expired_completed_records(store, new_claim):
    for key, ttl in (("over", SHORT), ("over too", SHORT), ("lasts", DAY)):
        claim = new_claim(key)
        store.claim(claim)
        store.complete(key, claim.token, "r", ttl)
    store.claim(new_claim("running", ttl=SHORT))
    store.claim(new_claim("lapsed", lease=SHORT, ttl=SHORT))
    unknown = new_claim("unknown", ttl=SHORT)
    store.claim(unknown)
    store.complete("unknown", unknown.token, "?", SHORT, "unknown")
    wait_for_lease_expiry()
    assert store.sweep() == 2
    assert store.sweep() == 0
    assert {record.key for record in store.records()} == {"lasts", "running", "lapsed", "unknown"}


def test_expired_record_is_hidden_before_it_is_swept(store, new_claim):
    claim = new_claim()
    store.claim(claim)
    store.complete("k", claim.token, "r", SHORT)
    wait_for_lease_expiry()
    assert store.get("k") is None
    assert store.records() == []


def test_infinite_ttl_never_expires(store, new_claim):
    claim = new_claim(ttl=math.inf)
    store.claim(claim)
    assert store.complete("k", claim.token, "r", math.inf)
    assert store.get("k").expires_at == math.inf
    assert store.sweep() == 0


def test_two_connections_share_one_store(store_url, store, new_claim):
    other = open_test_store(store_url)
    claim = new_claim()
    store.claim(claim)
    assert other.claim(new_claim()).token == claim.token
    assert other.complete("k", claim.token, "r", DAY)
    assert store.get("k").result == "r"
    other.close()


def test_threads_share_a_store(store, new_claim):
    """Eight threads, fifty keys, one execution each."""
    taken = []
    claims = [[new_claim(f"k{number}", durable=False) for number in range(50)] for _ in range(8)]

    def work(mine):
        for claim in mine:
            if store.claim(claim).token == claim.token:
                taken.append(claim.key)
                store.complete(claim.key, claim.token, "r", DAY)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(f"k{number}" for number in range(50))
    assert len(store.records("done", limit=1000)) == 50


HOSTILE = {
    "empty": "",
    "a megabyte": "k" * 1_000_000,
    "NUL": "a\0b",
    "unicode": "Ключ 🔑 ключ \u202e\ufeff",
    "half a surrogate pair": "\ud83d",
    "SQL": "'; DROP TABLE records; --",
    "more SQL": '") OR 1=1 --%(key)s %s ?1 :key',
    "Lua": "]] redis.call('FLUSHALL') --[[",
    "hash tags": "{other}:{toolwire:1}:done",
    "lines": "a\r\nSET x y\r\n",
    "glob": "*",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_text_is_accepted_as_a_key(store, new_claim, text):
    store.claim(new_claim("bystander"))
    claim = new_claim(text, tool=text, fingerprint=text)
    assert store.claim(claim).key == text
    assert store.claim(new_claim(text + "2")).state == "running"
    assert store.complete(text, claim.token, text, DAY)
    record = store.get(text)
    assert (record.key, record.tool, record.fingerprint, record.result) == (text, text, text, text)
    assert text in [record.key for record in store.records("done")]
    assert store.get("bystander").state == "running"
    assert len(store.records()) == 3


def test_nul_does_not_truncate_a_key(store, new_claim):
    store.claim(new_claim("a\0b"))
    assert store.get("a") is None
    assert store.get("a\0c") is None


def test_five_megabyte_result_is_stored(store, new_claim):
    result = "".join(map(chr, range(32, 0x2FF))) * 7_000
    claim = new_claim()
    store.claim(claim)
    assert len(result.encode()) > 5_000_000
    assert store.complete("k", claim.token, result, DAY)
    assert store.claim(new_claim()).result == result
