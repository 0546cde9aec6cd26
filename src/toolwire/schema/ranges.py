"""Patterns for the decimal digits of the integers between two bounds.

range_pattern(1, 250)  →  ^(?:[1-9]|1[0-9]{2}|2[0-4][0-9]|250|[1-9][0-9])$
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["range_pattern"]

_DIGITS = 15
"""Longer numbers lose precision in JSON parsers that read numbers as doubles."""


def range_pattern(low: int | None, high: int | None) -> str | None:
    """Return a pattern for the integers from `low` to `high`; None if a bound is too large, or the range is empty."""
    least = -(10**_DIGITS) + 1 if low is None else low
    most = 10**_DIGITS - 1 if high is None else high
    if least > most or max(abs(least), abs(most)) >= 10**_DIGITS:
        return None
    parts: list[str] = []
    if least < 0:
        parts += [f"-{part}" for part in _between(max(1, -most), -least)]
    if most >= 0:
        parts += _between(max(0, least), most)
    return f"^(?:{'|'.join(parts)})$"


def _between(low: int, high: int) -> Iterator[str]:
    """Yield patterns for the numbers from `low` to `high`, neither negative: one length after the other."""
    full: list[int] = []  # lengths with all numbers in the range
    for length in range(len(str(low)), len(str(high)) + 1):
        least, most = 10 ** (length - 1) if length > 1 else 0, 10**length - 1
        if length > 1 and low <= least and most <= high:
            full.append(length)
        else:
            yield from _same_length(str(max(low, least)), str(min(high, most)))
    if full:
        yield f"[1-9]{_any(full[0] - 1, full[-1] - 1)}"


def _any(least: int, most: int) -> str:
    """Return a pattern for `least` to `most` digits."""
    if most == 0:
        return ""
    count = "" if (least, most) == (1, 1) else f"{{{least}}}" if least == most else f"{{{least},{most}}}"
    return f"[0-9]{count}"


def _same_length(low: str, high: str) -> Iterator[str]:
    if not low or (set(low) == {"0"} and set(high) == {"9"}):
        yield _any(len(low), len(low))
        return
    if low[0] == high[0]:
        yield from (f"{low[0]}{rest}" for rest in _same_length(low[1:], high[1:]))
        return
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if low[1:].strip("0"):
        yield from (f"{low[0]}{tail}" for tail in _same_length(low[1:], "9" * rest))
        first += 1
    if high[1:].strip("9"):
        last -= 1
    if first <= last:
        yield _digit(str(first), str(last)) + _any(rest, rest)
    if high[1:].strip("9"):
        yield from (f"{high[0]}{tail}" for tail in _same_length("0" * rest, high[1:]))


def _digit(low: str, high: str) -> str:
    return low if low == high else f"[{low}-{high}]"
