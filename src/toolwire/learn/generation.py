"""Generate tokens for a batch of prompts, greedily or sampled, with processors such as masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .language_model import LanguageModel

__all__ = ["generate_tokens"]


def generate_tokens(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    temperature: float = 0.0,
    samples: int = 1,
    seed: int = 0,
    processors: Sequence[Any] = (),
    stop_tokens: Sequence[int] = (),
) -> list[list[list[int]]]:
    """Return the new tokens of each prompt's `samples` continuations, without the token that ended them.

    Prompts are padded on the left. `processors` are `LogitsProcessor`s of transformers; they see rows in the order
    of the prompts, `samples` rows each. A continuation ends with the model's end token or one of `stop_tokens`.
    Settings in the `generation_config.json` of the model, such as a penalty for repetition, are not used.
    """
    import torch
    from transformers import GenerationConfig, LogitsProcessorList

    if not prompts:
        return []
    width = max(map(len, prompts))
    tokens = torch.full((len(prompts), width), model.end_token, dtype=torch.long)
    attention = torch.zeros_like(tokens)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.tensor(list(prompt), dtype=torch.long)
        attention[row, width - len(prompt) :] = 1
    ends = sorted({model.end_token, *stop_tokens})
    sampling = (
        {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        if temperature
        else {"do_sample": False}
    )
    settings = GenerationConfig(
        max_new_tokens=max_tokens, num_return_sequences=samples, eos_token_id=ends, pad_token_id=ends[0], **sampling
    )
    torch.manual_seed(seed)
    own = model.network.generation_config
    model.network.generation_config = GenerationConfig()  # `generate` takes every setting that is not given from it
    try:
        with torch.inference_mode():
            found = model.network.generate(
                tokens.to(model.device),
                attention_mask=attention.to(model.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList(processors),
            )
    finally:
        model.network.generation_config = own
    rows = [_until_end(row, ends) for row in found[:, width:].tolist()]
    return [rows[start : start + samples] for start in range(0, len(rows), samples)]


def _until_end(tokens: list[int], ends: Sequence[int]) -> list[int]:
    for number, token in enumerate(tokens):
        if token in ends:
            return tokens[:number]
    return tokens
