"""Vectors of texts: the interface of an encoder, and arrays of vectors that grow.

An encoder is a function from texts to vectors, with an identity. A table of vectors begins with a block that may be a
memory map; rows are appended in amortised constant time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError

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


_FIRST_CAPACITY = 64  # rows; a small index is not copied while it grows


class GrowingArray:
    """Rows of numbers. A row that is set beyond the end extends the array; the rows between are zero."""

    __slots__ = ("_length", "_rows")

    def __init__(self, dtype: Any, columns: int = 0, rows: NDArray[Any] | None = None) -> None:
        """Make an array of numbers, or of rows if `columns` is given. `rows` may be a read-only memory map."""
        empty = np.zeros((0, columns) if columns else 0, dtype)
        self._rows = empty if rows is None else rows
        self._length = len(self._rows)

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """A view of the rows."""
        return self._rows[: self._length]

    def set(self, number: int, value: Any) -> None:
        """Set one row."""
        self.reserve(number + 1)
        self._rows[number] = value

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        start = self._length
        self.reserve(start + len(rows))
        self._rows[start : self._length] = rows

    def reserve(self, length: int) -> None:
        """Make the array at least `length` long and writable."""
        if length > len(self._rows) or not self._rows.flags.writeable:
            capacity = max(length, _FIRST_CAPACITY, len(self._rows) * 3 // 2 if length > len(self._rows) else 0)
            grown = np.zeros((max(capacity, len(self._rows)), *self._rows.shape[1:]), self._rows.dtype)
            grown[: self._length] = self._rows[: self._length]
            self._rows = grown
        self._length = max(self._length, length)


class VectorTable:
    """Rows of float32 vectors. Rows are only appended; the block that was loaded is never copied.

    `check` is called before the loaded block is first used, and may raise.
    """

    def __init__(self, dimensions: int, loaded: Vectors | None = None, check: Callable[[], None] | None = None) -> None:
        self.dimensions = dimensions
        self._check = check
        self._loaded = np.zeros((0, dimensions), np.float32) if loaded is None else loaded
        self._added = GrowingArray(np.float32, dimensions)

    def __len__(self) -> int:
        return len(self._loaded) + len(self._added)

    def extend(self, rows: Vectors) -> None:
        """Append rows."""
        self._added.extend(rows)

    def blocks(self) -> tuple[Vectors, Vectors]:
        """Return the loaded and the added rows."""
        if self._check is not None:
            self._check()
            self._check = None
        return self._loaded, self._added.values

    def take(self, numbers: NDArray[np.int64]) -> Vectors:
        """Return a copy of some rows."""
        loaded, added = self.blocks()
        rows: Vectors = np.empty((len(numbers), self.dimensions), np.float32)
        is_loaded = numbers < len(loaded)
        rows[is_loaded] = loaded[numbers[is_loaded]]
        rows[~is_loaded] = added[numbers[~is_loaded] - len(loaded)]
        return rows

    def score(self, queries: Vectors) -> Vectors:
        """Return the inner products with queries: one row per query, one column per vector."""
        scores: Vectors = np.concatenate([queries @ block.T for block in self.blocks()], axis=1)
        return scores
