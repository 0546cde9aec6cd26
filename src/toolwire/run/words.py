"""Split names and texts into comparable words, and rank tools by the words that they share with a request.

    split_words("getUserAccounts by e-mail")   # ["user", "account", "mail"]

Identifiers are split at case changes, digits, underscores and dots. English endings are removed, so that "listing" and
"list" are equal. Words that occur in every request, such as "please", are left out. Text in other languages is compared
by whole words, and text without spaces (Chinese, Japanese, Thai) by pairs of characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from unicodedata import normalize

__all__ = ["MAX_TEXT", "split_identifier", "split_words", "stem_word"]

MAX_TEXT = 8_000
"""Characters of a text that are read; a description may have any length."""

_MAX_WORD = 40
_CASE_CHANGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIGITS = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_STOP_WORDS = frozenset(
    """a about all also am an and any are as at be been by can could did do does for from get give had has have he help
    her here his how i id if im in into is it its ive just let like may me might more most my need no not of on or our
    please she should so some than that the their them then there these they this those to us very want was we were what
    when where which who why will with would you your""".split()
)


def split_words(text: str) -> list[str]:
    """Return the words of a text in their order, without stop words and English endings."""
    return list(_iter_words(text))


def split_identifier(name: str) -> str:
    """Insert a space at each change of case: "getUserHTTPName" becomes "get User HTTP Name"."""
    return _CASE_CHANGE.sub(" ", name)


def _iter_words(text: str) -> Iterator[str]:
    folded = normalize("NFKC", text[:MAX_TEXT])
    for word in _WORD.findall(_DIGITS.sub(" ", split_identifier(folded))):
        lowered = word[:_MAX_WORD].lower()
        if lowered.isascii():
            if lowered not in _STOP_WORDS:
                yield stem_word(lowered)
        elif _UNSPACED.search(lowered):
            yield from _split_unspaced(lowered)
        else:
            yield lowered


def _split_unspaced(word: str) -> Iterator[str]:
    """Return pairs of adjacent characters, and the parts in other scripts as they are."""
    position = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > position:
            yield word[position : run.start()]
        characters = run.group()
        if len(characters) == 1:
            yield characters
        for start in range(len(characters) - 1):
            yield characters[start : start + 2]
        position = run.end()
    if position < len(word):
        yield word[position:]


@lru_cache(maxsize=20_000)
def stem_word(word: str) -> str:
    """Remove the English endings of a lower-case word: plural, past and progressive forms, and a final e."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith("sses"):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        stem = word[: -len(ending)]
        if word.endswith(ending) and len(stem) >= 3 and not set(stem).isdisjoint("aeiouy"):
            word = _repair_stem(stem)
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _repair_stem(stem: str) -> str:
    """Undo a doubled consonant: "planning" has the stem "plan"."""
    is_doubled = len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsz"
    return stem[:-1] if is_doubled else stem
