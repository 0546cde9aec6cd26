"""The shards of every store: workers share them, and an expired lease is taken over."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from stores.servers import open_test_store
from toolwire.learn.run_folder import run_shards


def test_workers_share_the_shards(server, store_url):
    computed = []

    def work(number):
        computed.append(number)
        return {"shard": number, "text": "é" * 10}

    # the store in memory belongs to its process, so its workers use one store
    first = open_test_store(store_url)
    second = first if store_url == "memory:" else open_test_store(store_url)
    try:
        with ThreadPoolExecutor(2) as threads:
            runs = [
                threads.submit(run_shards, one, "job", [f"f{n}" for n in range(8)], work) for one in (first, second)
            ]
            results = [run.result(timeout=300) for run in runs]
    finally:
        first.close()
        if second is not first:
            second.close()
    assert results[0] == results[1] == [{"shard": number, "text": "é" * 10} for number in range(8)]
    assert sorted(computed) == list(range(8))


def test_shard_of_a_dead_worker_is_taken_over(store, new_claim):
    store.claim(new_claim("learn:job:0", fingerprint="f", lease=0.3, reclaim=True))  # never completed
    assert run_shards(store, "job", ["f"], lambda number: number) == [0]


@pytest.mark.parametrize("count", [0, 1])
def test_finished_shards_are_not_computed_again(store, count):
    run_shards(store, "job", ["f"] * count, lambda number: "first")
    assert run_shards(store, "job", ["f"] * count, lambda number: "second") == ["first"] * count
