"""Hidden states of a frozen model at labelled positions of demonstrations, computed once and stored on disk.

A label is a position at which a head learns or is measured.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from ...ir.errors import ConfigError
from ..language_model import LanguageModel
from ..run_folder import write_atomically
from .demonstrations import Demonstration

NO_TOOL = -1  # tools are numbered from 0
MAX_TOKENS = 4096  # of one demonstration; attention is quadratic, and the states of all tokens are held at once


class LabelledTokens(NamedTuple):
    """Tokens of a demonstration. The hidden state of `tokens[positions[i]]` should select `labels[i]` next.

    A label is the number of a tool, or NO_TOOL: then the next token is `targets[i]`. Where a toolken is right, the target
    is NO_TOOL.
    """

    tokens: list[int]
    positions: list[int]
    labels: list[int]
    targets: list[int]


def tool_names(demonstrations: Sequence[Demonstration]) -> list[str]:
    """Return the names of the called tools, sorted."""
    return sorted({call.tool for one in demonstrations for call in one.calls})


def label_demonstrations(
    model: LanguageModel,
    demonstrations: Sequence[Demonstration],
    tools: Sequence[str],
    *,
    negatives: int | None = None,
    seed: int = 0,
) -> list[LabelledTokens]:
    """Return the labelled tokens of demonstrations. `negatives` limits the negatives per demonstration, by sampling.

    Raise ConfigError if a demonstration has no tokens or more than MAX_TOKENS.
    """
    numbers = {name: number for number, name in enumerate(tools)}
    texts = [demonstration.text for demonstration in demonstrations]
    if not texts:
        return []
    encoded = model.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    found = []
    for row, demonstration in enumerate(demonstrations):
        tokens, ends = encoded["input_ids"][row], [end for _, end in encoded["offset_mapping"][row]]
        if not 0 < len(tokens) <= MAX_TOKENS:
            raise ConfigError(
                f"demonstration {row + 1} has {len(tokens)} tokens", hint=f"use texts of 1 to {MAX_TOKENS} tokens"
            )
        labels = {position: numbers[tool] for position, tool in _calls(demonstration, ends, numbers, row)}
        excluded = set(_excluded(demonstration, ends)) | set(labels)
        words = [position for position in range(len(tokens) - 1) if position not in excluded]
        if negatives is not None and len(words) > negatives:
            words = sorted(random.Random(f"{seed}/{row}").sample(words, negatives))
        positions = sorted([*labels, *words])
        found.append(
            LabelledTokens(
                tokens,
                positions,
                [labels.get(position, NO_TOOL) for position in positions],
                [NO_TOOL if position in labels else tokens[position + 1] for position in positions],
            )
        )
    return found


def _calls(marked: Demonstration, ends: list[int], numbers: dict[str, int], row: int) -> Iterator[tuple[int, str]]:
    """Yield the position before the first token of each result, and the tool.

    Raises `ConfigError` for a tool without a number (the head lacks it), and for a call at the start of the text.
    """
    for call in marked.calls:
        if call.tool not in numbers:
            raise ConfigError(
                f"demonstration {row + 1} calls {call.tool!r}, which the head does not have",
                hint="add the tool to the head",
            )
        first = _first_token(ends, call.start)
        if first == 0:
            raise ConfigError(f"demonstration {row + 1} begins with a call", hint="write a text before the call")
        yield first - 1, call.tool


def _excluded(one: Demonstration, ends: list[int]) -> Iterator[int]:
    """Yield the positions before tokens that are context, ignored, or the rest of a result."""
    yield from range(max(_first_token(ends, one.begin) - 1, 0) if one.begin else 0)
    ranges = [(call.start, call.end) for call in one.calls]
    for start, end in (*ranges, *one.ignored):
        if end > start:
            yield from range(max(_first_token(ends, start) - 1, 0), _first_token(ends, end - 1))


def _first_token(ends: list[int], character: int) -> int:
    """Return the number of the first token that contains `character`, or the number of tokens at the end of the text."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > character:
            high = middle
        else:
            low = middle + 1
    return low


