"""Search a short way to the end of an output, in the states of the engine's grammar.

The engine has no function for it, so the search tries tokens in copies of its matcher. A search of an output that has
already had a known way ends where the rest of this way is valid again: such a way is at most as much longer as the
value that the tokens since then have begun.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tokenizer import MaskTokenizer

START_STATES = 600  # as MAX_STATES, once per mask, for the smallest limit that `start` accepts
MAX_STATES = 150  # grammar states of one search, which then takes about a millisecond (see above)
_MAX_STEPS = 2_000  # tokens of one closing; a grammar that never ends must not loop
FEW = 12  # allowed tokens of a choice such as an enum; with more, the state is inside a text or a number
_MAX_OTHERS = 200  # allowed tokens that are looked at; inside a text nearly the whole vocabulary is allowed
# bytes of a token that fills a minimum length, and the number of longest ones that are kept
_MAX_FILLER, _MANY_FILLERS = 16, 2_000
_MAX_TAILS = 200  # tokens of a known way at which the output may meet it again
_SHORTER = 4  # rests of a known way that are compared: a number may go on or end, and only the end is always possible
_ENDS = b'",}])<'  # bytes at which a value, a member or a tag may end
_MAX_RESTS = 300  # rests of examples that are tried in one state, besides whole examples
_MAX_ALL_RESTS = 3_000  # rests of examples that are tried in one search for the rest of a value
_MAX_VISITS = 1_200  # states of the search for the rest of one value
_QUOTE, _ESCAPE = 0x22, 0x5C  # the bytes of " and \
_CONTINUATION = b"\x80"  # the first byte of a token that continues a character
# Scalars, and as group 1 the end of a string that is not one: a key, which a colon follows, or a string at the end, which
# may become a key. A string begins after a bracket, a comma, a colon or a space; without this condition, the text between
# a key and its value would be a string. The text may begin in a key, so other scalars need a separator before them.
_SCALARS = re.compile(
    rb'"(?<![^\[{,:\s]")(?:[^"\\]|\\.)*+(?:"(?!:|\Z)|("?|\\))'
    rb"|(?:(?<=[\[,:])|(?<=[,:]\s)|(?<=[\[,:\s]-))[0-9][0-9.eE+-]*+|(?:(?<=[\[,:])|(?<=[,:]\s))(?:true|false|null)",
    re.DOTALL,
)
_KEY_START = re.compile(rb'[{,] ?"([^"\\]*)\Z').search
_PIECES = re.compile(rb'"(?:[^"\\]|\\.)*+("|\\?\Z)|[^"]++', re.DOTALL)  # strings, maybe open, and the text between them


def _outline(text: bytes | bytearray) -> bytes:
    """Replace the scalars of a text by 0, and keep its structure and its keys."""
    return _SCALARS.sub(lambda found: b"0" if found[1] is None else found[0], text)


def find_closing(
    matcher: Any,
    tokenizer: MaskTokenizer,
    preferred: Sequence[bytes] = (),
    budget: int = MAX_STATES,
    known: Sequence[int] = (),
    examples: Sequence[bytes] = (),
) -> list[int] | None:
    """Return the tokens of a short way to an accepting state, the shortest if it is found within the budget.

    `preferred` are names of required properties, which are tried before optional ones. `known` is the way from an
    earlier state of the output; the search ends where the rest of it is valid again. `examples` are shortest
    texts of patterns.
    """
    search = ClosingSearch(tokenizer, preferred, budget, known, examples)
    found = search.shortest(matcher)
    return search.first(matcher) if found is None else found


class ClosingSearch:
    """One search. The number of states that it visits is bounded."""

    __slots__ = ("_budget", "_examples", "_is_greedy", "_preferred", "_table", "_tails", "_tokenizer")

    def __init__(
        self,
        tokenizer: MaskTokenizer,
        preferred: Sequence[bytes],
        budget: int,
        known: Sequence[int] = (),
        examples: Sequence[bytes] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._preferred = preferred
        self._table = closing_table(tokenizer)
        self._budget = budget
        self._examples = _example_rests(tuple(examples), tokenizer)
        self._tails = _tails(known, tokenizer)
        self._is_greedy = False  # take one way to the end of a value instead of comparing its first tokens

    def shortest(self, matcher: Any) -> list[int] | None:
        """Return the fewest tokens to an accepting state, or None if the budget of states is used up.

        Dijkstra's algorithm; the text without the contents of values identifies a state. The budget bounds the texts.
        """
        order = 0
        frontier: list[tuple[int, int, Any, list[int], bytes]] = [(0, 0, matcher.deep_copy(), [], b"")]
        seen: set[bytes] = set()
        while frontier and self._budget > 0:
            cost, _, state, path, text = heappop(frontier)
            rest = self._rest_of_known(state)
            if rest is not None:
                return path + rest
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
        self._is_greedy = True
        state, path, text, last = matcher.deep_copy(), list[int](), bytearray(), b":"
        for _ in range(_MAX_STEPS):
            rest = self._rest_of_known(state)
            if rest is not None:
                return path + rest
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

    def _rest_of_known(self, state: Any) -> list[int] | None:
        """Return the rest of the known way if it is valid in this state, or no tokens at the end, else None."""
        if state.is_accepting():
            return []
        end = self._tokenizer.end_token
        firsts: dict[int, bool] = {}
        found: list[int] | None = None
        left = len(self._tails)
        for tail in self._tails:
            if left == 0:
                break
            left -= 1
            first = tail[0]
            if first not in firsts:
                firsts[first] = state.validate_tokens([first]) == 1
            if firsts[first] and state.validate_tokens([*tail, end]) > len(tail):
                found, left = tail, min(left, _SHORTER)
        return found

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
        row, table = _mask_of(state, self._tokenizer), self._table
        quotes, brackets = _first_allowed(row, table.quotes, 3), _first_allowed(row, table.brackets, 3)
        if len(_first_allowed(row, table.letters, len(table.letters))) == len(table.letters):  # inside a string
            return quotes or self._rest(state, row)
        is_opened = written.rstrip(b" ")[-1:] in (b"{", b"[")  # then a quote begins a member or an item
        ends = brackets + quotes if is_opened else quotes + brackets
        if not ends and self._is_greedy:  # a number, a pattern, or declared keys
            key = self._required_key(state, written)
            return key or self._rest(state, row) or self._rest(state, row, is_exact=True)
        return ends or _first_allowed(row, table.digits, 1) + self._others(row)

    def _required_key(self, state: Any, written: bytes | bytearray) -> list[list[int]]:
        """Return the rest of a required key, if the search's text ends in a key that may become one."""
        found = _KEY_START(written)
        if found is None:
            return []
        for name in self._preferred:
            if name.startswith(found[1]):
                tokens = self._tokenizer.engine.tokenize_bytes(name[len(found[1]) :] + b'"')
                if state.validate_tokens(tokens) == len(tokens):
                    return [tokens]
        return []

    def _rest(self, state: Any, row: NDArray[np.uint32], *, is_exact: bool = False) -> list[list[int]]:
        """Return the tokens up to the next place where a value may end, such as the rest of an e-mail address.

        Breadth first: the rests of examples for a pattern, the longest filler for a minimum length, and one token of each
        kind of character. States with equal masks are not distinguished, unless `is_exact`: the digits of a multiple have
        equal masks. If all tokens of a level lead to the mask before them, as below a minimum length, the next levels try
        only the first token. The levels 4, 8, 16 and so on try all of them again, for a pattern such as `[a-z0-9]{30,}9`.
        """
        # where letters are allowed, a bracket is part of a text
        table = self._table
        ends = table.quotes if _first_allowed(row, table.letters, 1) else np.concatenate((table.quotes, table.brackets))
        frontier: list[tuple[Any, NDArray[np.uint32], list[int]]] = [(state, row, [])]
        visits, rests = _MAX_VISITS, _MAX_ALL_RESTS
        level, is_uniform = 0, False
        while frontier and visits > 0:
            following, seen = [], set[bytes]()
            most = 1 if is_uniform and level & (level - 1) else None
            for before, allowed, path in frontier:
                candidates = self._example_candidates(allowed)[: max(rests, 0)]
                rests -= len(candidates)
                rest = self._first_ended(before, candidates, ends)
                if rest:
                    return [path + rest]
                for token in _representatives(allowed, table)[:most]:
                    visits -= 1
                    after = before.deep_copy()
                    if visits < 0 or not after.consume_token(token):
                        continue
                    after_row = _mask_of(after, self._tokenizer)
                    if _first_allowed(after_row, ends, 1) or after.is_accepting():
                        return [[*path, token]]
                    key = after_row.tobytes()
                    if is_exact or key not in seen:
                        seen.add(key)
                        following.append((after, after_row, [*path, token]))
            level += 1
            is_uniform = not is_exact and len(frontier) == 1 and seen == {frontier[0][1].tobytes()}
            frontier = following[::-1]  # a later kind of character is more often progress than another letter
        return []

    def _example_candidates(self, row: NDArray[np.uint32]) -> list[list[int]]:
        """Return the allowed rests of examples, the shortest first, and whole examples if there are too many rests.

        A long pattern such as `[a-z]{390}x` allows all rests at its start, and only the whole example ends it.
        """
        examples = self._examples
        allowed = (row[examples.firsts >> 5] >> (examples.firsts & 31).astype(np.uint32)) & 1
        found = np.flatnonzero(allowed)
        more = found[_MAX_RESTS:]
        chosen = np.concatenate((found[:_MAX_RESTS], more[examples.is_whole[more]][:_MAX_RESTS]))
        return [examples.rests[index] for index in chosen.tolist()]

    def _first_ended(self, state: Any, rests: list[list[int]], ends: NDArray[np.int64]) -> list[int]:
        """Return the first of `rests` that is valid and followed by an end, or no tokens."""
        for tokens in rests:
            if state.validate_tokens(tokens) == len(tokens):
                after = state.deep_copy()
                if after.consume_tokens(tokens):
                    after_row = _mask_of(after, self._tokenizer)
                    if _first_allowed(after_row, ends, 1) or after.is_accepting():
                        return tokens
        return []

    def _others(self, row: NDArray[np.uint32]) -> list[list[int]]:
        """Return the longest allowed tokens of keys and constants, required properties first.

        Digits are of a number, unless few tokens are allowed: then they may distinguish keys.
        """
        tokens = _tokens_of(row)[:_MAX_OTHERS]
        texts = {self._tokenizer.token_bytes[token]: int(token) for token in tokens}
        texts = {text: token for text, token in texts.items() if text and (len(tokens) <= FEW or not text.isdigit())}
        if texts and min(texts) >= _CONTINUATION:  # any rest of the character will do
            return [[texts[min(texts, key=len)]]]
        ordered = sorted(texts)  # a text that begins another one directly precedes such a text
        longest = [text for text, following in pairwise([*ordered, b""]) if not following.startswith(text)]
        names = self._preferred
        longest.sort(key=lambda text: (not any(name.startswith(text.strip(b'"')) for name in names), -len(text)))
        return [[texts[text]] for text in longest[:FEW]]


