"""The state of one constrained output: allowed tokens, accepted tokens, and the forced end of a limited output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError, ToolwireError
from .closing import ClosingPlan
from .number_limits import NumberLimits
from .tokenizer import MaskTokenizer

__all__ = ["MaskState", "UnfinishedOutput"]


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
        if (self._plan is None and not self._ended) or not self.fill_forced(row):
            matcher = self._matcher
            matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)  # only the end token once it has stopped
            if matcher.is_error():
                self.check()
            self._numbers.restrict(row)

    def restrict(self, row: NDArray[Any]) -> None:
        """Remove tokens from a mask of the engine that would continue a number beyond its limits, for batches."""
        self._numbers.restrict(row)

    def fill_forced(self, row: NDArray[Any]) -> bool:
        """Write the mask and return True if no engine is needed: the output is finished, or its end is enforced."""
        if self._ended or self.is_finished:
            choices = [self._tokenizer.end_token]
        elif self._plan is None:
            return False
        else:
            self.check()
            choices = self._plan.choices(self._matcher)
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
        """Continue with a token; ConfigError if it is not allowed, and the state is unusable then."""
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
