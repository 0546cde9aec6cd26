"""Patterns for the decimal digits of the integers between two bounds.

range_pattern(1, 250)  →  ^(?:[1-9]|1[0-9]{2}|2[0-4][0-9]|250|[1-9][0-9])$
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["range_pattern"]

_MAX_DIGITS = 40
"""The length of a pattern grows with the digits of its bounds; beyond this it would be useless."""


def range_pattern(low: int | None, high: int | None) -> str | None:
    """Return a pattern for the integers from `low` to `high`; None if a bound is too long, or the range is empty.

    A missing bound leaves its side open: any number of digits.

    >>> range_pattern(1, None)
    '^(?:[1-9][0-9]*)$'
    """
    bounds = [bound for bound in (low, high) if bound is not None]
    if any(abs(bound) >= 10**_MAX_DIGITS for bound in bounds) or bounds != sorted(bounds):
        return None
    parts: list[str] = []
    if low is None or low < 0:
        smallest = 1 if high is None else max(1, -high)
        parts += [f"-{part}" for part in _patterns_from(smallest, None if low is None else -low)]
    if high is None or high >= 0:
        parts += _patterns_from(max(0, low) if low is not None else 0, high)
    return f"^(?:{'|'.join(parts)})$"


def _patterns_from(low: int, high: int | None) -> Iterator[str]:
    """Yield patterns for the numbers from `low` to `high`, neither negative; without `high`, for all from `low`."""
    if high is not None:
        yield from _patterns_between(low, high)
        return
    if low <= 1:
        yield from ["0", "[1-9][0-9]*"] if low == 0 else ["[1-9][0-9]*"]
        return
    length = len(str(low))
    yield from _patterns_between(low, 10**length - 1)
    yield f"[1-9][0-9]{{{length},}}"


def _patterns_between(low: int, high: int) -> Iterator[str]:
    """Yield patterns for the numbers from `low` to `high`, neither negative: one length after the other."""
    full: list[int] = []  # lengths with all numbers in the range
    for length in range(len(str(low)), len(str(high)) + 1):
        minimum, maximum = 10 ** (length - 1) if length > 1 else 0, 10**length - 1
        if length > 1 and low <= minimum and maximum <= high:
            full.append(length)
        else:
            yield from _same_length_patterns(str(max(low, minimum)), str(min(high, maximum)))
    if full:
        yield f"[1-9]{_any_digits(full[0] - 1, full[-1] - 1)}"


def _any_digits(minimum: int, maximum: int) -> str:
    """Return a pattern for `minimum` to `maximum` digits."""
    if maximum == 0:
        return ""
    count = (
        "" if (minimum, maximum) == (1, 1) else f"{{{minimum}}}" if minimum == maximum else f"{{{minimum},{maximum}}}"
    )
    return f"[0-9]{count}"


def _same_length_patterns(low: str, high: str) -> Iterator[str]:
    """Yield patterns for the numbers between two bounds of the same length, by their first differing digit."""
    if not low or (set(low) == {"0"} and set(high) == {"9"}):
        yield _any_digits(len(low), len(low))
        return
    if low[0] == high[0]:
        yield from (f"{low[0]}{rest}" for rest in _same_length_patterns(low[1:], high[1:]))
        return
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if low[1:].strip("0"):
        yield from (f"{low[0]}{tail}" for tail in _same_length_patterns(low[1:], "9" * rest))
        first += 1
    if high[1:].strip("9"):
        last -= 1
    if first <= last:
        yield _digit_class(str(first), str(last)) + _any_digits(rest, rest)
    if high[1:].strip("9"):
        yield from (f"{high[0]}{tail}" for tail in _same_length_patterns("0" * rest, high[1:]))


def _digit_class(low: str, high: str) -> str:
    return low if low == high else f"[{low}-{high}]"
