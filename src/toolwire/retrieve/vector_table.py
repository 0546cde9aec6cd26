"""Vectors of documents by number: a block that may be a memory map, and the rows that were added to it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .encoder import Vectors
from .growing_array import GrowingArray

__all__ = ["VectorTable"]


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
