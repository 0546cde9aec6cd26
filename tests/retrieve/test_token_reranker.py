"""The reranker compares a request with tools token by token, for any text and in any number of threads."""

import pickle
import threading

import numpy as np
import pytest

from hash_encoder import HashEncoder
from toolwire import Tool
from toolwire.net.executors import ProcessPool
from toolwire.retrieve import SearchHit, TokenReranker, ToolIndex, open_minilm, open_reranker
from toolwire.retrieve.documents import make_document
from toolwire.retrieve.evaluation import LabelledQuery, compare_methods

HITS = [
    SearchHit(Tool("getForecast", "Return the weather forecast of a city."), 0.0, (), "weather"),
    SearchHit(Tool("issues/close", "Close an issue of a repository."), 0.25, (), "github"),
    SearchHit(Tool("a"), 0.5),
    SearchHit(Tool("transfer_money", "Send money to another account. Überweisung."), 0.0, (), "bank"),
    SearchHit(Tool("cancel-job", "Cancel a training job that runs. " * 60), 0.125, (), "openai"),
]
QUERIES = ["do I need an umbrella in Lyon tomorrow", "Close the issue about the login page.", "x", "stop the job " * 60]


@pytest.fixture(scope="module")
def reranker():
    return open_reranker()


def cosine(one, other):
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def expected_score(query, hit):
    """The definition, one pair of tokens at a time."""
    encoder = open_minilm()
    (request,) = encoder.encode_tokens([query], 64)
    (tool,) = encoder.encode_tokens([make_document(hit.tool, server=hit.server).text], 64)
    nearest = [max(cosine(own, other) for other in tool[1:-1]) for own in request[1:-1]]
    return hit.score + sum(nearest) / len(nearest) + 0.5 * cosine(request.sum(axis=0), tool[:12].sum(axis=0))


def test_score_is_the_definition(reranker):
    for query in QUERIES:
        assert reranker.score(query, HITS) == pytest.approx([expected_score(query, hit) for hit in HITS], abs=2e-3)


def test_a_detail_of_the_request_decides(reranker):
    tools = [
        Tool("list_backups", "List the backups of a database"),
        Tool("restore_backup", "Restore a backup of a database"),
        Tool("delete_backup", "Delete a backup of a database"),
    ]
    hits = [SearchHit(tool, 0.5) for tool in tools]
    for number, query in enumerate(("show me all backups", "bring back the backup of sunday", "remove the backup")):
        assert int(np.argmax(reranker.score(query, hits))) == number


def test_other_hits_do_not_change_a_score(reranker):
    together = reranker.score(QUERIES[1], HITS)
    assert [reranker.score(QUERIES[1], [hit])[0] for hit in HITS] == pytest.approx(together, abs=2e-3)


class CountingEncoder:
    """The encoder, with a list of the texts whose tokens were encoded."""

    def __init__(self):
        self.encoded = []

    def encode_tokens(self, texts, most):
        self.encoded += texts
        return open_minilm().encode_tokens(texts, most)


def test_second_search_uses_kept_states_with_equal_scores():
    encoder = CountingEncoder()
    fresh = TokenReranker(encoder)
    scores = fresh.score(QUERIES[0], HITS)
    assert len(encoder.encoded) == len(HITS) + 1
    encoder.encoded.clear()
    assert fresh.score(QUERIES[0], HITS) == scores
    assert encoder.encoded == [QUERIES[0]]


def test_other_process_opens_the_encoder_itself(reranker):
    own = TokenReranker(open_minilm(), token_weight=0.5, name_weight=0.25)
    scores = own.score(QUERIES[0], HITS)
    content = pickle.dumps(own)
    assert len(content) < 1_000
    assert pickle.loads(content).score(QUERIES[0], HITS) == scores


def test_methods_are_compared_in_other_processes(reranker):
    index = ToolIndex(reranker=reranker)
    for hit in HITS:
        index.add([hit.tool], server=hit.server)
    queries = [LabelledQuery(query, ("issues/close",)) for query in QUERIES]
    assert compare_methods(index, queries, executor=ProcessPool(1)) == compare_methods(index, queries)


@pytest.mark.parametrize(
    "text", ["", " ", "\x00\x1b[31m\u202e", "\ud800", "x" * 1_000_000, "word " * 100_000, "\n" * 9_999, "你好" * 5_000]
)
def test_any_text_has_finite_scores(reranker, text):
    described = text.encode("utf-8", "replace").decode()  # an index refuses tools with lone surrogates
    hits = [SearchHit(Tool("get_weather", described), 0.25), SearchHit(Tool("close_issue", "Close an issue"), 0.25)]
    scores = [*reranker.score("the weather", hits), *reranker.score(text, hits)]
    assert len(scores) == 4
    assert np.isfinite(scores).all()


def test_threads_get_the_same_scores(reranker):
    shared = TokenReranker(open_minilm())
    wanted = [reranker.score(query, HITS) for query in QUERIES]
    found = {}

    def run(number):
        found[number] = [shared.score(query, HITS) for query in QUERIES]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert np.array(found[number]) == pytest.approx(np.array(wanted), abs=2e-3)


def test_index_of_thousands_of_tools_is_ordered_again_and_reopened(tmp_path, reranker):
    """The encoder of hashes stands in for the real one, whose vectors of thousands of tools take minutes."""
    tools = [Tool(f"store_item_{number}", f"Store the item {number} of the warehouse") for number in range(3_000)]
    tools.append(Tool("get_forecast", "Return the weather forecast of a city"))
    plain, index = ToolIndex(HashEncoder()), ToolIndex(HashEncoder(), reranker=reranker)
    plain.add(tools)
    index.add(tools)
    query = "weather in the city of the warehouse with the item"
    best = plain.search(query, 20)
    scores = dict(zip([hit.tool.name for hit in best], reranker.score(query, best), strict=True))
    found = index.search(query, 3)
    assert [hit.tool.name for hit in found] == sorted(scores, key=lambda name: -scores[name])[:3]
    index.save(tmp_path / "tools.index")
    again = ToolIndex.load(tmp_path / "tools.index", HashEncoder())
    again.reranker = reranker
    assert [hit.tool.name for hit in again.search(query, 3)] == [hit.tool.name for hit in found]