# Hidden states of a frozen model at labelled positions, computed once and stored on disk.
#
# The logits of the vocabulary of a frozen model are constants. Training needs only their logsumexp, and the decision
# to call needs their maximum, so that both are stored beside a hidden state and the vocabulary is never read again.


_BATCH_TOKENS = 8192  # padded tokens of a forward pass
_PART_ROWS = 8192  # hidden states of a file
_LOGIT_ROWS = 512  # rows whose vocabulary logits are in memory at one time


class StateTable(NamedTuple):
    """Hidden states (n, d) with their labels. `total`: logsumexp of the vocabulary logits; `best`: their maximum; `target`:
    the logit of the next token where no tool is right, else 0. All are float32, on the CPU.
    """

    states: torch.Tensor
    total: torch.Tensor
    best: torch.Tensor
    target: torch.Tensor
    labels: torch.Tensor

    def select(self, rows: torch.Tensor) -> StateTable:
        """Return the given rows: a mask or their numbers."""
        return StateTable(*(column[rows] for column in self))

    def to(self, device: Any) -> StateTable:
        """Return the table on another device."""
        return StateTable(*(column.to(device) for column in self))


def compute_states(
    model: LanguageModel,
    labelled: Sequence[LabelledTokens],
    *,
    cache: str | Path | None = None,
    dtype: str = "float32",
    batch_tokens: int = _BATCH_TOKENS,
    model_hash: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> StateTable:
    """Return the hidden states at all positions of `labelled`, in its order.

    `cache` is a folder. States are stored there in parts, under a key of the model's weights, the tokens and the
    positions; parts that exist are read. States are stored as `dtype`: float32 or float16. `model_hash` is the
    result of `hash_model`, if it is known already. Raise ConfigError for another `dtype`, and for a model in training
    mode.
    """
    if dtype not in ("float16", "float32"):
        raise ConfigError(f"dtype must be float16 or float32, got {dtype!r}")
    if model.network.training:
        raise ConfigError(
            "the model is in training mode", hint="call network.eval(): only states of a frozen model are reused"
        )
    folder = None if cache is None else Path(cache) / _key(model_hash or hash_model(model), model, labelled, dtype)
    order = sorted(range(len(labelled)), key=lambda row: -len(labelled[row].tokens))
    starts = np.cumsum([0, *(len(one.positions) for one in labelled)])
    width = int(model.network.get_output_embeddings().weight.shape[1])
    states = np.zeros((int(starts[-1]), width), np.float32)
    words = np.zeros((int(starts[-1]), 3), np.float32)
    done = 0
    for number, part in enumerate(_parts(order, labelled)):
        found_states, found_words = _read_or_compute(model, labelled, part, folder, number, dtype, batch_tokens)
        rows = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in part])
        states[rows], words[rows] = found_states, found_words
        done += len(part)
        if progress is not None:
            progress(done, len(order))
    labels = [label for one in labelled for label in one.labels]
    total, best, target = (torch.from_numpy(words[:, column].copy()) for column in range(3))
    return StateTable(torch.from_numpy(states), total, best, target, torch.tensor(labels, dtype=torch.long))


def _key(model_hash: str, model: LanguageModel, labelled: Sequence[LabelledTokens], dtype: str) -> str:
    digest = hashlib.sha256(f"{model_hash} {model.network.dtype} {dtype} {_PART_ROWS}".encode())
    for one in labelled:
        for numbers in (one.tokens, one.positions, one.targets):
            digest.update(np.asarray([len(numbers), *numbers], np.int64).tobytes())
    return f"states-{digest.hexdigest()[:32]}"


