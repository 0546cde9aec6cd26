"""Regular expressions that a dialect's engine takes."""

from __future__ import annotations

import re

__all__ = ["acceptable", "length_pattern", "looks_around"]

_LOOKS_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\(\?P?<|\\[kpPuxc]").search
_BOUNDARY = re.compile(r"\\[bB]").search
_MOST_LEAST, _MOST_LENGTH = 32, 256


def acceptable(pattern: str, policy: str) -> bool:
    """Whether an engine of this kind takes it."""
    if policy == "any":
        return True
    if _LOOKS_AROUND(pattern):
        return False
    if policy == "simple" and _BOUNDARY(pattern):
        return False
    if policy == "anchored":
        return pattern.startswith("^") and pattern.endswith("$") and "(?:" not in pattern
    return True


def looks_around(pattern: str) -> bool:
    """Ahead, behind, or back at what has matched: no engine that is linear in the text does that."""
    return re.search(r"\(\?<?[=!]|\\[1-9k]", pattern) is not None


def length_pattern(low: int, high: int | None) -> tuple[str | None, int, int | None]:
    """A pattern that enforces a length, and what of the length is left to be told in words."""
    if low > _MOST_LEAST:
        return None, low, high
    if high is not None and high <= _MOST_LENGTH:
        return rf"^[\s\S]{{{low},{high}}}$", 0, None
    return (rf"^[\s\S]{{{low},}}$" if low else None), 0, high
