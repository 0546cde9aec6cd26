"""Close an output with calls in a text format before its token limit: its tags close values that no quote closes."""

from __future__ import annotations

from typing import Any

from .closing import ClosingPlan, ClosingSearch
from .tokenizer import MaskTokenizer

__all__ = ["ToolClosingPlan"]


class ToolClosingPlan(ClosingPlan):
    """A plan that also tries the closing texts of a format, `closers`, as tokens."""

    __slots__ = ("_closers",)

    def __init__(
        self, tokenizer: MaskTokenizer, max_tokens: int, step: int, *, closers: tuple[list[int], ...] = ()
    ) -> None:
        super().__init__(tokenizer, max_tokens, step)
        self._closers = closers

    def _find(self, matcher: Any, budget: int) -> list[int] | None:
        search = _TagSearch(self._tokenizer, self._preferred, budget)
        search.closers = self._closers
        found = search.shortest(matcher)
        return search.first(matcher) if found is None else found


class _TagSearch(ClosingSearch):
    """A search that tries the closing texts before anything else."""

    __slots__ = ("closers",)

    closers: tuple[list[int], ...]

    def _continuations(self, state: Any) -> list[list[int]]:
        found = [tokens for tokens in self.closers if state.validate_tokens(tokens) == len(tokens)]
        return found[:3] or super()._continuations(state)
