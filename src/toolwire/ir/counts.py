"""Numbers with their nouns, for messages."""

from __future__ import annotations

__all__ = ["count_of"]


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun. `plural` is for nouns that do not just add an s.

    >>> count_of(1, "call"), count_of(2, "call"), count_of(0, "loss", "losses")
    ('1 call', '2 calls', '0 losses')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
