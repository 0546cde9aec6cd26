"""Punctuation and numbers as models and other languages write them, and their equivalents in JSON.

Used at structural positions only: inside a string every character remains as it is.
"""

from __future__ import annotations

import re

from .attempt import LexicalStep

OPENERS = {"{": "{", "[": "[", "｛": "{", "［": "[", "【": "["}
CLOSERS = {"{": "}｝", "[": "]］】", "(": ")）"}
"""The closing brackets of a container. `(` opens the arguments of `f(a=1)`, which are an object."""
BRACKETS = re.escape("".join(OPENERS))
"""The opening brackets, for a character class."""
PARENTHESES = r"[(（]", r"[)）]"
OUTPUT_CLOSERS = {"{": "}", "[": "]", "(": "}"}

COMMAS = ",;，；、﹐､"
COMMA_RUN = re.compile(rf"[{COMMAS}](?:[ \t\r\n]*+[{COMMAS}])*+")
SURPLUS_COMMA = re.compile(rf"[{COMMAS}{{\[][ \t\r\n]*+[{COMMAS}]")
VALUE_ENDS = re.escape("".join([*COMMAS, *CLOSERS.values()]))
"""The characters that may follow a value, for a character class."""
COLON = re.compile(r"[:=;：＝；﹕](?:[ \t]*+[:=：＝﹕])*+>?|->|→")

QUOTES = {
    '"': '"',
    "'": "'",
    "“": "”",
    "”": "”",
    "„": "“",
    "‘": "’",
    "＂": "＂",
    "「": "」",
    "«": "»",
}


def comma_steps(marks: str) -> list[LexicalStep]:
    """Return the repairs that make a run of separators one comma."""
    steps: list[LexicalStep] = ["wrong_separator"] if ";" in marks else []
    return [*steps, "full_width"] if not marks.isascii() else steps


def colon_step(mark: str) -> LexicalStep | None:
    """Return the repair that makes `mark` a colon."""
    if mark == ":":
        return None
    return "full_width" if mark in "：＝﹕" else "wrong_separator"


def opener_step(char: str) -> LexicalStep | None:
    return None if char in "{[" else "full_width"


def quote_step(char: str) -> LexicalStep:
    """Return the repair that makes a quote other than `"` one."""
    if char == "＂":
        return "full_width"
    return "single_quotes" if char == "'" else "smart_quotes"


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
    """Normalise `+1`, `.5`, `5.`, `1_000` and `0x1F` to JSON numbers; return None for any other text."""
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
