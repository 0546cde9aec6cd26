"""Generate texts that match a regular expression, for values of a schema."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterable
from typing import Any

from ..schema.validation.patterns import refusal

__all__ = ["generate_matching"]

_ANY = "abcXYZ019 _-é\n"
_CATEGORIES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_WORD": "abcXYZ09_",
    "CATEGORY_SPACE": " \t\n",
    "CATEGORY_NOT_DIGIT": "abc -_",
    "CATEGORY_NOT_WORD": " -!.",
    "CATEGORY_NOT_SPACE": "abc09-",
}


def generate_matching(pattern: str, chance: random.Random) -> str:
    """Generate a text that matches the pattern; a poor guess for a pattern that is refused or cannot be parsed.

    The pattern is only parsed, with Python's parser, and never matched. A refused pattern could require a text of any
    length.
    """
    if refusal(pattern) is not None:
        return "a"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError):
        return "a"
    return "".join(_generate(parsed, chance))


def _generate(parsed: Iterable[Any], chance: random.Random) -> Iterable[str]:
    """Yield the pieces of a matching text, for each operation of Python's parsed pattern."""
    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name == "NOT_LITERAL":
            yield next(char for char in _ANY if ord(char) != argument)
        elif name == "ANY":
            yield chance.choice("abcXYZ019 _-é")
        elif name == "IN":
            yield _choose(argument, chance)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = argument
            for _ in range(chance.randint(low, min(int(high), low + 3))):
                yield from _generate(inner, chance)
        elif name == "SUBPATTERN":
            yield from _generate(argument[-1], chance)
        elif name == "ATOMIC_GROUP":
            yield from _generate(argument, chance)
        elif name == "BRANCH":
            yield from _generate(chance.choice(argument[1]), chance)


def _choose(choices: list[Any], chance: random.Random) -> str:
    negated = any(str(operation) == "NEGATE" for operation, _ in choices)
    members = [str(char) for choice in choices for char in _set_members(*choice)]
    if negated:
        members = [char for char in _ANY if char not in members]
    return chance.choice(members or ["a"])


def _set_members(operation: Any, argument: Any) -> Iterable[str]:
    """Return the characters of one member of a character class."""
    name = str(operation)
    if name == "LITERAL":
        return [chr(argument)]
    if name == "RANGE":
        low, high = argument
        return [chr(code) for code in range(low, min(high, low + 60) + 1)]
    if name == "CATEGORY":
        return _CATEGORIES.get(str(argument), "a")
    return []
