"""Masks of many outputs at once, computed on the threads of the engine, without the lock of the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llguidance
import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError
from .masks import Mask
from .state import MaskState

__all__ = ["BatchMask"]


class BatchMask:
    """The masks of a batch: row `index` of the result belongs to `states[index]`.

    `threads` is the number of threads of the engine; None for most of the processors.
    """

    __slots__ = ("_executor", "_rows", "states")

    def __init__(
        self, outputs: Sequence[Mask | MaskState], *, max_tokens: int | None = None, threads: int | None = None
    ) -> None:
        if not outputs:
            raise ConfigError("a batch needs at least one mask")
        self.states = [one.start(max_tokens) if isinstance(one, Mask) else one for one in outputs]
        widths = {state.width for state in self.states}
        if len(widths) > 1:
            raise ConfigError("the masks of a batch must share a tokenizer")
        self._executor: Any = llguidance.LLExecutor(threads)
        self._rows = np.zeros((len(self.states), widths.pop()), np.uint32)

    def allowed(self) -> NDArray[np.uint32]:
        """Return the masks of the next tokens; the array is reused by the next call."""
        computed = []
        for index, state in enumerate(self.states):
            if state.fill_forced(self._rows[index]):
                continue
            if isinstance(state.matcher, llguidance.LLMatcher):
                computed.append((index, state))
            else:
                state.fill(self._rows[index])
        if computed:
            pairs = [(state.matcher, index) for index, state in computed]
            rows, width = self._rows.shape
            self._executor.unsafe_compute_mask_ptr(pairs, self._rows.ctypes.data, width * 4, rows)
            for index, state in computed:
                state.check()
                state.restrict(self._rows[index])
        return self._rows

    def accept(self, tokens: Sequence[int]) -> None:
        """Continue each output with its token."""
        if len(tokens) != len(self.states):
            raise ConfigError(f"expected {len(self.states)} tokens, got {len(tokens)}")
        for state, token in zip(self.states, tokens, strict=True):
            state.accept(int(token))

    @property
    def is_finished(self) -> bool:
        return all(state.is_finished for state in self.states)
