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


_ROWS = (
    # Prefilling was removed with Claude 4.6: "This model does not support assistant message prefill."
    Family("claude-2*"),
    Family("claude-3*"),
    Family("claude-instant*"),
    Family("claude-*-4"),
    Family("claude-*-4-0"),
    Family("claude-*-4-[1-5]*"),
    Family("claude-*-4-20*"),
    Family("claude-*", prefill=False),
    # Thought signatures on function calls are checked since Gemini 3.
    Family("gemini-1*", signed_calls=False),
    Family("gemini-2*", signed_calls=False),
)
_UNKNOWN = Family("*")


@lru_cache(256)
def family_of(model: str) -> Family:
    """The row of a model; a path in front of the name (`models/…`, `anthropic/…`) does not matter."""
    name = model.rpartition("/")[2].lower()
    return next((row for row in _ROWS if fnmatchcase(name, row.pattern)), _UNKNOWN)
