"""Close an output with calls in a text format before its token limit: its tags close values that no quote closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .closing import ClosingPlan, ClosingSearch
from .tokenizer import MaskTokenizer

__all__ = ["ToolClosingPlan"]

_MOST_CLOSERS = 3
_CHARACTER_REST = 3  # tokens that complete a character


class ToolClosingPlan(ClosingPlan):
    """A plan that also tries the closing texts of a format, `closers`, as tokens.

    Text that may end anywhere needs no room for its end. Where the remaining tokens are too few for a call, the output
    continues under `without_calls`, a matcher of text, unless it already contains a call.
    """

    __slots__ = ("_closers", "_text_step", "_without_calls")

    def __init__(
        self,
        tokenizer: MaskTokenizer,
        max_tokens: int,
        step: int,
        *,
        closers: tuple[list[int], ...] = (),
        without_calls: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(tokenizer, max_tokens, step)
        self._closers = closers
        self._without_calls = without_calls
        self._text_step = min(_CHARACTER_REST, max_tokens // 4)

    def text_matcher(self, tokens: list[int]) -> Any:
        if self._without_calls is None:
            return None
        matcher = self._without_calls()
        self._without_calls = None
        if matcher is None or (tokens and matcher.try_consume_tokens(tokens) != len(tokens)):
            return None
        self._step, self._forced, self._check_at = self._text_step, False, self._left
        return matcher

    def _find(self, matcher: Any, budget: int) -> list[int] | None:
        search = _TagSearch(self._tokenizer, self._preferred, budget)
        search.closers = self._closers
        found = search.shortest(matcher)
        return search.first(matcher) if found is None else found


class _TagSearch(ClosingSearch):
    """A search that tries the closing texts before anything else."""

    __slots__ = ("closers",)

    closers: tuple[list[int], ...]

    def _continuations(self, state: Any, written: bytes) -> list[list[int]]:
        found: list[list[int]] = []
        for tokens in self._ends(written):
            if state.validate_tokens(tokens) == len(tokens) and self._closes(state, tokens):
                found.append(tokens)
                if len(found) == _MOST_CLOSERS:
                    break
        return found or super()._continuations(state, written)

    def _ends(self, written: bytes) -> Iterator[list[int]]:
        """Return the closing texts, those first whose beginning is already written as the beginning of another text."""
        engine = self._tokenizer.engine
        for tokens in self.closers:
            closer = engine.decode_bytes(tokens)
            for size in range(min(len(closer) - 1, len(written)), 1, -1):
                if written.endswith(closer[:size]):
                    yield engine.tokenize_bytes(closer[size:])
                    break
        yield from self.closers

    def _closes(self, state: Any, tokens: list[int]) -> bool:
        """Return False if the tokens are only text of a value: any letter may follow, and the output may not end."""
        if any(state.validate_tokens([*tokens, letter]) == len(tokens) for letter in self.letters):
            return True
        following = state.deep_copy()
        return bool(following.consume_tokens(tokens)) and bool(following.is_accepting())
