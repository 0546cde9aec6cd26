"""Weighted losses of the tokens after a call, for many contexts at once.

The paper weights token t of the text after the call by w_t = max(0, 1 - 0.2 t) / Σ, so five tokens count. A loss needs
the output layer at these five positions only. Sequences are sorted by length, so that batches have little padding.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import ConfigError
from ...ir.value import Value
from ..chat_rendering import start_of_text
from ..language_model import LanguageModel

__all__ = ["WEIGHTS", "LossRequest", "batch_losses", "start_tokens", "weighted_nll"]

_RAW_WEIGHTS = tuple(max(0.0, 1 - 0.2 * distance) for distance in range(5))
WEIGHTS = tuple(weight / sum(_RAW_WEIGHTS) for weight in _RAW_WEIGHTS)
"""The weights of the paper: 1/3, 4/15, 1/5, 2/15, 1/15."""


class LossRequest(Value, frozen=True):
    """The tokens of a context, and those after it whose loss is wanted."""

    context: tuple[int, ...]
    suffix: tuple[int, ...]


def weighted_nll(
    model: LanguageModel, context: str | Sequence[int], suffix: str | Sequence[int], weights: Sequence[float] = WEIGHTS
) -> float:
    """Return -Σ w_t log p(suffix_t | context, suffix_<t) in nats. Tokens after the last weight do not count."""
    request = LossRequest(_tokens(model, context), _tokens(model, suffix))
    return batch_losses(model, [request], weights=weights)[0]


def batch_losses(
    model: LanguageModel,
    requests: Sequence[LossRequest],
    *,
    weights: Sequence[float] = WEIGHTS,
    batch_tokens: int = 16_384,
) -> list[float]:
    """Return the weighted loss of each request, in their order. `batch_tokens` limits the padded size of a batch."""
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens must be positive, got {batch_tokens}")
    start = start_tokens(model)
    sequences = []
    for request in requests:
        context = [*start, *request.context] or [model.end_token]
        suffix = request.suffix[: len(weights)]
        sequences.append((context, suffix))
    losses = [0.0] * len(requests)
    order = sorted(range(len(requests)), key=lambda number: (-_length(sequences[number]), number))
    first = 0
    while first < len(order):
        width = max(_length(sequences[order[first]]), 1)
        rows = order[first : first + max(1, batch_tokens // width)]
        for number, loss in zip(rows, _losses(model, [sequences[row] for row in rows], weights), strict=True):
            losses[number] = loss
        first += len(rows)
    return losses


def start_tokens(model: LanguageModel) -> list[int]:
    """Return the token that the tokenizer adds before every text, if it adds one."""
    return [int(model.tokenizer.bos_token_id)] if start_of_text(model.tokenizer) else []


def _tokens(model: LanguageModel, text: str | Sequence[int]) -> tuple[int, ...]:
    return tuple(model.encode(text) if isinstance(text, str) else text)


def _length(sequence: tuple[Sequence[int], Sequence[int]]) -> int:
    return len(sequence[0]) + len(sequence[1])


def _losses(
    model: LanguageModel, rows: Sequence[tuple[Sequence[int], Sequence[int]]], weights: Sequence[float]
) -> list[float]:
    """Return the losses of one padded batch."""
    import torch

    count = len(weights)
    tokens, attention = model.pad_batch([[*context, *suffix] for context, suffix in rows])
    places = torch.zeros((len(rows), count), dtype=torch.long)
    targets = torch.zeros_like(places)
    scale = torch.zeros((len(rows), count), dtype=torch.float64)
    for row, (context, suffix) in enumerate(rows):
        size = len(suffix)
        places[row, :size] = torch.arange(len(context) - 1, len(context) - 1 + size)
        targets[row, :size] = torch.tensor(list(suffix), dtype=torch.long)
        scale[row, :size] = torch.tensor(list(weights[:size]), dtype=torch.float64)
    with torch.inference_mode():
        states = model.hidden_states(tokens, attention)
        wanted = states[torch.arange(len(rows), device=states.device)[:, None], places.to(states.device)]
        logits = model.word_logits(wanted)
        chosen = logits.gather(-1, targets.to(logits.device)[..., None])[..., 0] - logits.logsumexp(-1)
    # an empty suffix has no loss: its weights are zero
    losses: list[float] = (-(chosen.double().cpu() * scale).sum(-1)).tolist()
    return losses
