"""The interface of an encoder: a function from texts to vectors, with an identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError

__all__ = ["Encoder", "ProgressCallback", "Vectors", "encode_texts"]

Vectors: TypeAlias = NDArray[np.float32]
ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished texts and of all texts."""


class Encoder(Protocol):
    """Converts texts to vectors of length 1; texts with similar meanings have a high inner product.

    `name` identifies the weights: vectors of encoders with different names are not comparable. An index refuses them.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def encode(self, texts: Sequence[str], progress: ProgressCallback | None = None) -> Vectors: ...


def encode_texts(encoder: Encoder, texts: Sequence[str], progress: ProgressCallback | None = None) -> Vectors:
    """Encode texts. Raise ConfigError if the encoder returns no finite vector of its dimensions for each of them."""
    vectors = np.asarray(encoder.encode(texts, progress), np.float32)
    expected = (len(texts), encoder.dimensions)
    if vectors.shape != expected:
        raise ConfigError(f"the encoder {encoder.name!r} returned an array of shape {vectors.shape}, not {expected}")
    if not np.isfinite(vectors).all():
        raise ConfigError(f"the encoder {encoder.name!r} returned a vector with NaN or infinity")
    return vectors
