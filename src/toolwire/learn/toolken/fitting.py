"""From demonstrations to a head: collect hidden states, train, calibrate, measure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from ...ir.errors import ConfigError
from ...ir.tools import Tool
from ...ir.value import Value
from ..language_model import LanguageModel
from ..run_folder import RunFolder
from .demonstrations import Demonstration
from .head import ArgumentExample, ToolkenHead, describe_tools
from .states import StateTable, compute_states, hash_model, label_demonstrations, tool_names
from .training import ToolkenScore, ToolkenSettings, calibrate_bias, measure_toolkens, train_toolkens

_ARGUMENT_EXAMPLES = 4  # per tool, stored with the head

FittingProgress = Callable[[int, int], None]


class ToolkenFit(Value, frozen=True):
    """A trained head with the mean loss of each epoch, and its score on the development set."""

    head: ToolkenHead
    losses: tuple[float, ...]
    score: ToolkenScore


def split_demonstrations(
    demonstrations: Sequence[Demonstration], share: float = 0.1, *, seed: int = 0
) -> tuple[list[Demonstration], list[Demonstration]]:
    """Split demonstrations at random into a training and a development set; equal texts are on the same side.

    Raises `ConfigError` for a share outside of 0 to 1, and if no text is left for training.
    """
    if not 0 < share < 1:
        raise ConfigError(f"the share of the development set must be between 0 and 1, got {share}")
    texts = sorted({item.text for item in demonstrations})
    random.Random(seed).shuffle(texts)
    held = set(texts[: max(1, round(share * len(texts)))])
    train = [item for item in demonstrations if item.text not in held]
    if not train:
        raise ConfigError("there is only one text", hint="pass more demonstrations, or a development set of its own")
    return train, [item for item in demonstrations if item.text in held]


def collect_states(
    model: LanguageModel,
    demonstrations: Sequence[Demonstration],
    tools: Sequence[str],
    *,
    negatives: int | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: FittingProgress | None = None,
) -> StateTable:
    """Return the hidden states at the calls and negatives of demonstrations, for a head with these tools."""
    labelled = label_demonstrations(model, demonstrations, tools, negatives=negatives, seed=seed)
    return compute_states(model, labelled, cache=cache, progress=progress)


class FitOptions(TypedDict, total=False):
    """Options of a fit. `tools` gives the schemas, which calls need later. `negatives`: positions without a call per text."""

    tools: Sequence[Tool]
    settings: ToolkenSettings
    bias: float | None
    negatives: int | None
    cache: str | Path | None
    run: RunFolder | None
    progress: FittingProgress | None


def fit_toolkens(
    model: LanguageModel,
    train: Sequence[Demonstration],
    dev: Sequence[Demonstration],
    **options: Unpack[FitOptions],
) -> ToolkenFit:
    """Train a head with a toolken for each tool that `train` calls. Without `bias`, it is calibrated on `dev`.

    Raise ConfigError if it calls none.
    """
    names = tool_names(train)
    if not names:
        raise ConfigError("no demonstration has a call", hint="mark calls in the texts")
    described = describe_tools(names, options.get("tools", ()), _argument_examples(train))
    width = int(model.network.get_output_embeddings().weight.shape[1])
    head = ToolkenHead(width, described, model_hash=hash_model(model))
    head.model_name = model.name
    return _fit(model, head, None, train, dev, options)


def add_toolkens(
    model: LanguageModel,
    head: ToolkenHead,
    train: Sequence[Demonstration],
    dev: Sequence[Demonstration],
    **options: Unpack[FitOptions],
) -> ToolkenFit:
    """Train rows for the tools of `train` that `head` does not have; its rows stay equal bit by bit.

    Demonstrations of known tools in `train` are negatives for the new rows. Without `bias`, the head keeps its own.
    Raises `ConfigError` without a new tool, and for another model.
    """
    head.require_model(model)
    names = [name for name in tool_names(train) if name not in head.names]
    if not names:
        raise ConfigError("the demonstrations have no new tool", hint=f"the head has {', '.join(head.names[:10])}")
    larger = head.extend(describe_tools(names, options.get("tools", ()), _argument_examples(train)))
    rows = range(len(head.tools), len(larger.tools))
    if options.get("bias") is None:
        options["bias"] = head.bias
    return _fit(model, larger, rows, train, dev, options)


def _fit(
    model: LanguageModel,
    head: ToolkenHead,
    rows: Sequence[int] | None,
    train: Sequence[Demonstration],
    dev: Sequence[Demonstration],
    options: FitOptions,
) -> ToolkenFit:
    """Train the head (only `rows` of its weights, if given), set its bias, and measure it on `dev`.

    The bias is calibrated on `dev` unless `options` has one. Progress counts both sets together.
    """
    total = len(train) + len(dev)
    settings, bias = options.get("settings", ToolkenSettings()), options.get("bias")
    cache, progress = options.get("cache"), options.get("progress")
    table = collect_states(
        model,
        train,
        head.names,
        negatives=options.get("negatives"),
        seed=settings.seed,
        cache=cache,
        progress=None if progress is None else lambda done, _: progress(done, total),
    )
    held = collect_states(
        model,
        dev,
        head.names,
        cache=cache,
        progress=None if progress is None else lambda done, _: progress(len(train) + done, total),
    )
    losses = train_toolkens(head, table, settings, rows=rows, run=options.get("run"))
    if bias is None:
        calibrate_bias(head, held)
    else:
        head.bias = bias
    return ToolkenFit(head, tuple(losses), measure_toolkens(head, held))


def _argument_examples(demonstrations: Sequence[Demonstration]) -> dict[str, list[ArgumentExample]]:
    """Return the first calls of each tool with known and different arguments."""
    found: dict[str, list[ArgumentExample]] = {}
    for demonstration in demonstrations:
        for call in demonstration.calls:
            examples = found.setdefault(call.tool, [])
            if call.arguments is not None and len(examples) < _ARGUMENT_EXAMPLES:
                if all(example.arguments != call.arguments for example in examples):
                    examples.append(ArgumentExample(demonstration.text[: call.start], call.arguments))
    return found
