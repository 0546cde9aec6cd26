"""Low-rank adapters (LoRA) of peft on the linear layers of a model, and their merge into the weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError
from .installed import require_installed
from .language_model import LanguageModel

__all__ = ["add_adapter", "merge_adapter", "save_model"]


def add_adapter(model: LanguageModel, rank: int, *, seed: int = 0) -> Any:
    """Freeze the model, add an adapter to all its linear layers except the output, and return peft's model.

    The layers are replaced in place, so `model` computes with the adapter from now on. At first the adapter changes
    nothing. Its scale is 2, as is usual for alpha = 2 * rank.
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
    """Write the model and its tokenizer into a folder.

    The weights are written in float16, which GGUF files have as well; in float32 if one of them does not fit into it.
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
