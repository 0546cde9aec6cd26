"""Which texts say almost the same, without comparing each with each.

Two sets of words with so much in common must share one of their rarest words; how many of those have to be looked at follows
from the sizes of the two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from typing import TypeAlias

__all__ = ["ENOUGH", "first_alike"]

ENOUGH = 0.85
"""The part of all their words that two texts have in common."""
_FEWEST = 5  # words; of less there is nothing to be said

Words: TypeAlias = frozenset[str]


def first_alike(texts: Sequence[Words]) -> Iterator[tuple[int, int]]:
    """Each text that is like one before it, and the first such; the same words are not meant.

    >>> list(first_alike([frozenset("abcdefgh"), frozenset("stuvwxyz"), frozenset("abcdefghi"), frozenset("abcdefgh")]))
    [(2, 0), (3, 2)]
    """
    rarity = Counter(word for words in set(texts) for word in words)
    first: dict[Words, int] = {}
    holders: dict[tuple[int, int, str], list[Words]] = defaultdict(list)
    for index, words in enumerate(texts):
        if len(words) < _FEWEST:
            continue
        ranked = sorted(words, key=lambda word: (rarity[word], word))
        found = [
            first[other]
            for size in _sizes(len(words))
            for word in _telling(ranked, size)
            for other in holders.get((size, len(words), word), ())
            if other != words and len(words & other) >= ENOUGH * len(words | other)
        ]
        if found:
            yield index, min(found)
        if first.setdefault(words, index) == index:
            for size in _sizes(len(words)):
                for word in _telling(ranked, size):
                    holders[len(words), size, word].append(words)


def _sizes(size: int) -> range:
    """Of what can be alike."""
    return range(ceil(ENOUGH * size), int(size / ENOUGH) + 1)


def _telling(ranked: list[str], other: int) -> list[str]:
    """One of these is in every text of that size that is alike."""
    shared = ceil(ENOUGH / (1 + ENOUGH) * (len(ranked) + other) - 1e-9)
    return ranked[: len(ranked) - shared + 1]
