"""A reranker orders the best tools of a search again."""

import math

import pytest

from toolwire import Tool
from toolwire.ir.errors import ConfigError
from toolwire.retrieve import ToolIndex

TOOLS = [Tool(f"read_file_{number}", f"Read a file of kind {number}") for number in range(40)]


class ByNumber:
    """Prefers the tools with high numbers."""

    def __init__(self):
        self.seen = []

    def score(self, query, hits):
        self.seen.append((query, [hit.tool.name for hit in hits]))
        return [float(hit.tool.name.rpartition("_")[2]) for hit in hits]


class Fixed:
    def __init__(self, scores):
        self.scores = scores

    def score(self, query, hits):
        return self.scores[: len(hits)]


def test_reranker_orders_the_best_twenty():
    reranker = ByNumber()
    index = ToolIndex(reranker=reranker)
    index.add(TOOLS)
    plain = ToolIndex()
    plain.add(TOOLS)
    best = [hit.tool.name for hit in plain.search("read a file", 20)]
    hits = index.search("read a file", 3)
    assert reranker.seen == [("read a file", best)]
    assert [hit.tool.name for hit in hits] == sorted(best, key=lambda name: -int(name.rpartition("_")[2]))[:3]
    assert hits[0].reasons[-1] == f"reranker: {hits[0].score:.2f}"


def test_equal_scores_keep_the_order_of_the_search():
    index = ToolIndex(reranker=Fixed([1.0] * 20))
    index.add(TOOLS)
    plain = ToolIndex()
    plain.add(TOOLS)
    assert [hit.tool for hit in index.search("read", 9)] == [hit.tool for hit in plain.search("read", 9)]


def test_reranker_is_not_asked_without_a_hit():
    reranker = ByNumber()
    index = ToolIndex(reranker=reranker)
    index.add(TOOLS)
    assert index.search("qwertz") == []
    assert reranker.seen == []


@pytest.mark.parametrize("scores", [[1.0], [math.nan] * 20])
def test_unusable_scores_are_an_error(scores):
    index = ToolIndex(reranker=Fixed(scores))
    index.add(TOOLS)
    with pytest.raises(ConfigError, match="the reranker returned"):
        index.search("read a file")
