"""Find near-duplicate texts without comparing every pair.

Two word sets with a high Jaccard similarity must share at least one of their rarest words. The number of rarest words
to index follows from the sizes of the two sets (prefix filtering).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from typing import TypeAlias

__all__ = ["SIMILARITY_THRESHOLD", "first_similar"]

SIMILARITY_THRESHOLD = 0.85
"""Minimum Jaccard similarity of two near-duplicates: shared words divided by all words."""
_MIN_WORDS = 5  # words; shorter texts give no meaningful similarity

Words: TypeAlias = frozenset[str]


def first_similar(texts: Sequence[Words]) -> Iterator[tuple[int, int]]:
    """Yield (index, first earlier near-duplicate) for each text; texts with identical word sets are not compared.

    >>> list(first_similar([frozenset("abcdefgh"), frozenset("stuvwxyz"), frozenset("abcdefghi"), frozenset("abcdefgh")]))
    [(2, 0), (3, 2)]
    """
    rarity = Counter(word for words in set(texts) for word in words)
    first: dict[Words, int] = {}
    holders: dict[tuple[int, int, str], list[Words]] = defaultdict(list)
    for index, words in enumerate(texts):
        if len(words) < _MIN_WORDS:
            continue
        ranked = sorted(words, key=lambda word: (rarity[word], word))
        found = [
            first[other]
            for size in _candidate_sizes(len(words))
            for word in _prefix_filter(ranked, size)
            for other in holders.get((size, len(words), word), ())
            if other != words and len(words & other) >= SIMILARITY_THRESHOLD * len(words | other)
        ]
        if found:
            yield index, min(found)
        if first.setdefault(words, index) == index:
            for size in _candidate_sizes(len(words)):
                for word in _prefix_filter(ranked, size):
                    holders[len(words), size, word].append(words)


def _candidate_sizes(size: int) -> range:
    """Return the sizes of the word sets that can reach `SIMILARITY_THRESHOLD` similarity with a set of this size."""
    return range(ceil(SIMILARITY_THRESHOLD * size), int(size / SIMILARITY_THRESHOLD) + 1)


def _prefix_filter(ranked: list[str], other: int) -> list[str]:
    """Return the rarest words; every near-duplicate of size `other` contains at least one of them."""
    shared = ceil(SIMILARITY_THRESHOLD / (1 + SIMILARITY_THRESHOLD) * (len(ranked) + other) - 1e-9)
    return ranked[: len(ranked) - shared + 1]
