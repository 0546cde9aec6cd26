"""Read and write GGUF files, the format of llama.cpp, for models of the Llama architecture.

    convert_gguf(Path("model.gguf"), Path("model"))     a folder in the layout of Hugging Face
    write_gguf(Path("model"), Path("model.gguf"))       the reverse, for `toolwire.local` or llama.cpp

llama.cpp stores the rows of the query and key projections in another order, because its rotary embedding pairs
neighbouring dimensions. Both directions permute them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..ir.errors import ConfigError
from ..ir.pointer import Object
from .run_folder import require_installed

FORMATS = ("f32", "f16", "q8_0")
"""The formats of matrices that `write_gguf` writes. Norms are always f32."""

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
PERMUTED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # llama.cpp's types of tokens
_HALF_MAXIMUM = 65504.0  # the largest finite value of IEEE 754 half precision; beyond it a weight would become infinite


def convert_gguf(source: Path, folder: Path) -> None:
    """Write the model of a GGUF file into an existing, empty folder: `config.json`, safetensors and tokenizer files.

    Raise ConfigError for a file that cannot be converted, and MissingExtra.
    """
    require_installed("the conversion of a GGUF file", "gguf", "safetensors", "transformers")
    from safetensors.numpy import save_file
    from transformers import GenerationConfig, LlamaConfig

    fields, tensors = _read_gguf(source)
    settings = _read_settings(source, fields)
    weights = dict(_convert_tensors(source, tensors, settings))
    _require_complete(source, weights, settings)
    settings["tie_word_embeddings"] = "lm_head.weight" not in weights
    settings["vocab_size"] = weights["model.embed_tokens.weight"].shape[0]
    settings["dtype"] = str(next(iter(weights.values())).dtype)
    tokenizer = _build_tokenizer(source, fields)
    special = {f"{name[:3]}_token_id": getattr(tokenizer, f"{name[:3]}_token_id") for name in ("bos", "eos", "pad")}
    config = LlamaConfig(architectures=["LlamaForCausalLM"], **settings, **special)
    config.save_pretrained(folder)
    GenerationConfig(**special).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_gguf(folder: Path, target: Path, *, matrices: str = "f16") -> None:
    """Write the model of a folder as one GGUF file. `matrices` is one of `FORMATS`.

    The file appears under its name when it is complete. Raises ConfigError for a model that the file cannot express.
    """
    require_installed("a GGUF file", "gguf", "safetensors", "torch", "transformers")
    import gguf
    from safetensors import safe_open
    from transformers import AutoConfig

    if matrices not in FORMATS:
        raise ConfigError(f"unknown format {matrices!r}", hint=f"available: {', '.join(FORMATS)}")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the model in {folder}: {error}") from error
    _require_plain_llama(folder, config)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    writer = gguf.GGUFWriter(part, "llama")
    try:
        _write_settings(writer, folder, config)
        _write_tokenizer(writer, folder, config.vocab_size)
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  the handle is not iterable
                    if not (config.tie_word_embeddings and name == "lm_head.weight"):
                        _write_tensor(writer, name, tensors.get_tensor(name).float().numpy(), config, matrices)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _read_gguf(source: Path) -> tuple[Object, Any]:
    """Return the metadata and the tensors of a file."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(source)
        return {name: field.contents() for name, field in reader.fields.items()}, reader.tensors
    except (OSError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise ConfigError(f"cannot read {source} as a GGUF file: {error}") from None


def _read_settings(source: Path, fields: Object) -> Object:
    """Return the keyword arguments of `LlamaConfig`.

    Raise ConfigError for another architecture than llama, and for scaled positions.
    """
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise ConfigError(
            f"{source} contains a model of the architecture {architecture!r}; only llama can be converted",
            hint="use the original folder of the model, with config.json and safetensors",
        )
    scaling = fields.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise ConfigError(
            f"{source} has scaled positions ({scaling}), which are not converted",
            hint="use the original folder of the model, with config.json and safetensors",
        )
    heads = _read_count(source, fields, "llama.attention.head_count")
    width = _read_count(source, fields, "llama.embedding_length")
    return {
        "hidden_size": width,
        "intermediate_size": _read_count(source, fields, "llama.feed_forward_length"),
        "num_hidden_layers": _read_count(source, fields, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _read_count(source, fields, "llama.attention.head_count_kv", heads),
        "head_dim": _read_count(source, fields, "llama.rope.dimension_count", width // heads),
        "max_position_embeddings": _read_count(source, fields, "llama.context_length"),
        # stored as f32: rounded back to the short decimal of the original config
        "rms_norm_eps": float(f"{_read_number(source, fields, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _read_number(source, fields, "llama.rope.freq_base", 10000.0),
        },
    }


def _read_count(source: Path, fields: Object, name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 0 < value < 2**31:
        raise ConfigError(f"{source} has no usable metadata {name!r}: {str(value)[:80]}")
    return value


def _read_number(source: Path, fields: Object, name: str, default: float | None = None) -> float:
    value = fields.get(name, default)
    if not isinstance(value, int | float) or not 0 < value < 1e38:
        raise ConfigError(f"{source} has no usable metadata {name!r}: {str(value)[:80]}")
    return float(value)


def _require_complete(source: Path, weights: Mapping[str, Any], settings: Object) -> None:
    """Raise ConfigError if a tensor is missing or has another shape: transformers would fill it with random numbers."""
    width, inner, layers = settings["hidden_size"], settings["intermediate_size"], settings["num_hidden_layers"]
    if layers > len(weights):
        raise ConfigError(f"{source} has {layers} layers according to its metadata, but only {len(weights)} tensors")
    heads = settings["num_attention_heads"] * settings["head_dim"]
    pairs = settings["num_key_value_heads"] * settings["head_dim"]
    embedding = weights.get("model.embed_tokens.weight")
    rows = 0 if embedding is None else embedding.shape[0]
    shapes = {
        "attn_norm": (width,),
        "attn_q": (heads, width),
        "attn_k": (pairs, width),
        "attn_v": (pairs, width),
        "attn_output": (width, heads),
        "ffn_norm": (width,),
        "ffn_gate": (inner, width),
        "ffn_up": (inner, width),
        "ffn_down": (width, inner),
    }
    expected = {
        f"model.layers.{layer}.{_LAYER_NAMES[kind]}.weight": shape
        for layer in range(layers)
        for kind, shape in shapes.items()
    }
    expected |= {"model.embed_tokens.weight": (rows, width), "model.norm.weight": (width,)}
    if "lm_head.weight" in weights:
        expected["lm_head.weight"] = (rows, width)
    for name in sorted({*expected, *weights}):
        found = tuple(weights[name].shape) if name in weights else "missing"
        if found != expected.get(name):
            raise ConfigError(f"{source}: the tensor {name} is {found}, expected {expected.get(name, 'none')}")


def _convert_tensors(source: Path, tensors: Any, settings: Object) -> Iterator[tuple[str, Any]]:
    """Yield the weights under Hugging Face's names, in float16 if all values fit, or float32. ConfigError if broken."""
    import numpy as np
    from gguf import dequantize

    values = {}
    for tensor in tensors:
        name = _convert_name(source, tensor.name)
        heads = settings.get(PERMUTED.get(tensor.name.split(".")[-2], ""))
        try:
            value = dequantize(tensor.data, tensor.tensor_type)
            values[name] = permute_rows(value, heads, inverse=True) if heads else value
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(f"{source}: cannot read the tensor {name}: {error}") from None
    half = all(np.abs(value).max(initial=0) <= _HALF_MAXIMUM for value in values.values())
    for name, value in values.items():
        yield name, np.ascontiguousarray(value, dtype=np.float16 if half else np.float32)


def _convert_name(source: Path, name: str) -> str:
    """Return the name of a tensor in the layout of Hugging Face. Raise ConfigError if it has no such tensor."""
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER_NAMES and parts[3] == "weight":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
    if len(parts) == 2 and parts[0] in _NAMES and parts[1] == "weight":
        return f"{_NAMES[parts[0]]}.weight"
    raise ConfigError(
        f"{source} contains the tensor {name!r}, which a plain Llama does not have",
        hint="use the original folder of the model, with config.json and safetensors",
    )


def permute_rows(value: Any, heads: int, *, inverse: bool) -> Any:
    """Reorder the rows of a query or key projection: halves (Hugging Face) to neighbours (llama.cpp), or the inverse."""
    middle = (-1, 2) if inverse else (2, -1)
    return value.reshape(heads, *middle, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def _build_tokenizer(source: Path, fields: Object) -> Any:
    """Build the tokenizer of the metadata: byte-level BPE, with every digit as its own token for `smollm`.

    Raise ConfigError for another kind, and for invalid merges.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in ("smollm", "gpt-2"):
        raise ConfigError(
            f"{source} has a tokenizer of the kind {kind}/{pre}; only gpt2/smollm and gpt2/gpt-2 can be converted",
            hint="use the original folder of the model, with tokenizer.json",
        )
    texts, types = _read_vocabulary(source, fields)
    vocabulary = {text: number for number, text in enumerate(texts) if types[number] != _UNUSED}
    merges = [tuple(merge.split(" ")) for merge in fields.get("tokenizer.ggml.merges", ())]
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # noqa: BLE001  the library has no type for a merge of unknown tokens
        raise ConfigError(f"{source} has an invalid tokenizer: {error}") from None
    tokenizer.pre_tokenizer = _pre_tokenizer(digits=pre == "smollm")
    tokenizer.decoder = decoders.ByteLevel()
    for number, text in enumerate(texts):
        if types[number] in (_CONTROL, _USER_DEFINED):
            tokenizer.add_tokens([AddedToken(text, normalized=False, special=types[number] == _CONTROL)])
    numbers = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    special = {name: texts[one] for name, one in numbers.items() if isinstance(one, int) and 0 <= one < len(texts)}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        model_max_length=int(fields["llama.context_length"]),
        **special,
    )
    fast.chat_template = fields.get("tokenizer.chat_template")
    return fast


def _read_vocabulary(source: Path, fields: Object) -> tuple[list[str], list[int]]:
    texts, types = fields.get("tokenizer.ggml.tokens"), fields.get("tokenizer.ggml.token_type")
    if type(texts) is not list or type(types) is not list or not len(texts) == len(types) > 0:
        raise ConfigError(f"{source} has no list of tokens with their types")
    if not all(type(text) is str for text in texts) or not all(type(kind) is int for kind in types):
        raise ConfigError(f"{source} has tokens that are not texts")
    return texts, types


def _pre_tokenizer(*, digits: bool) -> Any:
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if not digits:
        return split
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split])


def _require_plain_llama(folder: Path, config: Any) -> None:
    rope = config.rope_parameters or {} if config.model_type == "llama" else {}
    if config.model_type != "llama" or rope.get("rope_type", "default") != "default":
        raise ConfigError(
            f"{folder} contains a {config.model_type} model with {rope.get('rope_type', 'unknown')} positions; "
            "only a llama model without position scaling can be written as GGUF",
            hint="convert it with the converter of llama.cpp",
        )


def _write_settings(writer: Any, folder: Path, config: Any) -> None:
    """Write the metadata of a Llama model: name, dimensions, rotary embedding, norm."""
    writer.add_name(folder.name)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _write_tokenizer(writer: Any, folder: Path, rows: int) -> None:
    """Write the vocabulary. Rows of the embedding without a token get a text that no input contains."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    document = json.loads(tokenizer.backend_tokenizer.to_str())
    texts = [f"[unused {number}]" for number in range(rows)]
    types = [_UNUSED] * rows
    for text, number in document["model"].get("vocab", {}).items():
        texts[number], types[number] = text, _NORMAL
    for token in document["added_tokens"]:
        texts[token["id"]] = token["content"]
        types[token["id"]] = _CONTROL if token["special"] else _USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_pre_tokenizer_name(folder, document))
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in document["model"]["merges"]])
    writer.add_add_bos_token(False)
    for name, key in _SPECIAL.items():
        number = getattr(tokenizer, f"{name}_id")
        if number is not None:
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", number)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _pre_tokenizer_name(folder: Path, document: Mapping[str, Any]) -> str:
    """Return llama.cpp's name for the pre-tokenizer; raise ConfigError if it is none of those that we can compare."""
    from tokenizers import Tokenizer, models

    for name, digits in (("smollm", True), ("gpt-2", False)):
        known = Tokenizer(models.BPE())
        known.pre_tokenizer = _pre_tokenizer(digits=digits)
        if document["model"].get("type") == "BPE" and _without_offsets(document) == _without_offsets(
            json.loads(known.to_str())
        ):
            return name
    raise ConfigError(
        f"{folder} has a tokenizer that is not byte-level BPE with the splits of GPT-2 or SmolLM2",
        hint="convert the model with the converter of llama.cpp",
    )


def _without_offsets(document: Mapping[str, Any]) -> Any:
    """Return the pre-tokenizer's settings without `trim_offsets`, which does not change tokens."""
    steps = document.get("pre_tokenizer") or {}
    return [
        {key: value for key, value in step.items() if key != "trim_offsets"}
        for step in steps.get("pretokenizers", [steps])
    ]


def _write_tensor(writer: Any, name: str, value: Any, config: Any, matrices: str) -> None:
    """Write a tensor under its GGUF name, permuted if llama.cpp expects that; vectors stay f32."""
    import gguf

    plain = gguf_name(name)
    kind = plain.split(".")[-2]
    if kind in PERMUTED:
        value = permute_rows(value, getattr(config, PERMUTED[kind]), inverse=False)
    format_ = gguf.GGMLQuantizationType[("f32" if value.ndim == 1 else matrices).upper()]
    if format_ is gguf.GGMLQuantizationType.Q8_0 and value.shape[-1] % 32:
        format_ = gguf.GGMLQuantizationType.F16  # blocks have 32 values
    writer.add_tensor(plain, gguf.quantize(value, format_), raw_dtype=format_)


def gguf_name(name: str) -> str:
    """Return llama.cpp's name of a tensor. Raise ConfigError if a plain Llama does not have it."""
    inner = name.removesuffix(".weight")
    for ours, theirs in _NAMES.items():
        if inner == theirs:
            return f"{ours}.weight"
    prefix, _, rest = inner.removeprefix("model.layers.").partition(".")
    for ours, theirs in _LAYER_NAMES.items():
        if rest == theirs and prefix.isdigit() and name.endswith(".weight"):
            return f"blk.{prefix}.{ours}.weight"
    raise ConfigError(f"cannot write the weight {name!r} as GGUF: a plain Llama does not have it")
