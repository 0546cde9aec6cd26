"""Sample calls at positions of texts. A mask admits only inputs that fit the pattern of the tool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError
from ..generation import generate_tokens
from ..language_model import LanguageModel
from .losses import start_tokens
from .mining_tool import MiningTool, calculator_tool

if TYPE_CHECKING:
    from ...mask import RegexMask

__all__ = ["call_mask", "require_temperature", "sample_batch", "sample_calls"]

_MASK_TOKENIZERS: dict[int, tuple[Any, Any]] = {}  # by the id of a tokenizer, which the entry keeps alive


def sample_calls(
    model: LanguageModel,
    passage: str,
    i: int,
    n: int = 5,
    *,
    tool: MiningTool | None = None,
    temperature: float = 0.8,
    seed: int = 0,
) -> list[str]:
    """Return up to `n` different calls that the model writes before `passage[i:]`, such as `Calculator(8 - 2)`."""
    [calls] = sample_batch(
        model, [(passage, i)], tool or calculator_tool(), samples=n, temperature=temperature, seed=seed
    )
    return list(dict.fromkeys(calls))


def sample_batch(
    model: LanguageModel,
    places: Sequence[tuple[str, int]],
    tool: MiningTool,
    *,
    samples: int,
    temperature: float = 0.8,
    seed: int = 0,
    batch_tokens: int = 16_384,
    mask: RegexMask | None = None,
) -> list[list[str]]:
    """Return the sampled calls of each place (a text and a position), repetitions included, sorted into batches.

    A sample that did not finish within the tool's `max_tokens` is left out.
    """
    if samples < 1:
        raise ConfigError(f"the number of samples must be positive, got {samples}")
    require_temperature(temperature)
    if not tool.pattern:  # a tool without input has one call
        return [[f"{tool.name}()"] for _ in places]
    from ...mask import MaskProcessor

    mask = mask or call_mask(model, tool)
    prompts = [_prompt_tokens(model, text, position, tool) for text, position in places]
    order = sorted(range(len(places)), key=lambda number: (-len(prompts[number]), number))
    found: list[list[str]] = [[] for _ in places]
    first = 0
    while first < len(order):
        width = len(prompts[order[first]]) + tool.max_tokens
        rows = order[first : first + max(1, batch_tokens // (width * samples))]
        # no limit of tokens: unfinished calls are left out, which costs less than to force their end
        states = [mask.start() for _ in range(len(rows) * samples)]
        processor = MaskProcessor(states, len(prompts[order[first]]))
        generated = generate_tokens(
            model,
            [prompts[row] for row in rows],
            max_tokens=tool.max_tokens,
            temperature=temperature,
            samples=samples,
            seed=seed + first,
            processors=[processor],
        )
        for row, sampled in zip(rows, generated, strict=True):
            texts = [model.decode(tokens) for tokens in sampled]
            found[row] = [f"{tool.name}({text}" for text in texts if text.endswith(")")]
        first += len(rows)
    return found


def require_temperature(temperature: float) -> None:
    """Raise ConfigError for a temperature with which the samples of a position would all be equal, or undefined."""
    if not 0 < temperature < math.inf:
        raise ConfigError(f"temperature must be positive, got {temperature}", hint="use a value such as 0.8")


def call_mask(model: LanguageModel, tool: MiningTool) -> RegexMask:
    """Return the mask for the input of a call and its closing parenthesis."""
    from ...mask import MaskTokenizer, RegexMask

    known = _MASK_TOKENIZERS.get(id(model.tokenizer))
    if known is None or known[0] is not model.tokenizer:
        _MASK_TOKENIZERS.clear()
        known = (model.tokenizer, MaskTokenizer.from_tokenizer(model.tokenizer, model.vocabulary_size))
        _MASK_TOKENIZERS[id(model.tokenizer)] = known
    return RegexMask(rf"({tool.pattern})\)", known[1])


def _prompt_tokens(model: LanguageModel, text: str, position: int, tool: MiningTool) -> list[int]:
    before = text[:position]
    space = "" if not before or before[-1].isspace() else " "
    return [*start_tokens(model), *model.encode(f"{tool.prompt(text)} {before}{space}[{tool.name}(")]
