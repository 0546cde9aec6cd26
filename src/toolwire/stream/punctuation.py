"""Brackets, separators and quotes as models write them, and what JSON has in their place.

Used by the rewriter at structural positions only: inside a string every character remains as it is.
"""

from __future__ import annotations

import re

from .repair_attempt import LexicalStep

__all__ = [
    "BRACKETS",
    "CLOSERS",
    "COLON",
    "COMMAS",
    "COMMA_RUN",
    "OPENERS",
    "OUTPUT_CLOSERS",
    "PARENTHESES",
    "QUOTES",
    "SURPLUS_COMMA",
    "VALUE_ENDS",
    "colon_step",
    "comma_steps",
    "opener_step",
    "quote_step",
]

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
