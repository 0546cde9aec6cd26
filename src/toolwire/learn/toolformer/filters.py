"""Keep the calls whose results make the text after them easier to predict.

The measure is the weighted loss of the tokens after a call, computed for many contexts at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.value import Value
from ..chat_rendering import start_of_text
from ..language_model import LanguageModel
from .corpus import call_span, format_call

# Weighted losses of the tokens after a call, for many contexts at once.
#
# The paper weights token t of the text after the call by w_t = max(0, 1 - 0.2 t) / Σ, so five tokens count. A loss
# needs the output layer at these five positions only. Sequences are sorted by length, so that batches have little
# padding.
#
# Mining asks for the losses of several positions of one text: without a call, and after the same call, because a model
# samples the few numbers of a text again and again. A sequence that begins another one needs no computation of its own,
# since a state depends on the tokens before it only. So the longest sequence is computed, and each loss is read from it.


MAX_LOGITS = 2**28  # numbers of one block of logits: 1 GiB
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
    """Return the weighted loss of each request, in their order. `batch_tokens` limits the padded size of a batch.

    Raise ConfigError if it is not positive.
    """
    if batch_tokens < 1:
        raise ConfigError(f"batch_tokens must be positive, got {batch_tokens}")
    start = start_tokens(model)
    sequences: list[list[int]] = []
    spans: list[_ScoredSpan] = []
    for number, request in enumerate(requests):
        context = [*start, *request.context] or [model.end_token]
        suffix = request.suffix[: len(weights)]
        sequences.append([*context, *suffix])
        spans.append(_ScoredSpan(number, len(context), suffix))
    groups = [(sequences[group[0]], [spans[number] for number in group]) for group in _group_prefixes(sequences)]
    losses = [0.0] * len(requests)
    groups.sort(key=lambda group: (-len(group[0]), group[1][0].request))
    first = 0
    while first < len(groups):
        width = len(groups[first][0])
        batch = groups[first : first + max(1, batch_tokens // width)]
        for number, loss in _losses(model, batch, weights):
            losses[number] = loss
        first += len(batch)
    return losses


class _ScoredSpan(NamedTuple):
    """The tokens of a sequence whose loss a request asks for."""

    request: int
    start: int
    tokens: Sequence[int]


def _group_prefixes(sequences: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the numbers of sequences in groups: the longest one, and others that it begins with.

    In lexicographic order, the sequences that begin with another one come directly after it.
    """
    groups: list[list[int]] = []
    for number in sorted(range(len(sequences)), key=lambda one: (sequences[one], one), reverse=True):
        own = sequences[number]
        if groups and sequences[groups[-1][0]][: len(own)] == own:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def start_tokens(model: LanguageModel) -> list[int]:
    """Return the token that the tokenizer adds before every text, if it adds one."""
    return [int(model.tokenizer.bos_token_id)] if start_of_text(model.tokenizer) else []


def _tokens(model: LanguageModel, text: str | Sequence[int]) -> tuple[int, ...]:
    return tuple(model.encode(text) if isinstance(text, str) else text)


