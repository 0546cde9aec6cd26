"""Rows of data about model families. First match wins; a model that no row knows gets the defaults.

A row is for facts that hold whatever wire the model is reached over. What needs code does not belong here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from ..ir.value import Value

__all__ = ["Family", "family_of"]


class Family(Value, frozen=True):
    pattern: str
    prefill: bool = True  # continues an assistant message at the end of a request
    signed_calls: bool = True  # wants its signature back with its calls
    thinks_by_word: bool = True  # takes an effort; else a number of tokens to think with


_ROWS = (
    # Prefilling was removed with Claude 4.6: "This model does not support assistant message prefill."
    # Adaptive thinking came with it; before, thinking is a budget of tokens.
    Family("*claude-2*", thinks_by_word=False),
    Family("*claude-3*", thinks_by_word=False),
    Family("*claude-instant*", thinks_by_word=False),
    Family("*claude-*-4", thinks_by_word=False),
    Family("*claude-*-4-0", thinks_by_word=False),
    Family("*claude-*-4-[1-5]*", thinks_by_word=False),
    Family("*claude-*-4-20*", thinks_by_word=False),
    Family("*claude-*", prefill=False),
    # Thought signatures on function calls are checked since Gemini 3, which also thinks by levels.
    Family("*gemini-1-*", signed_calls=False, thinks_by_word=False),
    Family("*gemini-2-*", signed_calls=False, thinks_by_word=False),
)
_UNKNOWN = Family("*")


@lru_cache(256)
def family_of(model: str) -> Family:
    """The row of a model. A path in front of the name (`models/…`, `anthropic/…`) does not matter, nor do dots in it."""
    name = model.rpartition("/")[2].lower().replace(".", "-")
    return next((row for row in _ROWS if fnmatchcase(name, row.pattern)), _UNKNOWN)
