"""The tokens of demonstrations, and the positions at which a head learns or is measured."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...ir.errors import ConfigError
from ..language_model import LanguageModel
from .demonstrations import Demonstration

__all__ = ["NO_TOOL", "LabelledTokens", "label_demonstrations", "tool_names"]

NO_TOOL = -1
MAX_TOKENS = 4096


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
    """Return the labelled tokens of demonstrations. `negatives` limits the negatives per demonstration, by sampling."""
    numbers = {name: number for number, name in enumerate(tools)}
    texts = [one.text for one in demonstrations]
    if not texts:
        return []
    encoded = model.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    found = []
    for row, one in enumerate(demonstrations):
        tokens, ends = encoded["input_ids"][row], [end for _, end in encoded["offset_mapping"][row]]
        if not 0 < len(tokens) <= MAX_TOKENS:
            raise ConfigError(
                f"demonstration {row + 1} has {len(tokens)} tokens", hint=f"use texts of 1 to {MAX_TOKENS} tokens"
            )
        labels = {position: numbers[tool] for position, tool in _calls(one, ends, numbers, row)}
        excluded = set(_excluded(one, ends)) | set(labels)
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


def _calls(one: Demonstration, ends: list[int], numbers: dict[str, int], row: int) -> Iterator[tuple[int, str]]:
    """Yield the position before the first token of each result, and the tool."""
    for call in one.calls:
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
