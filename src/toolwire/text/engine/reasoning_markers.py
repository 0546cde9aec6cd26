"""The markers around reasoning in a turn, compiled from the pairs of a format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["ReasoningMarkers", "is_special_token", "reasoning_markers"]

_TOKEN = re.compile(r"<[|｜]|\[/?[A-Z_]+\]|.*[|｜]>").match


def is_special_token(marker: str) -> bool:
    """Return whether a model writes the marker only on purpose; tags of plain characters may be text about calls."""
    return _TOKEN(marker) is not None


class ReasoningMarkers:
    """The markers of reasoning.

    `closers` are all closers, and `closers_of` those of an opener. `tags` are openers that are recognised anywhere;
    `phrases` are openers in ordinary prose, which open reasoning only at the start of a message. `orphans` are closers
    that are recognised without an opener. `silent` are special tokens that are dropped inside reasoning.
    """

    __slots__ = ("closers", "closers_of", "openers", "orphans", "phrases", "silent", "tags")

    def __init__(self, pairs: Sequence[tuple[str, str]], noise: Sequence[str]) -> None:
        self.closers_of: dict[str, tuple[str, ...]] = {}
        for opener, closer in pairs:
            self.closers_of[opener] = (*self.closers_of.get(opener, ()), closer)
        self.closers = tuple(dict.fromkeys(closer for _, closer in pairs))
        self.openers = tuple(filter(None, self.closers_of))
        self.phrases = tuple(opener for opener in self.openers if _is_phrase(opener))
        self.tags = tuple(opener for opener in self.openers if not _is_phrase(opener))
        self.orphans = frozenset(one for one in self.closers if not _is_phrase(one) and one not in noise)
        self.silent = tuple(one for one in noise if is_special_token(one) and one not in self.closers)


@lru_cache(256)
def reasoning_markers(pairs: tuple[tuple[str, str], ...], noise: tuple[str, ...]) -> ReasoningMarkers:
    """Compile the pairs of a format, with a cache."""
    return ReasoningMarkers(pairs, noise)


def _is_phrase(marker: str) -> bool:
    return marker[:1].isalpha()
