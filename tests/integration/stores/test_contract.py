"""What `toolwire.run.records.Store` promises, on every store."""

import math
import threading
import time

import pytest

from stores.servers import open_place
from toolwire.run.records import DAY

SHORT = 0.05


def lapse():
    time.sleep(SHORT + 0.02)


def test_a_claim_is_ours_and_is_kept(store, wish):
    claim = wish(lease=30.0, ttl=90.0)
    record = store.claim(claim)
    assert (record.key, record.tool, record.fingerprint, record.token) == ("k", "pay", "f", claim.token)
    assert (record.state, record.result) == ("running", None)
    assert record.lease_until - record.created_at == pytest.approx(30.0, abs=1e-3)
    assert record.expires_at - record.created_at == pytest.approx(90.0, abs=1e-3)
    assert record.created_at == pytest.approx(time.time(), abs=60)
    assert store.get("k") == record


def test_the_same_claim_again_is_still_ours(store, wish):
    """The answer to a claim may be lost on its way."""
    claim = wish()
    assert store.claim(claim) == store.claim(claim)


def test_a_result_is_replayed(store, wish):
    claim = wish()
    store.claim(claim)
    assert store.complete("k", claim.token, '{"paid": "5 €"}', DAY)
    again = store.claim(wish())
    assert (again.state, again.result, again.token) == ("done", '{"paid": "5 €"}', claim.token)


def test_to_complete_twice_is_to_complete_once(store, wish):
    """The answer to a completion may be lost, too; but what is done stays as it is."""
    claim = wish()
    store.claim(claim)
    assert store.complete("k", claim.token, "a", DAY)
    assert store.complete("k", claim.token, "a", DAY)
    assert not store.complete("k", claim.token, "b", DAY)
    assert not store.complete("k", claim.token, "a", DAY, "unknown")
    assert (store.get("k").state, store.get("k").result) == ("done", "a")


def test_only_the_token_completes_renews_and_releases(store, wish):
    store.claim(wish())
    assert not store.complete("k", "another", "stolen", DAY)
    assert not store.renew("k", "another", 60)
    assert not store.release("k", "another")
    assert store.get("k").state == "running"
    for absent in (store.complete("none", "t", "r", DAY), store.renew("none", "t", 60), store.release("none", "t")):
        assert absent is False


def test_a_renewed_lease_is_longer(store, wish):
    claim = wish(lease=SHORT)
    store.claim(claim)
    assert store.renew("k", claim.token, 60)
    lapse()
    assert store.get("k").state == "running"
    assert store.claim(wish(reclaim=True)).token == claim.token


def test_a_released_claim_leaves_nothing(store, wish):
    claim = wish()
    store.claim(claim)
    assert store.release("k", claim.token)
    assert store.get("k") is None
    assert store.records() == []
    second = wish()
    assert store.claim(second).token == second.token


def test_what_is_done_is_neither_renewed_nor_released(store, wish):
    claim = wish()
    store.claim(claim)
    store.complete("k", claim.token, "r", DAY)
    assert not store.renew("k", claim.token, 60)
    assert not store.release("k", claim.token)
    assert store.get("k").result == "r"


def test_a_passed_lease_is_told_as_unknown_everywhere(store, wish):
    claim = wish(lease=SHORT)
    store.claim(claim)
    lapse()
    assert store.get("k").state == "unknown"
    assert store.claim(wish()).state == "unknown"
    assert [record.state for record in store.records()] == ["unknown"]
    assert [record.key for record in store.records("unknown")] == ["k"]
    assert store.records("running") == []


def test_reclaiming_takes_only_what_is_unknown_and_the_same(store, wish):
    store.claim(wish(lease=60))
    assert store.claim(wish(reclaim=True)).state == "running"
    store.claim(wish("lost", lease=SHORT))
    lapse()
    assert store.claim(wish("lost", reclaim=True, fingerprint="other")).state == "unknown"
    second = wish("lost", reclaim=True)
    taken = store.claim(second)
    assert (taken.token, taken.state) == (second.token, "running")


def test_records_are_told_newest_first_by_state_and_not_too_many(store, wish):
    for number in range(6):
        claim = wish(f"k{number}")
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