def _losses(
    model: LanguageModel, batch: Sequence[tuple[Sequence[int], Sequence[_ScoredSpan]]], weights: Sequence[float]
) -> list[tuple[int, float]]:
    """Return the requests of one padded batch with their weighted losses; an empty suffix has the loss 0."""
    import torch

    rows = [(row, span) for row, (_, spans) in enumerate(batch) for span in spans]
    places = torch.zeros((len(rows), len(weights)), dtype=torch.long)
    targets = torch.zeros_like(places)
    scale = torch.zeros((len(rows), len(weights)), dtype=torch.float64)
    for number, (_, span) in enumerate(rows):
        size = len(span.tokens)
        places[number, :size] = torch.arange(span.start - 1, span.start - 1 + size)
        targets[number, :size] = torch.tensor(list(span.tokens), dtype=torch.long)
        scale[number, :size] = torch.tensor(list(weights[:size]), dtype=torch.float64)
    tokens, attention = model.pad_batch([sequence for sequence, _ in batch])
    chosen = []
    with torch.inference_mode():
        states = model.hidden_states(tokens, attention)
        wanted = states[torch.tensor([row for row, _ in rows], device=states.device)[:, None], places.to(states.device)]
        size = max(1, MAX_LOGITS // (model.vocabulary_size * len(weights)))
        for block, words in zip(wanted.split(size), targets.to(states.device).split(size), strict=True):
            logits = model.word_logits(block)
            chosen.append(logits.gather(-1, words[..., None])[..., 0] - logits.logsumexp(-1))
    # an empty suffix has no loss: its weights are zero
    losses: list[float] = (-(torch.cat(chosen).double().cpu() * scale).sum(-1)).tolist()
    return [(span.request, loss) for (_, span), loss in zip(rows, losses, strict=True)]


# `paper`: the call is a prefix of the text, because brackets inside a sentence surprise a model that was not tuned.
# Its result must reduce the loss against both no call and the call without its result. `seed`: the call is at its
# place in the text and competes with no call only. `rank`: the score of `seed`, but the share of the best candidates
# is kept instead of those over a threshold. `none`: every executed call is kept.


FilterRule: TypeAlias = Literal["paper", "seed", "rank", "none"]


class CallLosses(Value, frozen=True):
    """The weighted losses of the text after a position, in nats."""

    without_call: float
    with_result: float
    without_result: float | None = None


class ScoredPosition(Value, frozen=True):
    """A position of a text, with the calls (text and result) whose losses are wanted."""

    text: str
    position: int
    calls: tuple[tuple[str, str], ...]


def loss_gain(losses: CallLosses) -> float:
    """Return the loss without the result minus the loss with it: min(L(ε), L(c, ε)) - L(c, r)."""
    before = losses.without_call
    if losses.without_result is not None:
        before = min(before, losses.without_result)
    return before - losses.with_result


def is_kept(losses: CallLosses, tau: float) -> bool:
    """Return True if the result reduces the loss by at least `tau` nats."""
    return loss_gain(losses) >= tau


def rank_threshold(gains: Sequence[float], share: float) -> float:
    """Return the gain that the best `share` of all candidates reach."""
    require_share(share)
    ranked = sorted(gains, reverse=True)
    return ranked[max(1, math.floor(share * len(ranked))) - 1] if ranked else math.inf


def loss_reduction_filter(
    model: LanguageModel,
    passage: str,
    call: str | ToolCall,
    result: str,
    i: int,
    tau: float = 1.0,
    *,
    rule: FilterRule = "paper",
    weights: Sequence[float] = WEIGHTS,
) -> bool:
    """Keep a candidate if its result lowers the weighted loss of `passage[i:]` by at least `tau` nats."""
    text = format_call(call)[1:-1]
    [[losses]] = measure_losses(model, [ScoredPosition(passage, i, ((text, result),))], rule=rule, weights=weights)
    return rule == "none" or is_kept(losses, tau)


def measure_losses(
    model: LanguageModel,
    positions: Sequence[ScoredPosition],
    *,
    rule: FilterRule = "paper",
    weights: Sequence[float] = WEIGHTS,
    batch_tokens: int = 16_384,
) -> list[list[CallLosses]]:
    """Return the losses of every call. The loss without a call is computed once for each position."""
    require_rule(rule)
    requests: list[LossRequest] = []
    for place in positions:
        requests += _requests(model, place, is_prefix=rule == "paper", count=len(weights))
    losses = iter(batch_losses(model, requests, weights=weights, batch_tokens=batch_tokens))
    found = []
    for place in positions:
        alone = next(losses)
        if rule == "paper":
            found.append([CallLosses(alone, next(losses), next(losses)) for _ in place.calls])
        else:
            found.append([CallLosses(alone, next(losses)) for _ in place.calls])
    return found


def require_rule(rule: str) -> None:
    """Raise ConfigError for an unknown filter."""
    if rule not in get_args(FilterRule):
        raise ConfigError(f"unknown filter {rule!r}", hint=f"use one of {', '.join(get_args(FilterRule))}")


def require_share(share: float) -> None:
    """Raise ConfigError for a share of candidates that cannot be kept."""
    if not 0 < share <= 1:
        raise ConfigError(f"the share of kept candidates must be over 0 and at most 1, got {share}")


def _requests(model: LanguageModel, place: ScoredPosition, *, is_prefix: bool, count: int) -> list[LossRequest]:
    """Return the request without a call, then the requests of each call: with its result and, as a prefix, without it.

    Raise ConfigError if the position is outside the text.
    """
    if not 0 <= place.position <= len(place.text):
        raise ConfigError(f"position {place.position} is outside of the text of {len(place.text)} characters")
    before = place.text[: place.position]
    context = tuple(model.encode(before))
    suffix = tuple(model.encode(place.text[place.position :])[:count])
    requests = [LossRequest(context, suffix)]
    encode = _cached_encode(model)
    for call, result in place.calls:
        if is_prefix:
            requests.append(LossRequest((*encode(format_call(call, result) + "\n"), *context), suffix))
            requests.append(LossRequest((*encode(format_call(call) + "\n"), *context), suffix))
        else:
            requests.append(LossRequest((*context, *encode(call_span(before, call, result))), suffix))
    return requests


def _cached_encode(model: LanguageModel) -> Callable[[str], list[int]]:
    """Return an `encode` function that keeps its results, because the same calls and texts recur."""
    known: dict[str, list[int]] = {}

    def encode(text: str) -> list[int]:
        if text not in known:
            known[text] = model.encode(text)
        return known[text]

    return encode
