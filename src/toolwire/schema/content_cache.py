"""A cache of results by document, bounded by the bytes of the documents.

Clients choose the documents, so a number of entries is no bound: a schema may have a megabyte, and its results many times
that. There are two generations instead of an order of use, so that threads need no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = ["content_cache"]

_OVERHEAD = 500  # bytes of an entry besides its document

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
        """Return the cached result, or call the function."""
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