def _tails(known: Sequence[int], tokenizer: MaskTokenizer) -> list[list[int]]:
    """Return the rests of a way to the end that begin where a value or a member may end, the longest first."""
    tails = []
    for index in range(min(len(known), _MAX_TAILS)):
        text, rest = tokenizer.token_bytes[known[index]], list(known[index + 1 :])
        if index < _SHORTER or text[:1] in _ENDS:
            tails.append([known[index], *rest])
        if len(text) > 1:
            tails += [
                tokenizer.engine.tokenize_bytes(text[at:]) + rest for at in range(1, len(text)) if text[at] in _ENDS
            ]
    return tails


def _first_allowed(row: NDArray[np.uint32], tokens: NDArray[np.int64], most: int) -> list[list[int]]:
    allowed = (row[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1
    return [[int(token)] for token in tokens[np.flatnonzero(allowed)[:most]]]


def _representatives(row: NDArray[np.uint32], table: _ClosingTable) -> list[int]:
    """Return the longest allowed filler and the first allowed token of each kind of character, or any if there are none."""
    tokens, kinds = table.characters
    allowed = np.flatnonzero((row[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1)
    firsts = allowed[np.unique(kinds[allowed], return_index=True)[1]]
    fillers = [token for filler in _first_allowed(row, table.fillers, 1) for token in filler]
    return [*fillers, *map(int, tokens[firsts])] or [int(token) for token in _tokens_of(row)[:FEW]]


def _mask_of(state: Any, tokenizer: MaskTokenizer) -> NDArray[np.uint32]:
    row = np.zeros(tokenizer.width, np.uint32)
    state.unsafe_compute_mask_ptr(row.ctypes.data, row.size * 4)
    return row


def _tokens_of(row: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))


def allowed_tokens(state: Any, tokenizer: MaskTokenizer) -> list[int]:
    return [int(token) for token in _tokens_of(_mask_of(state, tokenizer))[: FEW + 1]]


class _ExampleRests(NamedTuple):
    """All rests of examples, the shortest first."""

    rests: list[list[int]]
    firsts: NDArray[np.int64]  # the first token of each
    is_whole: NDArray[np.bool_]


@lru_cache(16)
def _example_rests(examples: tuple[bytes, ...], tokenizer: MaskTokenizer) -> _ExampleRests:
    texts = dict.fromkeys(text[at:] for text in examples for at in range(len(text)))
    pairs = [(tokenizer.engine.tokenize_bytes(text), text in examples) for text in sorted(texts, key=len)]
    rests, is_whole = [tokens for tokens, _ in pairs if tokens], [whole for tokens, whole in pairs if tokens]
    return _ExampleRests(rests, np.array([tokens[0] for tokens in rests], np.int64), np.array(is_whole, np.bool_))


class _ClosingTable(NamedTuple):
    """Tokens of a vocabulary by their use for closing, the best first."""

    quotes: NDArray[np.int64]  # close a string, and maybe the objects around it
    brackets: NDArray[np.int64]  # close arrays and objects, or separate members
    digits: NDArray[np.int64]
    letters: NDArray[np.int64]  # all of them are allowed only inside a string
    fillers: NDArray[np.int64]  # reach a minimum length
    characters: tuple[NDArray[np.int64], NDArray[np.int64]]  # tokens of one character, and the kind of each
    text: NDArray[np.uint32]  # the mask of tokens that can neither begin nor end a string, a member or an item


@lru_cache(4)
def closing_table(tokenizer: MaskTokenizer) -> _ClosingTable:
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
        _characters(tokenizer),
        _text_mask(tokenizer),
    )


def _characters(tokenizer: MaskTokenizer) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens of single characters, and the kind of each: small letters and capitals are one kind each."""
    found = []
    for token, text in enumerate(tokenizer.token_bytes):
        if len(text) == 1 and 0x20 <= text[0] < 0x7F and text[0] not in (_QUOTE, _ESCAPE):
            found.append((ord("a") if text.islower() else ord("A") if text.isupper() else text[0], text, token))
    found.sort()
    return _token_array((text, token) for _, text, token in found), np.array([kind for kind, *_ in found], np.int64)


def _text_mask(tokenizer: MaskTokenizer) -> NDArray[np.uint32]:
    bits = np.zeros(tokenizer.width * 32, np.uint8)
    for token, text in enumerate(tokenizer.token_bytes):
        bits[token] = bool(text) and not any(byte in text for byte in b'"\\{}[],:')
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _token_array(pairs: Iterable[tuple[bytes, int]]) -> NDArray[np.int64]:
    return np.array([token for _, token in pairs], np.int64)
