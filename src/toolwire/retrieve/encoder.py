"""The interface of an encoder: a function from texts to vectors, with an identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Encoder", "ProgressCallback", "Vectors"]

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
