"""The result of a search."""

from __future__ import annotations

from ..ir.tools import Tool
from ..ir.value import Value

__all__ = ["SearchHit"]


class SearchHit(Value, frozen=True):
    """A tool that was found. A higher `score` is better; scores of different queries are not comparable.

    `reasons` describe the match for a person: the words in common, and the similarity of meanings.
    """

    tool: Tool
    score: float
    reasons: tuple[str, ...] = ()
    server: str = ""
