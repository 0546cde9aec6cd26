"""A logits processor for transformers' `generate` that applies masks to every step of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessor

from ..ir.errors import ConfigError
from .masks import BatchMask, Mask
from .state import MaskState


class MaskProcessor(LogitsProcessor):
    """Apply one mask to all rows, or one mask or state to each row, of a batch with left padding.

    `prompt_length` is the number of columns of the prompt, with its padding. `max_tokens` is the limit of new tokens, for
    masks that were not started. Beam search is not supported, because it exchanges rows.
    """

    def __init__(
        self,
        outputs: Mask | MaskState | Sequence[Mask | MaskState],
        prompt_length: int,
        *,
        max_tokens: int | None = None,
        threads: int | None = None,
    ) -> None:
        self._mask = outputs if isinstance(outputs, Mask) else None
        self._prompt_length = prompt_length
        self._max_tokens = max_tokens
        self._threads = threads
        self._batch: BatchMask | None = None
        if not isinstance(outputs, Mask):
            self._start([outputs] if isinstance(outputs, MaskState) else outputs)
        self._seen = 0
        self._last: list[int] = []

    def _start(self, outputs: Sequence[Mask | MaskState]) -> BatchMask:
        self._batch = BatchMask(outputs, max_tokens=self._max_tokens, threads=self._threads)
        return self._batch

    @property
    def states(self) -> list[MaskState]:
        """The states of the rows; call `finish` on each after generation."""
        return [] if self._batch is None else self._batch.states

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        batch = self._batch
        if batch is None and self._mask is not None:
            batch = self._start([self._mask] * input_ids.shape[0])
        if batch is None or len(batch.states) != input_ids.shape[0]:
            raise ConfigError(f"the batch has {input_ids.shape[0]} rows, but there are {len(self.states)} masks")
        self._follow(batch, input_ids)
        return apply_mask(torch.from_numpy(batch.allowed().view("int32")), scores)

    def accept_rest(self, output_ids: Any) -> None:
        """Accept the tokens after the last step: the token that ended generation is never passed to a processor."""
        if self._batch is not None:
            self._follow(self._batch, output_ids)

    def _follow(self, batch: BatchMask, input_ids: Any) -> None:
        """Accept the tokens that were generated since the last step.

        Raise ConfigError if rows of the batch were exchanged.
        """
        start = self._prompt_length + self._seen
        if self._seen and input_ids[:, start - 1].tolist() != self._last:
            raise ConfigError("the rows of the batch were exchanged", hint="use masks without beam search")
        for tokens in input_ids[:, start:].T.tolist():
            batch.accept(tokens)
            self._seen += 1
            self._last = tokens


def apply_mask(bits: Any, scores: Any) -> Any:
    """Set the scores of all tokens that are not allowed to minus infinity."""
    bits = bits.to(scores.device)
    shifts = torch.arange(32, dtype=torch.int32, device=scores.device)
    allowed = ((bits.unsqueeze(-1) >> shifts) & 1).bool().flatten(1)
    columns = scores.shape[1]
    if allowed.shape[1] < columns:
        allowed = torch.nn.functional.pad(allowed, (0, columns - allowed.shape[1]))
    return scores.masked_fill(~allowed[:, :columns], -float("inf"))
