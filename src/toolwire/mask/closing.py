"""Close an output before its token limit: find a short way to complete it, and follow it when it is time.

A search is needed only if the limit could be reached before the next check. The distance to the end grows by at most
`step` tokens with each token, so the next check is due after a part of the remaining tokens. A path that was found
usually stays valid, with a part of it done: validating it costs some microseconds, a search about a millisecond. As soon
as the remaining tokens are few, the output follows the path, without any search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tokenizer import MaskTokenizer

_MAX_STATES = 150  # grammar states of one search, which then takes about a millisecond (see above)
_FEW_STATES = 40  # as _MAX_STATES, for each of up to _MAX_CHECKED choices
_MAX_STEPS = 2_000  # tokens of one closing; a grammar that never ends must not loop
_FEW = 12  # allowed tokens of a choice such as an enum; with more, the state is inside a text or a number
_MAX_OTHERS = 200  # allowed tokens that are looked at; inside a text nearly the whole vocabulary is allowed
# bytes of a token that fills a minimum length, and the number of longest ones that are kept
_MAX_FILLER, _MANY_FILLERS = 16, 2_000
_MAX_CHECKED = 16  # choices near the limit that are checked by a search
_QUOTE = 0x22  # the byte of "
# Scalars, and as group 1 the end of a string that is not one: a key, which a colon follows, or a string at the end, which
# may become a key. A string begins after a bracket, a comma, a colon or a space; without this condition, the text between
# a key and its value would be a string. The text may begin in a key, so other scalars need a separator before them.
_SCALARS = re.compile(
    rb'"(?<![^\[{,:\s]")(?:[^"\\]|\\.)*+(?:"(?!:|\Z)|("?|\\))'
    rb"|(?:(?<=[\[,:])|(?<=[,:]\s)|(?<=[\[,:\s]-))[0-9][0-9.eE+-]*+|(?:(?<=[\[,:])|(?<=[,:]\s))(?:true|false|null)",
    re.DOTALL,
)
_PIECES = re.compile(rb'"(?:[^"\\]|\\.)*+("|\\?\Z)|[^"]++', re.DOTALL)  # strings, maybe open, and the text between them


def _outline(text: bytes | bytearray) -> bytes:
    """Replace the scalars of a text by 0, and keep its structure and its keys."""
    return _SCALARS.sub(lambda found: b"0" if found[1] is None else found[0], text)


class ClosingPlan:
    """The plan of one output. `step` bounds how much one token can lengthen the shortest end."""

    __slots__ = (
        "_branches",
        "_check_at",
        "_checks_left",
        "_forced",
        "_left",
        "_path",
        "_preferred",
        "_step",
        "_tokenizer",
    )

    def __init__(
        self, tokenizer: MaskTokenizer, max_tokens: int, step: int, preferred: frozenset[bytes] = frozenset()
    ) -> None:
        self._tokenizer = tokenizer
        self._preferred = preferred
        self._left = max_tokens
        self._step = step
        self._check_at = max_tokens  # the number of remaining tokens at which the next check is due
        self._path: list[int] = []  # a way to the end
        self._forced = False
        self._branches: dict[int, list[int]] = {}  # choices that leave enough tokens, each with its way to the end
        self._checks_left = _MAX_CHECKED

    def choices(self, matcher: Any) -> list[int]:
        """Return the tokens that the output must choose from in order to end in time; an empty list allows all.

        When a check is due, find the distance to the end first. A forced output follows the path that was found, or
        another value of a small set if its end is near enough.
        """
        if not self._forced:
            if self._left > self._check_at:
                return []
            self._check(matcher)
            if not self._forced:
                return []
        if not self._path:  # the path is done: only the end is left
            return [self._tokenizer.end_token] if matcher.is_accepting() else []
        self._branches = {self._path[0]: self._path[1:]}
        if self._left > len(self._path) and self._checks_left > 0:
            self._add_branches(matcher)
        return list(self._branches)

    def advance(self, token: int) -> None:
        """Follow the output by one token."""
        self._left -= 1
        if self._forced:
            self._path = self._branches.get(token, [])
        elif self._path and self._path[0] == token:
            self._path = self._path[1:]

    def text_matcher(self, tokens: list[int]) -> Any:
        """Return a matcher for an output that continues as text instead of ending here, or None if there is none."""
        return None

    def _check(self, matcher: Any) -> None:
        """Store a path to the end, force it if no tokens are spare, and set the time of the next check."""
        path = self._still_valid(matcher)
        if path is None:
            path = self._find(matcher, _MAX_STATES)
        if path is None:  # none within the budget of the search: try again when half of the tokens are used
            self._check_at = self._left // 2
            return
        self._path = path
        spare = self._left - len(path) - self._step
        self._forced = spare <= 0
        # each token uses itself up, and can lengthen the path by `step`
        self._check_at = self._left - max(1, spare // (1 + self._step))

    def _find(self, matcher: Any, budget: int) -> list[int] | None:
        return find_closing(matcher, self._tokenizer, self._preferred, budget)

    def _still_valid(self, matcher: Any) -> list[int] | None:
        """Return the path found before, without its beginning, if it still leads to the end."""
        for start in range(min(4, len(self._path))):
            path = self._path[start:]
            if matcher.validate_tokens(path) == len(path):
                probe = matcher.deep_copy()
                if probe.consume_tokens(path) and probe.is_accepting():
                    return path
        return None

    def _add_branches(self, matcher: Any) -> None:
        """Add to `_branches` the other allowed tokens that leave enough tokens for the end, each with its path.

        Only a small set is tried, such as the values of an enum, or true and false. Each token costs a search, so their
        number is limited per output.
        """
        allowed = _allowed_tokens(matcher, self._tokenizer)
        if len(allowed) > _FEW:  # inside a text or a number: no further attempts, the path is followed
            self._checks_left = 0
            return
        for token in allowed:
            if self._checks_left <= 0:
                return
            if token in self._branches or token == self._tokenizer.end_token:
                continue
            self._checks_left -= 1
            probe = matcher.deep_copy()
            if probe.consume_token(token):
                path = self._find(probe, _FEW_STATES)
                if path is not None and len(path) < self._left:
                    self._branches[token] = path


def find_closing(
    matcher: Any, tokenizer: MaskTokenizer, preferred: frozenset[bytes] = frozenset(), budget: int = _MAX_STATES
) -> list[int] | None:
    """Return the tokens of a short way to an accepting state, the shortest if it is found within the budget.

    `preferred` are names of required properties, which are tried before optional ones.
    """
    search = ClosingSearch(tokenizer, preferred, budget)
    found = search.shortest(matcher)
    return search.first(matcher) if found is None else found


class ClosingSearch:
    """One search. The number of states that it visits is bounded."""

    __slots__ = ("_budget", "_preferred", "_table", "_tokenizer")

    def __init__(self, tokenizer: MaskTokenizer, preferred: frozenset[bytes], budget: int) -> None:
        self._tokenizer = tokenizer
        self._preferred = preferred
        self._table = _closing_table(tokenizer)
        self._budget = budget

    def shortest(self, matcher: Any) -> list[int] | None:
        """Return the fewest tokens to an accepting state, or None if the budget of states is used up.

        Dijkstra's algorithm; the text without the contents of values identifies a state. The budget bounds the texts.
        """
        order = 0
        frontier: list[tuple[int, int, Any, list[int], bytes]] = [(0, 0, matcher.deep_copy(), [], b"")]
        seen: set[bytes] = set()
        while frontier and self._budget > 0:
            cost, _, state, path, text = heappop(frontier)
            if state.is_accepting():
                return path
            for tokens in self._continuations(state, text):
                longer = text + self._tokenizer.engine.decode_bytes(tokens)
                key = _outline(longer)
                if key in seen:
                    continue
                following = state.deep_copy()
                self._budget -= 1
                if following.consume_tokens(tokens):
                    seen.add(key)
                    order += 1
                    heappush(frontier, (cost + len(tokens), order, following, path + tokens, longer))
        return None

    def first(self, matcher: Any) -> list[int] | None:
        """Return a path to an accepting state without comparing alternatives, or None if it leads nowhere.

        Each step takes the first continuation that changes the structure, not only the length of a value. Only the last
        value of the text can still grow, so a step costs no more after a long text.
        """
        state, path, text, last = matcher.deep_copy(), list[int](), bytearray(), b":"
        for _ in range(_MAX_STEPS):
            if state.is_accepting():
                return path
            options = self._continuations(state, text)
            added = [self._tokenizer.engine.decode_bytes(tokens) for tokens in options]
            outlines = [_outline(last + more) for more in added]
            chosen = next((number for number, outline in enumerate(outlines) if outline != last), 0)
            if not options or not state.consume_tokens(options[chosen]):
                return None
            path += options[chosen]
            text += added[chosen]
            for piece in _PIECES.finditer(outlines[chosen]):  # only the last letter or string depends on more text
                last = b":" + piece[0][-1:] if piece[1] is None else b'"' + piece[1]
        return None

    def _continuations(self, state: Any, written: bytes | bytearray) -> list[list[int]]:
        """Return the next token sequences to try: the forced one, or a few that close strings, arrays and objects.

        Inside a string, fillers reach a minimum length if no quote is allowed yet. Elsewhere, if nothing can be closed,
        a digit, a key or a constant comes next. `written`, the text of the search up to here, is for subclasses.
        """
        forced = state.compute_ff_bytes()
        if forced:
            tokens = self._tokenizer.engine.tokenize_bytes(forced)
            if tokens and state.validate_tokens(tokens) == len(tokens):
                return [tokens]
        row = np.zeros(self._tokenizer.width, np.uint32)
        state.unsafe_compute_mask_ptr(row.ctypes.data, row.size * 4)
        table = self._table
        quotes, brackets = _first_allowed(row, table.quotes, 3), _first_allowed(row, table.brackets, 3)
        if len(_first_allowed(row, table.letters, len(table.letters))) == len(table.letters):  # inside a string
            return quotes or _first_allowed(row, table.fillers, 2)
        return quotes + brackets or _first_allowed(row, table.digits, 1) + self._others(row)

    def _others(self, row: NDArray[np.uint32]) -> list[list[int]]:
        """Return the longest allowed tokens of keys and constants, required properties first.

        Digits are of a number, unless few tokens are allowed: then they may distinguish keys.
        """
        tokens = _tokens_of(row)[:_MAX_OTHERS]
        texts = {self._tokenizer.token_bytes[token]: int(token) for token in tokens}
        texts = {text: token for text, token in texts.items() if text and (len(tokens) <= _FEW or not text.isdigit())}
        ordered = sorted(texts)  # a text that begins another one directly precedes such a text
        longest = [text for text, following in pairwise([*ordered, b""]) if not following.startswith(text)]
        names = self._preferred
        longest.sort(key=lambda text: (not any(name.startswith(text.strip(b'"')) for name in names), -len(text)))
        return [[texts[text]] for text in longest[:_FEW]]


def _first_allowed(row: NDArray[np.uint32], tokens: NDArray[np.int64], most: int) -> list[list[int]]:
    allowed = (row[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1
    return [[int(token)] for token in tokens[np.flatnonzero(allowed)[:most]]]


def _tokens_of(row: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))


def _allowed_tokens(state: Any, tokenizer: MaskTokenizer) -> list[int]:
    row = np.zeros(tokenizer.width, np.uint32)
    state.unsafe_compute_mask_ptr(row.ctypes.data, row.size * 4)
    return [int(token) for token in _tokens_of(row)[: _FEW + 1]]


class _ClosingTable(NamedTuple):
    """Tokens of a vocabulary by their use for closing, the best first."""

    quotes: NDArray[np.int64]  # close a string, and maybe the objects around it
    brackets: NDArray[np.int64]  # close arrays and objects, or separate members
    digits: NDArray[np.int64]
    letters: NDArray[np.int64]  # all of them are allowed only inside a string
    fillers: NDArray[np.int64]  # reach a minimum length


@lru_cache(4)
def _closing_table(tokenizer: MaskTokenizer) -> _ClosingTable:
    """Group the tokens of a vocabulary, the best for closing first, once per tokenizer."""
    structural = [
        (text, token) for token, text in enumerate(tokenizer.token_bytes) if text and not text.strip(b'"}],: ')
    ]
    # a separator requires another value after it, so tokens without separators are better, and then longer ones
    structural.sort(key=lambda pair: (sum(letter in b",: " for letter in pair[0]), -len(pair[0]), pair[0]))
    plain = [(text, token) for token, text in enumerate(tokenizer.token_bytes) if text.isalnum() and text.isascii()]
    digits = sorted((pair for pair in plain if pair[0].isdigit()), key=lambda pair: (len(pair[0]), pair))
    fillers = sorted((text for text in plain if len(text[0]) <= _MAX_FILLER), key=lambda pair: (-len(pair[0]), pair[0]))
    letters = [pair for pair in plain if pair[0] in (b"a", b"z", b"Q")]
    return _ClosingTable(
        _token_array(pair for pair in structural if pair[0][0] == _QUOTE),
        _token_array(pair for pair in structural if pair[0][0] != _QUOTE),
        _token_array(digits),
        _token_array(letters),
        _token_array([*fillers[:_MANY_FILLERS], *fillers[-100:]]),
    )


def _token_array(pairs: Iterable[tuple[bytes, int]]) -> NDArray[np.int64]:
    return np.array([token for _, token in pairs], np.int64)
