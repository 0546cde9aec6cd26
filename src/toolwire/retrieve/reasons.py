"""Describe why a tool was found, for a person. Separate because a search does not depend on it."""

from __future__ import annotations

from ..run.words import split_words
from .documents import FIELDS, ToolDocument

__all__ = ["describe_match"]

_MAX_WORDS = 6
_PUNCTUATION = ".,;:!?\"'()[]{}<>"


def describe_match(query: str, document: ToolDocument, similarity: float | None) -> tuple[str, ...]:
    """Return the words of the query in each field, and the similarity of meanings."""
    wanted: dict[str, str] = {}  # each stem, with its first spelling in the query
    for spelling in query.split():
        for stem in split_words(spelling):
            wanted.setdefault(stem, spelling.strip(_PUNCTUATION).lower())
    reasons: list[str] = []
    for field in FIELDS:
        present = frozenset(split_words(document.field_text(field)))
        common = [spelling for stem, spelling in wanted.items() if stem in present]
        if common:
            reasons.append(f"{field}: {', '.join(common[:_MAX_WORDS])}")
    if similarity is not None:
        reasons.append(f"meaning: {similarity:.2f}")
    return tuple(reasons)
