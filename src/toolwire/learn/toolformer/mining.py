"""Mine calls: propose positions, sample calls, execute them, and keep those that reduce the loss.

The steps of the paper (Schick et al. 2023, section 2), for each tool and a batch of texts:

1. `propose_positions`: the places where the few-shot prompt makes a call likely (τ_s), the k most likely of each text.
2. `sample_batch`: m calls at each place; equal ones are one candidate.
3. `CallExecutor`: the calls run, equal ones once. A call that fails or is malformed stays, with the reason.
4. `score_candidates`: the weighted loss of the text after each place, without the call, with it, and with its result.
5. `decide`: a call is kept if its result reduces the loss by τ_f, and only the best at each place.
6. `build_corpus`: the texts with the kept calls, and the texts without any unchanged.

Steps 1 to 4 use a batch of texts and depend on nothing else: the seed is derived from the tool and the number of the
first text, so an interrupted run continues with equal candidates. Step 5 needs all candidates of a corpus, because the
filter `rank` compares them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.value import Value
from ..language_model import LanguageModel
from .candidates import CallExecutor, propose_positions
from .corpus import AugmentedText, CorpusText, InlineCall, augment_texts
from .filters import (
    CallLosses,
    FilterRule,
    ScoredPosition,
    loss_gain,
    measure_losses,
    rank_threshold,
    require_rule,
    require_share,
)
from .mining_tool import MiningTool
from .sampling import require_temperature, sample_batch

_NO_GAIN = "loss not reduced enough"
_NOT_BEST = "another call at the position is better"


class MiningSettings(Value, frozen=True):
    """The settings of mining. None: the setting of each tool.

    `share` is the part of the candidates that the filter `rank` keeps. `max_length` limits the tokens of a text.
    """

    filter: FilterRule = "paper"
    threshold: float | None = None
    positions: int | None = None
    samples: int | None = None
    call_probability: float | None = None
    temperature: float = 0.8  # below 1: samples differ, but most remain well-formed. Not measured
    share: float = 0.1  # of the candidates of a tool, for the filter `rank`
    seed: int = 0
    # per forward pass, padding included; the model of the experiment fits with it, others were not measured
    batch_tokens: int = 16_384
    max_length: int = 1024  # tokens; each candidate scores the text again, at quadratic cost


class CallCandidate(Value, frozen=True):
    """A sampled call at a position of a text. `reason` is empty for a kept call."""

    text: int
    position: int
    tool: str
    call: str
    probability: float = 0.0
    samples: int = 1
    result: str | None = None
    losses: CallLosses | None = None
    reason: str = ""

    @property
    def gain(self) -> float | None:
        """The reduction of the loss in nats; None if the losses were not measured."""
        return None if self.losses is None else loss_gain(self.losses)


class MinedCall(Value, frozen=True):
    """A kept call of a passage: `call` with `result` belongs before `passage[i:]`."""

    passage: str
    i: int
    call: str
    result: str
    gain: float | None = None


def mine_toolformer_data(
    model: LanguageModel,
    corpus: Sequence[str | CorpusText],
    tool: MiningTool | Sequence[MiningTool],
    k: int | None = None,
    *,
    settings: MiningSettings | None = None,
) -> list[MinedCall]:
    """Return the calls of the texts that reduce the loss of the text after them. `k` is the number of samples."""
    settings = settings or MiningSettings()
    if k is not None:
        settings = msgspec.structs.replace(settings, samples=k)
    tools = [tool] if isinstance(tool, MiningTool) else list(tool)
    texts = [CorpusText(one) if isinstance(one, str) else one for one in corpus]
    decided = decide(mine_texts(model, texts, tools, settings), tools, settings)
    return [
        MinedCall(texts[one.text].text, one.position, one.call, one.result or "", one.gain)
        for one in decided
        if not one.reason
    ]


def mine_texts(
    model: LanguageModel,
    texts: Sequence[CorpusText],
    tools: Sequence[MiningTool],
    settings: MiningSettings,
    *,
    executor: CallExecutor | None = None,
    first: int = 0,
) -> list[CallCandidate]:
    """Return every candidate with its result and its losses. `first` is the number of the first text in the corpus.

    The same texts give the same candidates, whatever was mined before them.
    """
    check_settings(tools, settings)
    if executor is None:
        with CallExecutor(tools) as opened:
            return mine_texts(model, texts, tools, settings, executor=opened, first=first)
    usable = [number for number, one in enumerate(texts) if len(model.encode(one.text)) <= settings.max_length]
    found: list[CallCandidate] = []
    for tool in tools:
        found += _sample_tool(model, texts, usable, tool, settings, first)
    executed = executor.execute([(one.call, texts[one.text].date) for one in found])
    candidates = [
        msgspec.structs.replace(one, result=outcome.result, reason=outcome.reason)
        for one, outcome in zip(found, executed, strict=True)
    ]
    scored = score_candidates(model, [one.text for one in texts], candidates, settings)
    return [msgspec.structs.replace(one, text=first + one.text) for one in scored]


def score_candidates(
    model: LanguageModel, texts: Sequence[str], candidates: Sequence[CallCandidate], settings: MiningSettings
) -> list[CallCandidate]:
    """Return the candidates in their order, those that have a result with their losses.

    Without a filter, no losses are measured.
    """
    if settings.filter == "none":
        return list(candidates)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, candidate in enumerate(candidates):
        if candidate.result is not None:
            groups.setdefault((candidate.text, candidate.position), []).append(number)
    places = [
        ScoredPosition(
            texts[text], position, tuple((candidates[at].call, candidates[at].result or "") for at in numbers)
        )
        for (text, position), numbers in groups.items()
    ]
    measured = measure_losses(model, places, rule=settings.filter, batch_tokens=settings.batch_tokens)
    scored = list(candidates)
    for numbers, losses in zip(groups.values(), measured, strict=True):
        for number, measured_losses in zip(numbers, losses, strict=True):
            scored[number] = msgspec.structs.replace(scored[number], losses=measured_losses)
    return scored


def decide(
    candidates: Sequence[CallCandidate], tools: Sequence[MiningTool], settings: MiningSettings
) -> list[CallCandidate]:
    """Set the reason of each candidate that is not kept. At a position, the call with the largest gain is kept."""
    thresholds = _thresholds(candidates, tools, settings)
    best: dict[tuple[int, int], tuple[float, int]] = {}
    decided = list(candidates)
    for number, candidate in enumerate(candidates):
        if candidate.reason:
            continue
        gain = 0.0 if candidate.gain is None or settings.filter == "none" else candidate.gain
        if settings.filter != "none" and (candidate.losses is None or gain < thresholds[candidate.tool]):
            decided[number] = msgspec.structs.replace(candidate, reason=_NO_GAIN)
            continue
        place = candidate.text, candidate.position
        if place not in best or gain > best[place][0]:
            best[place] = gain, number
    winners = {number for _, number in best.values()}
    for number, candidate in enumerate(decided):
        if not candidate.reason and number not in winners:
            decided[number] = msgspec.structs.replace(candidate, reason=_NOT_BEST)
    return decided


def build_corpus(texts: Sequence[str], decided: Sequence[CallCandidate]) -> list[AugmentedText]:
    """Return the texts with their kept calls, and the other texts unchanged."""
    kept = [(one.text, InlineCall(one.position, one.call, one.result or "")) for one in decided if not one.reason]
    return augment_texts(texts, kept)


def check_settings(tools: Sequence[MiningTool], settings: MiningSettings) -> None:
    """Raise `ConfigError` for settings with which no call can be mined."""
    require_rule(settings.filter)
    names = [tool.name for tool in tools]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"mining needs one or more different tools, got {', '.join(names) or 'none'}")
    for field in ("positions", "samples", "batch_tokens", "max_length"):
        value: Any = getattr(settings, field)
        if value is not None and value < 1:
            raise ConfigError(f"{field} must be positive, got {value}")
    if settings.filter == "rank":
        require_share(settings.share)  # before mining: the share is used after it
    if settings.threshold is not None and not math.isfinite(settings.threshold):
        raise ConfigError(f"threshold must be a number, got {settings.threshold}")
    if settings.call_probability is not None and not 0 <= settings.call_probability <= 1:
        raise ConfigError(f"call_probability must be from 0 to 1, got {settings.call_probability}")
    require_temperature(settings.temperature)


def _sample_tool(
    model: LanguageModel,
    texts: Sequence[CorpusText],
    usable: Sequence[int],
    tool: MiningTool,
    settings: MiningSettings,
    first: int,
) -> list[CallCandidate]:
    """Return the different calls of one tool at its positions in the texts."""
    proposed = propose_positions(
        model,
        [texts[number].text for number in usable],
        tool,
        k=settings.positions,
        call_probability=settings.call_probability,
        batch_tokens=settings.batch_tokens,
    )
    places = [(number, one) for number, found in zip(usable, proposed, strict=True) for one in found]
    sampled = sample_batch(
        model,
        [(texts[number].text, one.position) for number, one in places],
        tool,
        samples=settings.samples or tool.samples,
        temperature=settings.temperature,
        seed=zlib.crc32(f"{settings.seed} {tool.name} {first}".encode()),
        batch_tokens=settings.batch_tokens,
    )
    found = []
    for (number, place), calls in zip(places, sampled, strict=True):
        for call in dict.fromkeys(calls):
            found.append(
                CallCandidate(number, place.position, tool.name, call, place.probability, samples=calls.count(call))
            )
    return found


def _thresholds(
    candidates: Sequence[CallCandidate], tools: Sequence[MiningTool], settings: MiningSettings
) -> dict[str, float]:
    """Return the least gain for each tool; for `rank`, the gain of its best candidates."""
    if settings.filter != "rank":
        return {tool.name: tool.threshold if settings.threshold is None else settings.threshold for tool in tools}
    gains: dict[str, list[float]] = {tool.name: [] for tool in tools}
    for one in candidates:
        if one.losses is not None:
            gains[one.tool].append(loss_gain(one.losses))
    return {name: rank_threshold(values, settings.share) for name, values in gains.items()}
