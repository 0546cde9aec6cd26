"""Train a model on rows of tokens: AdamW, warm-up and cosine decay, clipped gradients, checkpoints.

    report = train(model, rows, TrainSettings(epochs=3), RunFolder.create("runs/tuned", {...}))

Equal rows, settings and seeds give equal weights, also if the run was interrupted and resumed: the loop draws no random
numbers, and the order of the batches depends on the seed and the epoch only.

Low-rank adapters (LoRA) of peft are trained on the linear layers, and merged into the weights.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from math import cos, isfinite, pi
from pathlib import Path
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from ..ir.errors import ConfigError
from ..ir.value import Value
from .chat_rendering import IGNORED, TrainingRow
from .language_model import LanguageModel
from .run_folder import RunFolder, require_installed, write_atomically

if TYPE_CHECKING:
    import torch


def add_adapter(model: LanguageModel, rank: int, *, seed: int = 0) -> Any:
    """Freeze the model, add an adapter to all its linear layers except the output, and return peft's model.

    The layers are replaced in place, so `model` computes with the adapter from now on. At first the adapter changes
    nothing. Its scale is 2, as is usual for alpha = 2 * rank. Raises `ConfigError` for a rank below 1.
    """
    require_installed("an adapter", "torch", "peft")
    import torch
    from peft import LoraConfig, get_peft_model

    if rank < 1:
        raise ConfigError(f"the rank of an adapter must be positive, got {rank}")
    torch.manual_seed(seed)
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with warnings.catch_warnings():
        # peft reads an attribute that newer versions of transformers call by another name
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        return get_peft_model(model.network, config)


def merge_adapter(model: LanguageModel, adapter: Any) -> None:
    """Add the adapter to the weights of `model` and remove its layers."""
    model.network = adapter.merge_and_unload()
    model.network.eval()


def save_model(model: LanguageModel, folder: Path) -> None:
    """Write the model and its tokenizer into a folder, and set the type of its weights in its configuration.

    The weights are written in float16, which GGUF files have as well; in float32 if one of them does not fit into it.
    An output layer that is tied to the embeddings is left out.
    """
    import torch

    weights = model.network.state_dict()
    limit = torch.finfo(torch.float16).max
    fits = all(float(one.detach().abs().max()) <= limit for one in weights.values() if one.numel())
    dtype = torch.float16 if fits else torch.float32
    state = {name: one.detach().to(dtype).contiguous() for name, one in weights.items()}
    if model.network.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    model.network.config.dtype = dtype
    model.network.save_pretrained(folder, state_dict=state)
    model.tokenizer.save_pretrained(folder)


LOSS_LOG = "loss.jsonl"
_CHECKPOINT = "checkpoint.pt"


class TrainSettings(Value, frozen=True):
    """The settings of a training run. `batch_tokens` bounds the tokens of a step, padding included."""

    epochs: int = 3  # with rate 1e-3 as in docs/experiments/fine-tuning.md
    learning_rate: float = 1e-3  # for an adapter; `toolwire learn train --full` uses 5e-5
    batch_tokens: int = 4096  # the experiment's SmolLM2-135M trains with it; larger models may need fewer. Not measured
    warmup: float = 0.1
    """The share of steps in which the learning rate rises from 0."""
    final_rate: float = 0.1
    """The learning rate of the last step, as a share of the highest one."""
    weight_decay: float = 0.0
    max_norm: float = 1.0  # of the gradient; the customary value, so that a rare example does not undo the others
    seed: int = 0
    # the work that an interruption may cost, against the time of writing weights and optimiser state
    checkpoint_seconds: float = 60.0


class TrainStep(Value, frozen=True):
    """One step: its mean loss in nats per trained token. `held_out` is measured after the last step of an epoch."""

    step: int
    steps: int
    epoch: int
    loss: float
    rate: float
    tokens: int
    held_out: float | None = None


class TrainReport(Value, frozen=True):
    """The result of `train`. It is not `finished` if the time was over; call `train` again to continue."""

    finished: bool
    steps: int
    done: int
    log: tuple[TrainStep, ...]


def train(
    model: LanguageModel,
    rows: Sequence[TrainingRow],
    settings: TrainSettings,
    folder: RunFolder,
    *,
    held_out: Sequence[TrainingRow] = (),
    minutes: float | None = None,
    on_step: Callable[[TrainStep], None] | None = None,
) -> TrainReport:
    """Train the weights of `model` that require gradients, and continue from the folder's checkpoint if there is one.

    `minutes` limits this call: it then writes a checkpoint and returns. Raises `ConfigError` without such weights, for
    rows without a trained token, for a checkpoint of another model, and if training diverges.
    """
    plan = _make_plan(rows, settings)
    weights = {name: one for name, one in model.network.named_parameters() if one.requires_grad}
    if not weights:
        raise ConfigError("no weight of this model can be trained", hint="add an adapter, or unfreeze the weights")
    optimizer = _make_optimizer(weights, settings)
    done = _load_checkpoint(folder, weights, optimizer)
    log = _cut_log(folder, done)
    began = saved = monotonic()
    pending: list[TrainStep] = []
    model.network.train()
    while done < len(plan) and (minutes is None or monotonic() - began < 60 * minutes):
        epoch, batch = plan[done]
        rate = _rate(done, len(plan), settings)
        loss, tokens = _take_step(model, [rows[index] for index in batch], optimizer, rate, settings.max_norm)
        done += 1
        is_epoch_end = done == len(plan) or plan[done][0] != epoch
        measured = mean_loss(model, held_out, settings.batch_tokens) if is_epoch_end and held_out else None
        step = TrainStep(done, len(plan), epoch, loss, rate, tokens, measured)
        pending.append(step)
        if on_step is not None:
            on_step(step)
        if monotonic() - saved > settings.checkpoint_seconds:
            _save(folder, weights, optimizer, done, pending)
            log, pending, saved = [*log, *pending], [], monotonic()
    model.network.eval()
    _save(folder, weights, optimizer, done, pending)
    return TrainReport(done == len(plan), len(plan), done, (*log, *pending))


def mean_loss(model: LanguageModel, rows: Sequence[TrainingRow], batch_tokens: int = 4096) -> float:
    """Return the mean loss of the trained tokens of `rows`, in nats per token; 0 without tokens.

    The model is in evaluation mode meanwhile.
    """
    import torch

    was_training = model.network.training
    model.network.eval()
    total, count = 0.0, 0
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].tokens))
    with torch.inference_mode():
        for batch in _cut_batches(order, rows, batch_tokens):
            found, tokens = _summed_loss(model, [rows[index] for index in batch])
            total, count = total + float(found), count + tokens
    model.network.train(was_training)
    return total / max(count, 1)


def plan_batches(rows: Sequence[TrainingRow], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the batches of an epoch, as indices of rows: rows of similar length together, in random order."""
    draw = Random(f"{seed}/{epoch}")
    order = list(range(len(rows)))
    draw.shuffle(order)
    order.sort(key=lambda index: len(rows[index].tokens))  # stable: rows of equal length stay shuffled
    batches = list(_cut_batches(order, rows, batch_tokens))
    draw.shuffle(batches)
    return batches


