"""Approximate search: the same results as the exact search, above a low limit."""

import sys

import numpy as np
import pytest

from toolwire import Tool
from toolwire.ir.errors import MissingExtra
from toolwire.retrieve import ToolIndex
from toolwire.retrieve.ranking import CANDIDATES, NearestVectors, score_rows
from toolwire.retrieve.vectors import VectorTable


def make_vectors(count, seed=0):
    """Make vectors in 40 clusters, as real texts have."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, 32))
    vectors = centres[random.integers(0, 40, count)] + 0.6 * random.standard_normal((count, 32))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class TableEncoder:
    """Returns the vector of the number in a text."""

    name = "table"
    dimensions = 32

    def __init__(self, count):
        self.vectors = make_vectors(count, seed=1)

    def encode(self, texts, progress=None):
        return self.vectors[[int(text.split("number ")[-1].split(".")[0]) for text in texts]]


def test_recall_of_the_nearest_vectors():
    pytest.importorskip("usearch")
    vectors, queries = make_vectors(6_000), make_vectors(50, seed=7)
    table = VectorTable(32)
    table.extend(vectors[:4_000])
    nearest = NearestVectors(table)
    is_present = np.ones(6_000, np.bool_)
    is_present[::7] = False
    nearest.grow()
    table.extend(vectors[4_000:])
    found = wanted = 0
    for query in queries:
        scores = nearest.score(query, is_present, np.array([3, 7]))
        exact = np.where(is_present, np.maximum(vectors @ query, 0), 0)
        best = set(np.argsort(-exact)[:10].tolist())
        found += len(best & set(np.argsort(-scores)[:10].tolist()))
        wanted += len(best)
        assert not scores[~is_present].any()
        assert np.count_nonzero(scores) <= CANDIDATES + 2
        assert scores[3] == pytest.approx(exact[3], abs=1e-6)
        present = np.flatnonzero(scores)
        np.testing.assert_allclose(scores[present], exact[present], atol=1e-6)
    assert found / wanted >= 0.98


def test_index_above_the_limit_finds_the_same_tools(tmp_path):
    pytest.importorskip("usearch")
    encoder = TableEncoder(1_500)
    tools = [
        Tool(f"t{number}", f"Tool number {number}", effect="read" if number % 50 == 0 else "write")
        for number in range(1_500)
    ]
    exact, approximate = ToolIndex(encoder), ToolIndex(encoder, exact_limit=200)
    for index in (exact, approximate):
        index.add(tools[:1_000], server="a")
        index.add(tools[1_000:], server="b")
        index.remove([f"t{number}" for number in range(0, 1_000, 3)], server="a")
    approximate.save(tmp_path / "tools.index")
    loaded = ToolIndex.load(tmp_path / "tools.index", encoder, exact_limit=200)
    same = 0
    for number in range(0, 1_500, 100):
        query = f"number {number}"
        wanted = {hit.tool.name for hit in exact.search(query, 5)}
        for index in (approximate, loaded):
            same += len(wanted & {hit.tool.name for hit in index.search(query, 5)})
        for index in (approximate, loaded):  # a filter that leaves few tools is searched exactly
            found, best = (each.search(query, 5, effects={"read"}, servers={"b"}) for each in (index, exact))
            assert [hit.tool for hit in found if hit.score > 0.01] == [hit.tool for hit in best if hit.score > 0.01]
    assert same >= 0.98 * 15 * 5 * 2


def test_rows_are_scored_in_blocks():
    table = VectorTable(32)
    table.extend(make_vectors(20_000))
    query = make_vectors(1, seed=3)[0]
    numbers = np.arange(0, 20_000, 2)
    scores = score_rows(table, query, numbers)
    assert not scores[1::2].any()
    np.testing.assert_allclose(scores[::2], np.maximum(table.score(query[None])[0][::2], 0), atol=1e-6)


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    index = ToolIndex(TableEncoder(10), exact_limit=5)
    with pytest.raises(MissingExtra, match="requires usearch"):
        index.add([Tool(f"t{number}", f"number {number}") for number in range(10)])
