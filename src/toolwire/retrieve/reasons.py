"""Describe why tools were found, for a person. Separate because a search does not depend on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..run.tools.words import split_words
from .documents import FIELDS
from .word_index import Floats, WordIndex

__all__ = ["describe_matches"]

_MAX_WORDS = 6
_MAX_QUERY_WORDS = 200
_PUNCTUATION = ".,;:!?\"'()[]{}<>"


def describe_matches(
    query: str, index: WordIndex, numbers: Sequence[int], meanings: Floats | None
) -> list[tuple[str, ...]]:
    """Return for each number the words of the query in each field, and the similarity of meanings.

    The index of words already has the words of the fields, so that no text is split again.
    """
    spellings = _find_spellings(query)
    matches = index.match_fields(tuple(spellings), np.array(numbers, np.int32))
    shown = tuple(spellings.values())
    reasons: list[tuple[str, ...]] = []
    for number, by_word in zip(numbers, matches, strict=True):
        common = ([shown[word] for word in np.flatnonzero(column)[:_MAX_WORDS]] for column in by_word.T)
        parts = [f"{field}: {', '.join(found)}" for field, found in zip(FIELDS, common, strict=True) if found]
        if meanings is not None:
            parts.append(f"meaning: {meanings[number]:.2f}")
        reasons.append(tuple(parts))
    return reasons


def _find_spellings(query: str) -> dict[str, str]:
    """Return each stem of a query with its first spelling there."""
    spellings: dict[str, str] = {}
    for spelling in query.split():
        for stem in split_words(spelling):
            spellings.setdefault(stem, spelling.strip(_PUNCTUATION).lower())
        if len(spellings) >= _MAX_QUERY_WORDS:
            break
    return spellings
