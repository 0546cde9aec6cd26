"""Rows of data about model families. The first match wins; a model without a row gets the defaults.

A row holds facts that do not depend on the wire. Anything that needs code does not belong here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from ..ir.value import Value

__all__ = ["Family", "family_of"]


class Family(Value, frozen=True):
    pattern: str
    prefill: bool = True  # continues an assistant message at the end of a request
    signed_calls: bool = True  # requires its signature back with its calls
    takes_effort: bool = True  # takes an effort level; else a thinking budget in tokens


_FAMILIES = (
    # Prefilling was removed with Claude 4.6: "This model does not support assistant message prefill."
    # Adaptive thinking came with it; before, thinking is a budget of tokens.
    Family("*claude-2*", takes_effort=False),
    Family("*claude-3*", takes_effort=False),
    Family("*claude-instant*", takes_effort=False),
    Family("*claude-*-4", takes_effort=False),
    Family("*claude-*-4-0", takes_effort=False),
    Family("*claude-*-4-[1-5]*", takes_effort=False),
    Family("*claude-*-4-20*", takes_effort=False),
    Family("*claude-*", prefill=False),
    # Thought signatures on function calls are checked since Gemini 3, which also takes thinking levels.
    Family("*gemini-1-*", signed_calls=False, takes_effort=False),
    Family("*gemini-2-*", signed_calls=False, takes_effort=False),
)
_DEFAULT_FAMILY = Family("*")


@lru_cache(256)
def family_of(model: str) -> Family:
    """Return the row of a model. A path before the name (`models/…`, `anthropic/…`) is ignored; dots are hyphens."""
    name = model.rpartition("/")[2].lower().replace(".", "-")
    return next((row for row in _FAMILIES if fnmatchcase(name, row.pattern)), _DEFAULT_FAMILY)