def _cut_batches(order: Sequence[int], rows: Sequence[TrainingRow], batch_tokens: int) -> Iterator[list[int]]:
    """Cut rows in ascending order of length into batches of at most `batch_tokens`; a longer row is a batch of its own."""
    batch: list[int] = []
    for index in order:
        if batch and len(rows[index].tokens) * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _make_plan(rows: Sequence[TrainingRow], settings: TrainSettings) -> list[tuple[int, list[int]]]:
    """Return the batches of all epochs, each with its epoch.

    Raises `ConfigError` without rows, for a row without a trained token, and for settings that are not positive.
    """
    if not rows:
        raise ConfigError("there is nothing to train on", hint="give at least one example with an answer")
    for number, row in enumerate(rows):
        if not row.trained_count:
            raise ConfigError(f"row {number} has no trained token", hint="leave out rows whose answers have weight 0")
    if settings.epochs < 1 or settings.batch_tokens < 1 or settings.learning_rate <= 0:
        raise ConfigError("epochs, batch_tokens and learning_rate must be positive")
    return [
        (epoch, batch)
        for epoch in range(settings.epochs)
        for batch in plan_batches(rows, settings.batch_tokens, settings.seed, epoch)
    ]


def _make_optimizer(weights: dict[str, Any], settings: TrainSettings) -> Any:
    import torch

    return torch.optim.AdamW(weights.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay)


