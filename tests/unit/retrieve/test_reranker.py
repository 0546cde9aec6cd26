"""A reranker orders the best tools of a search."""

import pytest

from toolwire import Request, Tool
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text
from toolwire.ir.request import Message
from toolwire.retrieve import ToolIndex

TOOLS = [Tool(f"weather_{number}", "Weather " * (number % 5 + 1)) for number in range(80)]


def make_index(rerank):
    index = ToolIndex(rerank=rerank)
    index.add(TOOLS)
    return index


def prefer_high_numbers(query, hits):
    assert query == "weather"
    return [int(hit.tool.name.removeprefix("weather_")) for hit in hits]


def test_reranker_orders_the_best_tools():
    plain, index = make_index(None), make_index(prefer_high_numbers)
    best = sorted([int(hit.tool.name.removeprefix("weather_")) for hit in plain.search("weather", 50)], reverse=True)
    assert [(hit.tool.name, hit.score) for hit in index.search("weather", 3)] == [
        (f"weather_{number}", number) for number in best[:3]
    ]
    assert len(index.search("weather", 70)) == 70
    request = Request(messages=(Message("user", (Text("weather"),)),))
    chosen = index.retriever(k=2).choose(request, TOOLS, ())
    assert {tool.name for tool in chosen} == {f"weather_{number}" for number in best[:2]}


def test_reranker_is_not_called_without_results():
    assert make_index(prefer_high_numbers).search("xylophone") == []


@pytest.mark.parametrize("scores", [[], [1.0] * 49, [float("nan")] * 50])
def test_wrong_scores_are_refused(scores):
    with pytest.raises(ConfigError, match="finite score for each of 50 tools"):
        make_index(lambda query, hits: scores).search("weather")