def _parts(order: Sequence[int], labelled: Sequence[LabelledTokens]) -> Iterator[list[int]]:
    """Split sequences into the parts that are stored in one file each."""
    part: list[int] = []
    rows = 0
    for row in order:
        part.append(row)
        rows += len(labelled[row].positions)
        if rows >= _PART_ROWS or len(part) >= _PART_ROWS:
            yield part
            part, rows = [], 0
    if part:
        yield part


def _read_or_compute(
    model: LanguageModel,
    labelled: Sequence[LabelledTokens],
    part: Sequence[int],
    folder: Path | None,
    number: int,
    dtype: str,
    batch_tokens: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a part's hidden states and vocabulary scores from the cache file, or compute and store them.

    States are rounded to `dtype` in both cases, so that a resumed run gets the same values.
    """
    file = None if folder is None else folder / f"part-{number:05}.safetensors"
    if file is not None and file.is_file():
        stored = load_file(file)
        return stored["states"].astype(np.float32), stored["words"]
    states, words = _compute_part(model, labelled, part, batch_tokens)
    rounded = states.astype(dtype)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, save({"states": rounded, "words": words}))
    return rounded.astype(np.float32), words


def _compute_part(
    model: LanguageModel, labelled: Sequence[LabelledTokens], part: Sequence[int], batch_tokens: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compute hidden states and vocabulary scores in batches; both are empty if no text has a position."""
    states, words = [], []
    for batch in _batches(part, labelled, batch_tokens):
        with torch.no_grad():
            found = _compute_batch(model, [labelled[row] for row in batch])
        if found is not None:
            states.append(found[0])
            words.append(found[1])
    if not states:
        width = int(model.network.get_output_embeddings().weight.shape[1])
        return np.zeros((0, width), np.float32), np.zeros((0, 3), np.float32)
    return np.concatenate(states), np.concatenate(words)


def _compute_batch(
    model: LanguageModel, batch: Sequence[LabelledTokens]
) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Return the states and columns of the positions of a batch; None if it has no positions."""
    tokens, attention = model.pad_batch([one.tokens for one in batch])
    at = [(place, position) for place, one in enumerate(batch) for position in one.positions]
    if not at:
        return None
    hidden = model.hidden_states(tokens, attention)
    places, positions = torch.tensor(at, device=hidden.device).T
    chosen = hidden[places, positions]
    targets = torch.tensor([target for one in batch for target in one.targets], device=hidden.device)
    return chosen.float().cpu().numpy(), _word_columns(model, chosen, targets)


def _word_columns(model: LanguageModel, states: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
    """Return logsumexp, maximum and the target's value of the vocabulary logits."""
    found = []
    for start in range(0, len(states), _LOGIT_ROWS):
        logits = model.word_logits(states[start : start + _LOGIT_ROWS])
        target = targets[start : start + _LOGIT_ROWS]
        value = logits.gather(1, target.clamp(min=0)[:, None])[:, 0].where(target >= 0, 0.0)
        found.append(torch.stack([logits.logsumexp(1), logits.amax(1), value], 1).cpu().numpy())
    return np.concatenate(found)


def _batches(part: Sequence[int], labelled: Sequence[LabelledTokens], batch_tokens: int) -> Iterator[list[int]]:
    """Split sequences of decreasing length into batches of at most `batch_tokens` padded tokens."""
    batch: list[int] = []
    for row in part:
        if batch and (len(batch) + 1) * len(labelled[batch[0]].tokens) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def hash_model(model: LanguageModel) -> str:
    """Return the SHA-256 of a model's weights, as float32, and of its vocabulary.

    A model of bfloat16 weights has the same hash in float32, because the conversion is exact.
    """
    digest = hashlib.sha256()
    state = model.network.state_dict()
    for name in sorted(state):
        tensor = state[name].detach()
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        digest.update(np.ascontiguousarray(tensor.float().cpu().numpy()).data)
    for token, number in sorted(model.tokenizer.get_vocab().items(), key=lambda item: item[1]):
        digest.update(f"{number} {token}\n".encode())
    return digest.hexdigest()