def _rate(step: int, steps: int, settings: TrainSettings) -> float:
    """Return the learning rate: a linear rise, then half a cosine down to the final rate."""
    warm = max(1, round(settings.warmup * steps))
    if step < warm:
        return settings.learning_rate * (step + 1) / warm
    share = (step - warm) / max(1, steps - warm)
    return settings.learning_rate * (settings.final_rate + (1 - settings.final_rate) * (1 + cos(pi * share)) / 2)


def _take_step(
    model: LanguageModel, batch: Sequence[TrainingRow], optimizer: Any, rate: float, max_norm: float
) -> tuple[float, int]:
    """Make one step with clipped gradients, and return the mean loss and the number of trained tokens.

    Raises `ConfigError` if the loss is not finite.
    """
    import torch

    total, count = _summed_loss(model, batch)
    loss = total / count
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for group in optimizer.param_groups:
        torch.nn.utils.clip_grad_norm_(group["params"], max_norm)
        group["lr"] = rate
    value = float(loss.detach())
    if not isfinite(value):
        raise ConfigError(f"the loss is {value}: training diverged", hint="use a lower learning rate in a new folder")
    optimizer.step()
    return value, count


def _summed_loss(model: LanguageModel, batch: Sequence[TrainingRow]) -> tuple[torch.Tensor, int]:
    """Return the summed loss of the trained tokens and their number. Logits are computed for these tokens only."""
    import torch

    tokens, attention = model.pad_batch([row.tokens for row in batch])
    labels = torch.full(tokens.shape, IGNORED, dtype=torch.long)
    for number, row in enumerate(batch):
        labels[number, : len(row.labels)] = torch.tensor(row.labels, dtype=torch.long)
    labels = labels[:, 1:].to(tokens.device)
    chosen = labels != IGNORED
    half = torch.autocast("cuda", torch.bfloat16, enabled=tokens.device.type == "cuda")
    with half:
        states = model.hidden_states(tokens, attention)[:, :-1][chosen]
        logits = model.word_logits(states)
    loss = torch.nn.functional.cross_entropy(logits.float(), labels[chosen], reduction="sum")
    return loss, int(chosen.sum())


def _save(folder: RunFolder, weights: dict[str, Any], optimizer: Any, done: int, pending: Sequence[TrainStep]) -> None:
    """Write the log first: rows after the step of the checkpoint are cut when a run continues."""
    import torch

    folder.append(LOSS_LOG, pending)
    buffer = io.BytesIO()
    state = {name: one.detach() for name, one in weights.items()}
    torch.save({"step": done, "weights": state, "optimizer": optimizer.state_dict()}, buffer)
    write_atomically(folder.path / _CHECKPOINT, buffer.getvalue())


def _load_checkpoint(folder: RunFolder, weights: dict[str, Any], optimizer: Any) -> int:
    """Restore weights and optimizer, and return the number of steps that are done; 0 without a checkpoint.

    Raises `ConfigError` for a checkpoint of other weights.
    """
    import torch

    if not folder.has(_CHECKPOINT):
        return 0
    found = torch.load(folder.path / _CHECKPOINT, map_location="cpu", weights_only=True)
    if found["weights"].keys() != weights.keys():
        raise ConfigError(f"{folder.path} has a checkpoint of another model or adapter", hint="choose another folder")
    with torch.no_grad():
        for name, one in weights.items():
            one.copy_(found["weights"][name])
    optimizer.load_state_dict(found["optimizer"])
    return int(found["step"])


def _cut_log(folder: RunFolder, done: int) -> list[TrainStep]:
    """Remove the steps after the checkpoint from the log, because they are made again."""
    log = [msgspec.convert(row, TrainStep) for row in folder.rows(LOSS_LOG)]
    kept = [step for step in log if step.step <= done]
    if len(kept) < len(log):
        write_atomically(folder.path / LOSS_LOG, b"".join(msgspec.json.encode(step) + b"\n" for step in kept))
    return kept