def test_more_records_than_a_page(store, wish):
    for number in range(230):
        store.claim(wish(f"k{number}", durable=False))
    assert len(store.records(limit=1000)) == 230
    assert len(store.records()) == 100


def test_only_unknown_is_resolved(store, wish):
    assert not store.resolve("none", "r")
    running = wish("running")
    store.claim(running)
    assert not store.resolve("running", "r")
    assert not store.resolve("running", None)
    store.complete("running", running.token, "mine", DAY)
    assert not store.resolve("running", "r")
    assert not store.resolve("running", None)
    assert store.get("running").result == "mine"


def test_resolved_with_a_result_is_done(store, wish):
    claim = wish(lease=SHORT)
    store.claim(claim)
    lapse()
    assert store.resolve("k", "it was paid")
    replay = store.claim(wish())
    assert (replay.state, replay.result) == ("done", "it was paid")
    assert not store.complete("k", claim.token, "late", DAY), "the person's word stands"
    assert store.records("unknown") == []


def test_resolved_without_a_result_is_forgotten(store, wish):
    claim = wish(lease=SHORT)
    store.claim(claim)
    lapse()
    assert store.resolve("k", None)
    assert store.get("k") is None
    assert not store.complete("k", claim.token, "late", DAY)
    second = wish()
    assert store.claim(second).token == second.token


def test_sweeping_deletes_what_is_over_and_nothing_else(store, wish):
    for key, ttl in (("over", SHORT), ("over too", SHORT), ("lasts", DAY)):
        claim = wish(key)
        store.claim(claim)
        store.complete(key, claim.token, "r", ttl)
    store.claim(wish("running", ttl=SHORT))
    store.claim(wish("lapsed", lease=SHORT, ttl=SHORT))
    unknown = wish("unknown", ttl=SHORT)
    store.claim(unknown)
    store.complete("unknown", unknown.token, "?", SHORT, "unknown")
    lapse()
    assert store.sweep() == 2
    assert store.sweep() == 0
    assert {record.key for record in store.records()} == {"lasts", "running", "lapsed", "unknown"}


def test_what_is_over_is_not_told_before_it_is_swept(store, wish):
    claim = wish()
    store.claim(claim)
    store.complete("k", claim.token, "r", SHORT)
    lapse()
    assert store.get("k") is None
    assert store.records() == []


def test_a_time_to_live_without_end(store, wish):
    claim = wish(ttl=math.inf)
    store.claim(claim)
    assert store.complete("k", claim.token, "r", math.inf)
    assert store.get("k").expires_at == math.inf
    assert store.sweep() == 0


def test_two_openings_are_one_store(place, store, wish):
    other = open_place(place)
    claim = wish()
    store.claim(claim)
    assert other.claim(wish()).token == claim.token
    assert other.complete("k", claim.token, "r", DAY)
    assert store.get("k").result == "r"
    other.close()


def test_threads_share_a_store(store, wish):
    """Eight threads, fifty keys, one execution each."""
    taken = []
    claims = [[wish(f"k{number}", durable=False) for number in range(50)] for _ in range(8)]

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
def test_any_text_is_a_key(store, wish, text):
    store.claim(wish("bystander"))
    claim = wish(text, tool=text, fingerprint=text)
    assert store.claim(claim).key == text
    assert store.claim(wish(text + "2")).state == "running"
    assert store.complete(text, claim.token, text, DAY)
    record = store.get(text)
    assert (record.key, record.tool, record.fingerprint, record.result) == (text, text, text, text)
    assert text in [record.key for record in store.records("done")]
    assert store.get("bystander").state == "running"
    assert len(store.records()) == 3


def test_nul_does_not_end_a_key(store, wish):
    store.claim(wish("a\0b"))
    assert store.get("a") is None
    assert store.get("a\0c") is None


def test_a_result_of_five_megabytes(store, wish):
    result = "".join(map(chr, range(32, 0x2FF))) * 7_000
    claim = wish()
    store.claim(claim)
    assert len(result.encode()) > 5_000_000
    assert store.complete("k", claim.token, result, DAY)
    assert store.claim(wish()).result == result
