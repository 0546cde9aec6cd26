"""Suggest similar names for an unknown one, also among 100,000 names.

The index contains the names of each trigram. A query adds up the names of its rarest trigrams, within a budget, and
compares the best candidates exactly. So its cost does not depend on the number of names.

    100,000 names: built in about a second, 2 ms per query (bench/suggestions.py)
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

_MAX_LENGTH = 64  # characters of a name that are compared; a model's name may have any length
_MAX_POSTINGS = 4_000  # entries of the index that a query reads: 2 ms among 100,000 tools (CHANGELOG.md)
_MAX_CANDIDATES = 24  # names that `difflib` compares, which is slow
# Of `difflib`, below its default of 0.6: names of tools share a prefix, and a wrong suggestion does no harm.
_MIN_RATIO = 0.4


class NameIndex:
    """An index of names by their trigrams."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: Sequence[str] = tuple(names)
        self._postings: dict[str, array[int]] = {}
        for number, name in enumerate(self._names):
            for trigram in _trigrams(name):
                posting = self._postings.get(trigram)
                if posting is None:
                    posting = self._postings[trigram] = array("L")
                posting.append(number)

    def similar(self, name: str, count: int = 3) -> list[str]:  # names that a message shows
        """Return up to `count` similar names in any case, the best first."""
        from difflib import get_close_matches  # imported late: most programs need no suggestion

        given = name[:_MAX_LENGTH]
        candidates: dict[str, list[str]] = {}
        for known in self._candidates(given):
            candidates.setdefault(known[:_MAX_LENGTH].lower(), []).append(known)
        close_matches = get_close_matches(given.lower(), candidates, count, _MIN_RATIO)
        found = [
            known for match in close_matches for known in sorted(candidates[match], key=lambda known: known != name)
        ]
        return found[:count]

    def _candidates(self, given: str) -> Sequence[str]:
        """Return the names that share the rarest trigrams with the given one, or all names if they are few."""
        if len(self._names) <= _MAX_CANDIDATES:
            return self._names
        found = [self._postings[trigram] for trigram in _trigrams(given) if trigram in self._postings]
        scores: Counter[int] = Counter()
        budget = _MAX_POSTINGS
        for posting in sorted(found, key=len):
            scores.update(islice(posting, budget))
            budget -= len(posting)
            if budget <= 0:
                break
        return [self._names[number] for number, _ in scores.most_common(_MAX_CANDIDATES)]


def suggest_names(names: Sequence[str]) -> str:
    """Return the sentence that suggests similar names, with a space before it; an empty text without names."""
    return f" Did you mean {' or '.join(names)}?" if names else ""


def _trigrams(name: str) -> set[str]:
    """Return the trigrams of a name. Its beginning and end count as characters."""
    padded = f"  {name[:_MAX_LENGTH].lower()} "
    return {padded[start : start + 3] for start in range(len(padded) - 2)}
