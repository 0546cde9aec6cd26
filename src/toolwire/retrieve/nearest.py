"""Find the nearest vectors without comparing all of them: the HNSW graph of usearch (extra `usearch`).

Separate because an index needs it only above 200,000 tools. The graph finds candidates; their similarity is computed
from the vectors themselves. Adding a vector takes about 1 ms of one core. The graph is not saved with an index, because
a damaged graph would be read by native code: it is built again when an opened index is first searched by meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._extras import install_command
from ..ir.errors import MissingExtra
from .vector_table import VectorTable
from .word_index import Floats

__all__ = ["EXACT_LIMIT", "NearestTools", "NearestVectors", "find_best", "score_rows"]

EXACT_LIMIT = 200_000
"""Vectors that are compared one by one. More are searched with a graph."""

CANDIDATES = 1_000
_BLOCK = 8_192  # vectors that are copied at once


class NearestTools(NamedTuple):
    """Tools that a server found near a query, by server and name.

    `similarities` has one number per vector of the query. `vectors` are those of the best tools.
    """

    similarities: Mapping[tuple[str, str], Sequence[float]]
    vectors: Mapping[tuple[str, str], Sequence[float]]


class NearestVectors:
    """A graph of the rows of a table. It grows with the table."""

    def __init__(self, table: VectorTable) -> None:
        try:
            from usearch.index import Index
        except ImportError:
            raise MissingExtra(
                "the search among more tools than the exact_limit of an index requires usearch",
                hint=f"{install_command('usearch')}, or give ToolIndex a higher exact_limit",
            ) from None
        self._table = table
        self._index: Any = Index(ndim=table.dimensions, metric="ip", dtype="f16", expansion_search=256)
        self._length = 0

    def grow(self) -> None:
        """Add the rows that were appended to the table."""
        while self._length < len(self._table):
            numbers = np.arange(self._length, min(self._length + _BLOCK, len(self._table)))
            self._index.add(numbers, self._table.take(numbers))
            self._length = int(numbers[-1]) + 1

    def score(self, query: Floats, is_kept: NDArray[np.bool_], also: NDArray[np.int64]) -> Floats:
        """Return the similarity of the candidates with a query; 0 for all other rows.

        `also` are further candidates, such as the best ones of the text search.
        """
        self.grow()
        found = self._index.search(query, CANDIDATES).keys.astype(np.int64)
        candidates: NDArray[np.int64] = np.union1d(found, also)
        return score_rows(self._table, query, candidates[is_kept[candidates]])


def score_rows(table: VectorTable, query: Floats, numbers: NDArray[np.int64]) -> Floats:
    """Return the similarity of some rows with a query; 0 for all other rows."""
    scores: Floats = np.zeros(len(table), np.float32)
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        scores[block] = np.maximum(table.take(block) @ query, 0)
    return scores


def find_best(words: Floats, count: int = CANDIDATES) -> NDArray[np.int64]:
    """Return the numbers with the highest scores, without an order; fewer if the others are 0."""
    numbers = np.flatnonzero(words)
    if len(numbers) > count:
        numbers = numbers[np.argpartition(-words[numbers], count)[:count]]
    return numbers
