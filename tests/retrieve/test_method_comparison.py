"""The search of an index beside its parts, for queries whose tools are known."""

import numpy as np
import pytest

from toolwire.ir.errors import ConfigError
from toolwire.ir.tools import Tool
from toolwire.net.executors import ProcessPool
from toolwire.retrieve import ToolIndex
from toolwire.retrieve.evaluation import LabelledQuery, compare_methods, missing_gold


class TopicEncoder:
    """An encoder that knows two topics by their words."""

    name = "topics"
    dimensions = 3
    topics = (("weather", "rain", "umbrella"), ("mail", "letter", "post"))

    def __init__(self):
        self.encoded = []

    def encode(self, texts, progress=None):
        self.encoded += texts
        vectors = np.array(
            [[sum(word in text.lower() for word in topic) for topic in self.topics] + [0.1] for text in texts],
            np.float32,
        )
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


TOOLS = (
    Tool("get_weather", "Return the weather of a city."),
    Tool("send_mail", "Send a mail."),
    Tool("add", "Add two numbers."),
)


@pytest.fixture
def index():
    index = ToolIndex(encoder=TopicEncoder())
    index.add(TOOLS, server="home")
    index.add([Tool("add", "Add a contact to the book.")], server="contacts")
    return index


def test_every_method_is_measured(index):
    queries = [
        LabelledQuery("Do I need an umbrella?", ("get_weather",), "vague"),
        LabelledQuery("add two numbers", ("home/add",), "exact"),
    ]
    seen = []
    compared = compare_methods(index, queries, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (2, 2)]
    assert index.encoder.encoded.count("add two numbers") == 1  # once for all methods
    assert list(compared.values) == ["words", "meaning", "ranks", "search"]
    assert compared.mean("words", "R@10", "vague") == 0  # no word in common
    assert compared.mean("meaning", "R@1", "vague") == 1
    assert compared.mean("words", "R@1", "exact") == 1
    assert compared.mean("words", "R@10") == 0.5
    mean, low, high = compared.difference("words", "R@10", seed=1, rounds=200)
    assert mean == compared.mean("search", "R@10") - 0.5
    assert low <= mean <= high


def test_gold_may_be_a_name_of_any_server_or_of_one(index):
    query = "add a contact to the book"
    by_name = compare_methods(index, [LabelledQuery(query, ("add",))])
    assert by_name.mean("words", "R@1") == 1
    wrong_server = compare_methods(index, [LabelledQuery(query, ("home/add",))])
    assert wrong_server.mean("words", "R@1") == 0
    assert wrong_server.mean("words", "R@5") == 1


def test_gold_may_be_the_id_of_a_specification():
    index = ToolIndex()
    index.add([Tool("f", "Send mail.", extra={"api_spec": {"id": "bfcl:1"}}), Tool("g", "Send post.")])
    queries = [LabelledQuery("send mail", ("bfcl:1",)), LabelledQuery("send mail", ("f",))]
    compared = compare_methods(index, queries)
    assert compared.select("search", "R@1") == [1, 1]
    assert missing_gold(index, queries) == []


def test_index_of_words_has_one_method():
    index = ToolIndex()
    index.add(TOOLS)
    compared = compare_methods(index, [LabelledQuery("send mail", ("send_mail",))])
    assert list(compared.values) == ["search"]
    assert compared.mean("search", "NDCG@10") == 1


def test_gold_outside_of_the_index_is_listed(index):
    queries = [LabelledQuery("a", ("add", "fly")), LabelledQuery("b", ("home/add", "away/add", "fly"))]
    assert missing_gold(index, queries) == ["fly", "away/add"]


def test_no_queries_is_an_error(index):
    with pytest.raises(ConfigError, match="no queries"):
        compare_methods(index, [])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_measure_equal_values(index, tmp_path, workers):
    topics = ("an umbrella", "a letter. It is for the post office.", "two numbers", "the weather " * 1000)
    queries = [LabelledQuery(f"{topics[n % 4]} {n}", (TOOLS[n % 3].name,), str(n % 2)) for n in range(150)]
    index.remove(["add"], server="home")  # numbers of entries have a gap
    assert compare_methods(index, queries, executor=ProcessPool(workers)) == compare_methods(index, queries)
    index.save(tmp_path / "tools.index")
    words = ToolIndex.load(tmp_path / "tools.index")  # without its encoder, so it cannot be saved
    assert compare_methods(words, queries, executor=ProcessPool(workers)) == compare_methods(words, queries)
