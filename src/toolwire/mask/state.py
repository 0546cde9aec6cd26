"""The state of a constrained output: allowed tokens, accepted tokens, and the forced end of a limited output.

The engines have no limit for the digits of JSON numbers, so it is enforced here: no generated number exceeds a double.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError, ToolwireError
from .closing import ClosingPlan
from .tokenizer import MaskTokenizer

# A number without a declared range may have any number of digits, also in its exponent, and a reader of JSON then
# refuses it or returns infinity. Tokens that would continue a number beyond its limits are removed from a mask.


_MAX_DIGITS = 150  # in a row; with an exponent below 100, the number stays below 10**250
_MAX_EXPONENT = 2  # digits: below 100, see _MAX_DIGITS
_EXPONENT = re.compile(rb"[0-9][eE][+-]?([0-9]*)\Z").search
_EXPONENT_END = 6  # a digit, the letter, the sign, and the digits of the exponent
_LONG_EXPONENT = re.compile(rb"[0-9.]*[eE][+-]?[0-9]{3}").match
_NUMBER_END = frozenset(b"0123456789eE+-")


class NumberLimits:
    """The end of one output, and the tokens that would lengthen a number at this end too much."""

    __slots__ = ("_texts", "_tokenizer", "tail")

    def __init__(self, tokenizer: MaskTokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts = tokenizer.token_bytes
        self.tail = b""
        """The end of the output from the token on with which a number may have begun; empty if there is none."""

    def advance(self, token: int) -> None:
        text = self._texts[token]
        self.tail = (self.tail + text)[-_MAX_DIGITS:] if text and text[-1] in _NUMBER_END else b""

    def restrict(self, row: NDArray[Any]) -> None:
        """Remove the tokens from a mask that would make a number too long.

        A mask inside a string stays as it is, and none becomes empty. `row` has one bit per token.
        """
        if not self.tail:
            return
        run = len(self.tail) - len(self.tail.rstrip(b"0123456789"))
        exponent = _EXPONENT(self.tail[-_EXPONENT_END:])
        if not run and not exponent:
            return
        digits = _digit_tokens(self._tokenizer)
        left = _MAX_EXPONENT - len(exponent[1]) if exponent else _MAX_DIGITS - run
        if left >= digits.longest and not digits.long_exponents.size:
            return
        bits = row.view(np.uint32)
        # where text is allowed, the digits are inside a string; where nothing may follow a number, it has to go on
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
    """Tokens of a vocabulary that matter for the length of a number."""

    tokens: NDArray[np.int64]  # begin with digits
    lengths: NDArray[np.int64]  # the leading digits of each
    longest: int
    long_exponents: NDArray[np.int64]  # contain an exponent of three digits or more
    text: tuple[int, ...]  # allowed only inside a string
    ends: tuple[int, ...]  # allowed after a complete number


@lru_cache(4)
def _digit_tokens(tokenizer: MaskTokenizer) -> _DigitTokens:
    """Collect the tokens of `_DigitTokens` once per tokenizer."""
    texts = list(enumerate(tokenizer.token_bytes))
    lengths = {token: len(text) - len(text.lstrip(b"0123456789")) for token, text in texts}
    with_digits = [token for token, length in lengths.items() if length]
    return _DigitTokens(
        np.array(with_digits, np.int64),
        np.array([lengths[token] for token in with_digits], np.int64),
        max(lengths.values(), default=0),
        np.array([token for token, text in texts if _LONG_EXPONENT(text)], np.int64),
        tuple(token for token, text in texts if text in (b'"', b"Q", b"a")),
        (tokenizer.end_token, *(token for token, text in texts if text in (b",", b"]", b"}"))),
    )


class UnfinishedOutput(ToolwireError):
    """The output ended before it was complete: the token limit was reached, or the engine gave up.

    `text` is the part that was generated. It is a valid beginning, never a valid value.
    """

    default_status = 502

    def __init__(self, message: str, *, text: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.text = text


class MaskState:
    """One output under a mask.

    With `max_tokens`, the shortest way to complete the output is enforced as soon as the remaining tokens require it.
    """

    __slots__ = ("_ended", "_matcher", "_numbers", "_plan", "_tokenizer", "tokens")

    def __init__(self, matcher: Any, tokenizer: MaskTokenizer, plan: ClosingPlan | None = None) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._plan = plan
        self._numbers = NumberLimits(tokenizer)
        self._ended = False
        self.tokens: list[int] = []
        """The tokens that were accepted, without the end token."""

    @property
    def is_finished(self) -> bool:
        """True if only the end token may follow."""
        return self._ended or (self._matcher.is_stopped() and not self._matcher.is_error())

    @property
    def is_complete(self) -> bool:
        """True if the output may end here."""
        return self.is_finished or self._matcher.is_accepting()

    def allowed(self) -> NDArray[np.uint32]:
        """Return the mask of the next token, one bit for each row of the output layer."""
        row = np.empty(self._tokenizer.width, np.uint32)
        self.fill(row)
        return row

    def fill(self, row: NDArray[Any]) -> None:
        """Write the mask of the next token into `row`."""
        plan = self._plan
        # this runs for every token: calls that are rarely needed cost more than the comparisons before them
        if (self._ended or (plan is not None and plan.left <= plan.due_at)) and self.fill_forced(row):
            return
        matcher = self._matcher
        matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)  # only the end token once it has stopped
        if matcher.is_error():
            self.check()
        if self._numbers.tail or (plan is not None and plan.is_text):
            self.restrict(row)

    def restrict(self, row: NDArray[Any]) -> None:
        """Remove tokens from a mask of the engine: digits beyond the limits of a number, members beyond the token limit."""
        self._numbers.restrict(row)
        if self._plan is not None:
            self._plan.restrict(row)

    def fill_forced(self, row: NDArray[Any]) -> bool:
        """Write the mask and return True if the engine is not needed: the output is finished, or its end is enforced.

        If only the end token is left, and the plan can continue as text without calls, the state switches to a matcher
        of such text.
        """
        if self._ended or self.is_finished:
            choices = [self._tokenizer.end_token]
        elif self._plan is None:
            return False
        else:
            choices = self._plan.choices(self._matcher)
            self.check()  # the search may have exceeded a limit of the engine, whose states the copies share
            if choices == [self._tokenizer.end_token]:
                text = self._plan.text_matcher(self.tokens)
                if text is not None:
                    self._matcher = text
                    choices = self._plan.choices(text)
            if not choices:
                return False
        row[:] = 0
        bits = row.view(np.uint32)
        for token in choices:
            bits[token >> 5] |= np.uint32(1 << (token & 31))
        self._numbers.restrict(row)
        return True

    def check(self) -> None:
        """Raise UnfinishedOutput if the engine gave up, so that nothing is allowed by mistake."""
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0][:300]
            raise UnfinishedOutput(f"the output cannot be continued: {reason}", text=self.text)

    @property
    def width(self) -> int:
        """The number of 32-bit integers of a mask."""
        return self._tokenizer.width

    @property
    def matcher(self) -> Any:
        """The matcher of the engine, for batches."""
        return self._matcher

    def accept(self, token: int) -> None:
        """Advance the state by a token, or end it by the end token.

        A token that is not allowed raises ConfigError, and the state is unusable then.
        """
        matcher = self._matcher
        if self._ended or token == self._tokenizer.end_token or matcher.is_stopped():
            self._end(token)
            return
        if not matcher.consume_token(token):
            raise ConfigError(
                f"the token {token} is not allowed here", hint="choose a token whose bit is set in allowed()"
            )
        self.tokens.append(token)
        self._numbers.advance(token)
        if self._plan is not None:
            self._plan.advance(token)

    def _end(self, token: int) -> None:
        self.check()
        if not self._ended and (token != self._tokenizer.end_token or not self.is_complete):
            raise ConfigError(
                f"the token {token} is not allowed here", hint="choose a token whose bit is set in allowed()"
            )
        self._ended = True

    @property
    def text(self) -> str:
        """The text of the accepted tokens."""
        return self._tokenizer.decode(self.tokens)

    def finish(self) -> str:
        """Return the text; UnfinishedOutput if it is only a beginning."""
        if not self.is_complete:
            raise UnfinishedOutput(
                f"the output is incomplete after {len(self.tokens)} tokens",
                text=self.text,
                hint="raise the token limit, and pass it to start, which then closes the output in time",
            )
        return self.text
