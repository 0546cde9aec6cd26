"""Caches are bounded by bytes, because clients choose the documents and answers."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolwire.bridge.conversation import names
from toolwire.bridge.fitting import schemas as budget
from toolwire.schema.bounds import BoundedCache, ContentCache, content_cache
from toolwire.schema.lowering import emission as property_names
from toolwire.schema.lowering import lowered as lowering
from toolwire.schema.repair import arguments as repair
from toolwire.schema.validation import validator as validate


def cached_bytes(cache):
    return sum(len(key[0]) for key in {**cache._old, **cache._young})


@pytest.mark.finding("Z10")
def test_cache_is_bounded_by_the_bytes_of_its_documents():
    calls = []

    @content_cache(10_000)
    def measure(document, unit):
        calls.append(document)
        return len(document) // unit

    for number in range(100):
        assert measure(bytes([number]) * 500, 10) == 50
        assert cached_bytes(measure) <= 10_000
    assert measure(bytes([99]) * 500, 10) == 50
    assert len(calls) == 100
    assert measure(bytes([0]) * 500, 10) == 50  # it was evicted
    assert len(calls) == 101


@pytest.mark.finding("Z10")
def test_used_documents_stay_in_the_cache():
    calls = []
    cache = content_cache(10_000)(lambda document: calls.append(document) or len(document))
    for number in range(100):
        cache(b"used in every request")
        cache(bytes([number]) * 500)
    assert calls.count(b"used in every request") == 1


@pytest.mark.finding("Z10")
def test_large_documents_are_not_cached():
    cache = content_cache(8_000)(len)
    assert cache(b"x" * 2_000) == 2_000
    assert cached_bytes(cache) == 0
    cache(b"small")
    cache.cache_clear()
    assert cached_bytes(cache) == 0


@pytest.mark.finding("Z10")
def test_caches_of_client_content_are_bounded_by_bytes():
    caches = (
        lowering._lower_cached,
        lowering._parse_cached,
        lowering._read_cached,
        validate._validator_cached,
        validate.has_large_patterns,
        repair._repairer,
    )
    for cache in caches:
        assert isinstance(cache, ContentCache) and cache._max_bytes <= 4 * 1024 * 1024
    before = [cache.cache_info().currsize for cache in (property_names._is_legal_cached, names._fits_pattern)]
    assert property_names.is_legal("[a-z]+", "a" * 1_000_000)
    assert not names._is_legal("[a-z]+", 64, "a" * 1_000_000)
    after = [cache.cache_info().currsize for cache in (property_names._is_legal_cached, names._fits_pattern)]
    assert before == after
    before = budget._select_cached.cache_info().currsize
    assert len(budget.select_affordable(((1, 0),) * 1_000, (24, 16), 20)) == 20
    assert budget._select_cached.cache_info().currsize == before


def test_threads_share_a_bounded_cache():
    cache: BoundedCache[int, str] = BoundedCache(max_entries=8)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def use(first: int) -> None:
        for key in range(first, first + 5000):
            if cache.use(key % 20, 0.0) is None:
                cache.put(key % 20, "value", 0.0, 60.0)

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(use, range(4)))  # raises their exceptions
    finally:
        sys.setswitchinterval(interval)
    assert len(cache) <= 8
