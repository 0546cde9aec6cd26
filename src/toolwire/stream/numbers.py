"""Numbers as other languages write them: `+1`, `.5`, `0x1F`, `1_000`, `007`, full-width digits."""

from __future__ import annotations

import re

__all__ = ["GROUPED_NUMBER", "JSON_NUMBER", "normalise_number", "zero_readings"]

JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?", re.ASCII)
_LOOSE_NUMBER = re.compile(r"([+-]?)(0|[1-9]\d*+)?(\.\d*+)?([eE][+-]?\d++)?", re.ASCII)
# Python and JavaScript allow an underscore between any two digits; other groups than thousands may be dates or ids.
GROUPED_NUMBER = re.compile(r"[+-]?[1-9]\d{0,2}(?:_\d{3})++(?:\.\d++)?", re.ASCII)
_RADIX_NUMBER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]++|0[oO][0-7]++|0[bB][01]++)")
_FULL_WIDTH_DIGITS = {0xFF10 + digit: str(digit) for digit in range(10)}


def normalise_number(word: str) -> str | None:
    """Return the JSON for a number in the notation of another language; None if it is not a number."""
    return _normalise_ascii(word) or _ascii_number(word)


def _normalise_ascii(word: str) -> str | None:
    """Normalise `+1`, `.5`, `5.`, `1_000` and `0x1F` to JSON numbers."""
    if GROUPED_NUMBER.fullmatch(word):
        word = word.replace("_", "")
    radix = _RADIX_NUMBER.fullmatch(word)
    if radix is not None and len(word) < 1000:
        return f"{'-' if radix[1] == '-' else ''}{int(radix[2], 0)}"
    loose = _LOOSE_NUMBER.fullmatch(word)
    if loose is None or (not loose[2] and len(loose[3] or "") < 2):
        return None
    sign, whole, fraction, exponent = loose.groups(default="")
    if fraction == ".":
        fraction = ".0"
    return f"{'-' if sign == '-' else ''}{whole or '0'}{fraction}{exponent}"


def _ascii_number(word: str) -> str | None:
    """Return a number written with full-width digits."""
    if word.isascii():
        return None
    ascii_form = word.translate(_FULL_WIDTH_DIGITS)
    return ascii_form if JSON_NUMBER.fullmatch(ascii_form) else None


def zero_readings(zeros: re.Match[str]) -> list[str]:
    """Return the readings as a decimal number, as text, and as an octal number if that differs."""
    digits = zeros[2].lstrip("0") or "0"
    ways = [f"{zeros[1]}{digits}", f'"{zeros.group()}"']
    if len(digits) > 1 and not set(digits) & {"8", "9"} and len(digits) < 1000:
        ways.append(f"{zeros[1]}{int(digits, 8)}")
    return ways
