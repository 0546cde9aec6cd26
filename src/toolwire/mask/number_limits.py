"""Limit the digits of JSON numbers, for which the engines have no limit: no generated number exceeds a double.

A number without a declared range may have any number of digits, also in its exponent, and a reader of JSON then refuses
it or returns infinity. Tokens that would continue a number beyond its limits are removed from a mask.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tokenizer import MaskTokenizer

__all__ = ["NumberLimits"]

_MAX_DIGITS = 150  # in a row; with an exponent below 100, the number stays below 10**250
_MAX_EXPONENT = 2
_EXPONENT = re.compile(rb"[0-9][eE][+-]?([0-9]*)\Z").search
_EXPONENT_END = 6  # a digit, the letter, the sign, and the digits of the exponent
_LONG_EXPONENT = re.compile(rb"[0-9.]*[eE][+-]?[0-9]{3}").match
_NUMBER_END = frozenset(b"0123456789eE+-")


class NumberLimits:
    """The end of one output, and the tokens that would lengthen a number at this end too much."""

    __slots__ = ("_tail", "_tokenizer")

    def __init__(self, tokenizer: MaskTokenizer) -> None:
        self._tokenizer = tokenizer
        self._tail = b""

    def advance(self, token: int) -> None:
        self._tail = (self._tail + self._tokenizer.token_bytes[token])[-_MAX_DIGITS:]

    def restrict(self, row: NDArray[Any]) -> None:
        """Remove tokens from a mask; a mask inside a string stays as it is, and none becomes empty."""
        if not self._tail or self._tail[-1] not in _NUMBER_END:
            return
        run = len(self._tail) - len(self._tail.rstrip(b"0123456789"))
        exponent = _EXPONENT(self._tail[-_EXPONENT_END:])
        if not run and not exponent:
            return
        digits = _digit_tokens(self._tokenizer)
        left = _MAX_EXPONENT - len(exponent[1]) if exponent else _MAX_DIGITS - run
        if left >= digits.longest and not digits.long_exponents.size:
            return
        bits = row.view(np.uint32)
        if _has_any(bits, digits.text) or (run and not _has_any(bits, digits.ends)):
            return
        kept = bits.copy()
        for token in (*digits.tokens[digits.lengths > left].tolist(), *digits.long_exponents.tolist()):
            kept[token >> 5] &= np.uint32(~(1 << (token & 31)) & 0xFFFFFFFF)
        if kept.any():
            bits[:] = kept


def _has_any(bits: NDArray[np.uint32], tokens: tuple[int, ...]) -> bool:
    return any(bits[token >> 5] >> np.uint32(token & 31) & 1 for token in tokens)


class _DigitTokens(NamedTuple):
    """The tokens that begin with digits, the number of those digits, tokens only of text, and tokens after a number."""

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    longest: int
    long_exponents: NDArray[np.int64]
    text: tuple[int, ...]
    ends: tuple[int, ...]


@lru_cache(4)
def _digit_tokens(tokenizer: MaskTokenizer) -> _DigitTokens:
    texts = list(enumerate(tokenizer.token_bytes))
    lengths = {token: len(text) - len(text.lstrip(b"0123456789")) for token, text in texts}
    found = [token for token, length in lengths.items() if length]
    return _DigitTokens(
        np.array(found, np.int64),
        np.array([lengths[token] for token in found], np.int64),
        max(lengths.values(), default=0),
        np.array([token for token, text in texts if _LONG_EXPONENT(text)], np.int64),
        tuple(token for token, text in texts if text in (b'"', b"Q", b"a")),
        (tokenizer.end_token, *(token for token, text in texts if text in (b",", b"]", b"}"))),
    )
