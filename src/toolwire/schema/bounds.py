"""Bounds on the work and the memory that untrusted schemas and values can cause.

Schemas come from clients and MCP servers, values from models. A `StepBudget` bounds the steps of a computation, a
`ContentCache` the bytes of the documents whose results are kept, and a `BoundedCache` the results, answers and turns
that a process keeps for a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from math import inf
from typing import Any, Generic, ParamSpec, TypeVar

from ..ir.pointer import JSON

# Bounds on the work that an untrusted schema or value can cause.
#
# Schemas come from clients and MCP servers, values from models. A computation that could cost more than a multiple of
# its input counts its steps against a `StepBudget` and falls back to a weaker answer that is always safe. Allowances
# grow with the size of the input, so the total cost of a request stays linear in its length. Steps are counted, not
# timed: the same input gives the same result on every machine.


_CHARACTERS_PER_STEP = 32  # characters are copied or compared in C, a value is visited in Python


class StepBudget:
    """The steps that one computation has left, and the patterns that it has matched."""

    __slots__ = ("pattern_bytes", "pattern_costs", "remaining")

    def __init__(self, steps: int) -> None:
        self.remaining = steps
        self.pattern_costs: dict[str, int | None] = {}  # of one character of text; None: not matched, too large
        self.pattern_bytes = 0  # of their engines

    def spend(self, steps: int = 1) -> bool:
        """Count `steps`; False once the allowance is exceeded."""
        self.remaining -= steps
        return self.remaining >= 0

    @property
    def exhausted(self) -> bool:
        return self.remaining < 0


def json_size(document: JSON) -> int:
    """Count the JSON values in a document, plus one for every 32 characters of text.

    >>> json_size({"type": "object", "required": ["city"]})
    4
    """
    count, characters = 0, 0
    pending = [document]
    while pending:
        value = pending.pop()
        count += 1
        if type(value) is dict:
            characters += sum(map(len, value))
            pending.extend(value.values())
        elif type(value) is list:
            pending.extend(value)
        elif type(value) is str:
            characters += len(value)
    return count + characters // _CHARACTERS_PER_STEP


# A cache of results by document, bounded by the bytes of the documents.
#
# Clients choose the documents, so a number of entries is no bound: a schema may have a megabyte, and its results many
# times that. There are two generations instead of an order of use, so that threads need no lock.


_OVERHEAD = 500  # bytes of an entry besides its document: key, node and cost. Not measured

CachedParameters = ParamSpec("CachedParameters")
Cached = TypeVar("Cached")


def content_cache(
    max_bytes: int, size_of: Callable[[Any], int] = len, fraction: int = 8
) -> Callable[[Callable[CachedParameters, Cached]], ContentCache[CachedParameters, Cached]]:
    """Cache a function of a document (its first argument), measured by `size_of`.

    A document above `max_bytes / fraction` is not cached.
    """
    return lambda function: ContentCache(function, max_bytes, size_of, max_bytes // fraction)


class ContentCache(Generic[CachedParameters, Cached]):
    """A function with its cached results."""

    def __init__(
        self, function: Callable[CachedParameters, Cached], max_bytes: int, size_of: Callable[[Any], int], largest: int
    ) -> None:
        self.uncached = function
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._largest = largest
        self._young: dict[Any, Cached] = {}
        self._old: dict[Any, Cached] = {}  # results that have not been used since the last change of generations
        self._young_size = 0

    def cache_clear(self) -> None:
        self._old, self._young, self._young_size = {}, {}, 0

    def __call__(self, *arguments: CachedParameters.args, **options: CachedParameters.kwargs) -> Cached:
        """Return the result, from the cache if possible; store it there if its first argument is not too large.

        Only positional arguments are the key. There are two generations: when the young one is full, it replaces the
        old one, and results that are used again move to the young one.
        """
        found = self._young.get(arguments)
        if found is not None:  # None is not cached
            return found
        result = self._old[arguments] if arguments in self._old else self.uncached(*arguments, **options)
        size = _OVERHEAD + self._size_of(arguments[0])
        if size <= self._largest:
            if self._young_size + size > self._max_bytes // 2:
                self._old, self._young, self._young_size = self._young, {}, 0
            self._young[arguments] = result
            self._young_size += size
        return result


CacheKey = TypeVar("CacheKey")
CachedValue = TypeVar("CachedValue")


class BoundedCache(Generic[CacheKey, CachedValue]):
    """At most `max_entries` values of `max_bytes`, evicted from the front. The caller passes the current time.

    Without `max_bytes`, threads may share it: each change of the entries is one call of a method in C. A `Runner` keeps
    results for all event loops that use it.
    """

    __slots__ = ("_entries", "_max_bytes", "_max_entries", "_used_bytes")

    def __init__(self, max_entries: float = inf, max_bytes: float = inf) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._entries: OrderedDict[CacheKey, tuple[float, int, CachedValue]] = OrderedDict()  # expiry, size, value

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: CacheKey, now: float) -> CachedValue | None:
        """Return the value unless it has expired. The order of eviction stays."""
        entry = self._entries.get(key)
        return None if entry is None or entry[0] <= now else entry[2]

    def use(self, key: CacheKey, now: float) -> CachedValue | None:
        """Like `get`, and move the value to the end, so that the least recently used value is evicted first."""
        value = self.get(key, now)
        if value is not None:
            with suppress(KeyError):  # another thread has evicted it
                self._entries.move_to_end(key)
        return value

    def put(self, key: CacheKey, value: CachedValue, now: float, seconds: float, size: int = 0) -> None:
        """Store a value at the end, and evict the first ones that exceed the bounds or have expired.

        A value above `max_bytes` is not stored: it would evict all others, and then itself.
        """
        self.drop(key)
        if size <= self._max_bytes:
            self._entries[key] = (now + seconds, size, value)
            self._used_bytes += size
        while self._entries and self._is_full(now):
            self._used_bytes -= self._entries.popitem(last=False)[1][1]

    def _is_full(self, now: float) -> bool:
        if len(self._entries) > self._max_entries or self._used_bytes > self._max_bytes:
            return True
        # `chain` asks for an iterator only in `next`, so that no other thread changes the entries in between
        return next(chain(self._entries.values()), (inf,))[0] <= now

    def drop(self, key: CacheKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._used_bytes -= entry[1]
