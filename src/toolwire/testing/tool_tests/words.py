"""Find texts that a function compares or looks up: literals of its code, and keys of the tables that it uses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import islice
from types import CodeType
from typing import Any

__all__ = ["known_words"]

_MAX_WORDS = 20
_MAX_LENGTH = 60


def known_words(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return texts that lead a call beyond the first check of its arguments.

    >>> prices = {"tea": 3}
    >>> known_words(lambda name: prices[name] if name != "water" else 0)
    ('tea', 'water')
    """
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        return ()
    docstring = getattr(inner, "__doc__", None)
    variables = getattr(inner, "__globals__", {})
    found = dict.fromkeys((*_table_keys(code, variables), *_literals(code)))
    return tuple(islice((word for word in found if word != docstring and 0 < len(word) <= _MAX_LENGTH), _MAX_WORDS))


def _table_keys(code: CodeType, variables: dict[str, Any]) -> Iterator[str]:
    for name in code.co_names:
        value = variables.get(name)
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            yield from (key for key in islice(value, 8) if isinstance(key, str))


def _literals(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from (item for item in constant if isinstance(item, str))
