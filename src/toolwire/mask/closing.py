"""Close an output before its token limit: keep a way to its end, and follow it when it is time.

Invariant: a way to the end that fits the remaining tokens is known at every check. It holds at the start, because
`start` refuses a limit below the shortest output. A token is allowed without a check of its own only while the spare
tokens exceed `Growth.step`, the most that a token can lengthen the way; all other tokens are tried first.

A check is due only if the limit could be reached before the next one: never while the remaining tokens exceed every end
(`Growth.total`), and later after a part of the spare tokens. A way that was found usually stays valid, with a part of
it done: validating it costs some microseconds, a search about a millisecond.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .closing_search import FEW, MAX_STATES, START_STATES, allowed_tokens, closing_table, find_closing
from .growth import Growth
from .tokenizer import MaskTokenizer

_FEW_STATES = 40  # as MAX_STATES, for each of up to _MAX_CHECKED choices
_MAX_CHECKED = 16  # choices near the limit that are checked by a search
_FAILED_PART = 8  # after a failed search, the next one is due when this part of the remaining tokens is used
_IS_TEXT = re.compile(rb"[A-Za-z0-9 ._\x80-\xff-]++").fullmatch
_KEY_END = re.compile(rb'(?:[^"\\]|\\.)*+":', re.DOTALL).match


class ClosingPlan:
    """The plan of one output.

    `growth` bounds how much one token can lengthen the shortest end. After each token, one of these holds:

    more tokens remain than any end needs            every token is allowed without a check
    the spare tokens exceed `growth.step`            every token is allowed, and the next check may be some tokens away
    they exceed `growth.text_step`, inside a text    the text may continue, or end
    otherwise                                        only tokens whose way to the end was found and is short enough
    """

    __slots__ = (
        "_bound",
        "_branches",
        "_check_at",
        "_checks_left",
        "_growth",
        "_is_known",
        "_openers",
        "_path",
        "_tokenizer",
        "due_at",
        "is_text",
        "left",
    )

    def __init__(self, tokenizer: MaskTokenizer, max_tokens: int, growth: Growth) -> None:
        self._tokenizer = tokenizer
        self._growth = growth
        self._openers, most_openers = _bracket_counts(tokenizer)
        # no end needs more tokens, also after a token that opens as many brackets as any
        self._bound = growth.total + growth.rate * most_openers
        self._check_at = max_tokens  # the number of remaining tokens at which the next check is due, by the known way
        self.left = max_tokens
        """The number of remaining tokens."""
        self.due_at = min(self._check_at, self._bound)
        """The number of remaining tokens from which on `choices` may not allow all tokens."""
        self._path: list[int] = []  # a way to the end
        self._is_known = False  # the path begins at the present state
        self.is_text = False
        """Only the tokens that `restrict` keeps are allowed, because a text may continue."""
        self._branches: dict[int, list[int]] = {}  # choices that leave enough tokens, each with its way to the end
        self._checks_left = _MAX_CHECKED

    def follow(self, path: list[int]) -> None:
        """Set a way to the end from the present state."""
        self._path, self._is_known = path, True

    def choices(self, matcher: Any) -> list[int]:
        """Return the tokens that the output must choose from in order to end in time.

        An empty list allows all tokens of the engine's mask that `restrict` keeps.
        """
        self.is_text = False
        if self.left > self.due_at or not self._has_path(matcher):
            return []
        spare = self.left - len(self._path)
        step = self._growth.step
        if spare > step:
            # a key or a branch that is chosen now, the rest of a text, and the next token; see `advance` for others
            room = len(self._path) + step + self._growth.text_step + 1 + step
            self._check_again_at(min(self.left - 1, room))
            return []
        if not self._path:  # only the end is left
            return [self._tokenizer.end_token] if matcher.is_accepting() else []
        self._branches = {self._path[0]: self._path[1:]}
        is_few = spare > 0 and self._checks_left > 0 and self._add_branches(matcher)
        if not is_few and spare > self._growth.text_step and self._add_text_end(matcher):
            self.is_text = True
            return []
        return list(self._branches)

    def restrict(self, row: NDArray[Any]) -> None:
        """Remove the tokens from a mask that would not leave enough tokens, if the output is inside a text."""
        if not self.is_text:
            return
        bits = row.view(np.uint32)
        kept = bits & closing_table(self._tokenizer).text
        for token in self._branches:
            kept[token >> 5] |= np.uint32(1 << (token & 31))
        bits[:] = kept

    def advance(self, token: int) -> None:
        """Follow the output by one token."""
        self.left -= 1
        opened = self._openers[token]
        if opened >= 0:  # a token of letters only continues a text, a key or a number
            self._check_at += self._growth.step
            self._bound += self._growth.rate * opened
            self.due_at = min(self._check_at, self._bound)
        if self._is_known:
            if self._path and self._path[0] == token:
                self._path = self._path[1:]
            elif token in self._branches:
                self._path = self._branches[token]
            else:
                self._is_known = False
            self._branches = {}
            self.is_text = False

    def _check_again_at(self, left: int) -> None:
        self._check_at = left
        self.due_at = min(left, self._bound)

    def text_matcher(self, tokens: list[int]) -> Any:
        """Return a matcher for an output that continues as text instead of ending here, or None if there is none."""
        return None

    def find(self, matcher: Any, budget: int) -> list[int] | None:
        """Search a short way to the end; None if there is none within the budget of grammar states."""
        growth = self._growth
        return find_closing(matcher, self._tokenizer, growth.required, budget, self._path, growth.examples)

    def _has_path(self, matcher: Any) -> bool:
        """Find a way to the end from the present state, unless it is known; return False if the search fails."""
        if not self._is_known:
            path = self.find(matcher, MAX_STATES)
            if path is None:
                path = self.find(matcher, START_STATES)
            if path is None:  # each search takes long, so the next one is not due at once
                self._check_again_at(self.left - 1 - self.left // _FAILED_PART)
            else:
                self.follow(path)
        return self._is_known

    def _add_branches(self, matcher: Any) -> bool:
        """Add the other allowed tokens that leave enough tokens for the end, each with its path; False if there are many.

        Only a small set is tried, such as the values of an enum, or true and false. Each token costs a search, so their
        number is limited per output.
        """
        allowed = allowed_tokens(matcher, self._tokenizer)
        if len(allowed) > FEW:  # inside a text or a number
            return False
        for token in allowed:
            if self._checks_left <= 0:
                break
            if token in self._branches or token == self._tokenizer.end_token:
                continue
            self._checks_left -= 1
            probe = matcher.deep_copy()
            if probe.consume_token(token):
                path = self.find(probe, _FEW_STATES)
                if path is not None and len(path) < self.left:
                    self._branches[token] = path
        return True

    def _add_text_end(self, matcher: Any) -> bool:
        """Return False inside a key, whose letters choose a value; else add the end of the text as a choice.

        The path may begin with a token that ends the text and more. The quote alone allows another member after it.
        """
        rest = self._tokenizer.engine.decode_bytes(self._path)
        if _KEY_END(rest):
            return False
        if rest[:1] == b'"':
            tokens = self._tokenizer.engine.tokenize_bytes(rest[1:])
            for quote in closing_table(self._tokenizer).quotes.tolist():
                is_single = len(self._tokenizer.token_bytes[quote]) == 1
                if (
                    is_single
                    and len(tokens) < self.left
                    and matcher.validate_tokens([quote, *tokens]) == len(tokens) + 1
                ):
                    self._branches.setdefault(quote, tokens)
        return True


@lru_cache(4)
def _bracket_counts(tokenizer: MaskTokenizer) -> tuple[list[int], int]:
    """Return the number of objects, arrays and tags that each token may open, and the largest of these numbers.

    It is -1 for a token of letters, digits and spaces, which begins no value that a bracket or a quote has to begin.
    """
    counts = [  # after a brace, a key or the end must follow
        -1
        if _IS_TEXT(text)
        else text.count(b"[") + text.count(b"<") + text.count(b'{"') + text.count(b"{}") + text.endswith(b"{")
        for text in tokenizer.token_bytes
    ]
    return counts, max(counts)
