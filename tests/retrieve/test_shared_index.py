"""Indexes in PostgreSQL and in Qdrant: the results of a ToolIndex, for several processes and threads."""

import random
import threading
from itertools import product
from multiprocessing import get_context

import pytest

from hash_encoder import HashEncoder
from toolwire import Tool
from toolwire.ir.errors import ConfigError, StoreError
from toolwire.retrieve import PostgresIndex, QdrantIndex, ToolIndex

VERBS = ("list", "create", "delete", "update", "search", "send", "export")
NOUNS = ("invoice", "ticket", "customer", "file", "message", "calendar", "server", "order", "image")
QUERIES = (
    "delete the invoice of a customer",
    "send a message",
    "search files",
    "export the calendar",
    "Delete the old invoice. Send a message to the customer.",
    "",
)


def make_tools(seed=0, count=40):
    """Make tools with texts of different lengths, so that no two have the same score."""
    every = [(verb, noun, number) for number, (verb, noun) in enumerate(product(VERBS, NOUNS))]
    return [
        Tool(
            f"{verb}_{noun}",
            f"{verb.title()} one {noun}, version {seed}"
            + "".join(f" number{count}" for count in range(number + 70 * (seed == 2))),
            {"type": "object", "properties": {"id": {"description": f"The {noun}"}}},
            effect="read" if verb in ("list", "search", "export") else "write",
        )
        for verb, noun, number in random.Random(seed).sample(every, count)
    ]


@pytest.fixture(params=["postgres", "qdrant"])
def open_shared(request):
    """Return a function that opens one more index of the same server."""
    opened = []
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")

        def open_index(encoder=None, **options):
            opened.append(PostgresIndex(url, encoder, **options))
            return opened[-1]
    else:
        qdrant_client = pytest.importorskip("qdrant_client")
        client = qdrant_client.QdrantClient(":memory:")

        def open_index(encoder=None, **options):
            return QdrantIndex(client, encoder, **options)

    yield open_index
    for index in opened:
        index.close()


def results(index, **filters):
    """Return all results; those with equal scores in the order of their names."""
    found = [
        [(-round(hit.score, 4), hit.server, repr(hit.tool)) for hit in index.search(query, 60, **filters)]
        for query in QUERIES
    ]
    assert all([score for score, *_ in hits] == sorted(score for score, *_ in hits) for hits in found)
    return list(map(sorted, found))


@pytest.mark.parametrize("encoder", [None, HashEncoder()], ids=["words", "vectors"])
def test_results_equal_those_of_an_index_in_memory(open_shared, encoder):
    shared, local = open_shared(encoder), ToolIndex(encoder)
    for index in (shared, local):
        index.add(make_tools(1), server="crm", tags=("sales", "it's"))
        index.add(make_tools(2, 10), server="\0 odd 'name'")
        index.replace_server(make_tools(3), server="crm", tags=("sales",))
        index.remove(["nothing", make_tools(3)[0].name], server="crm")
    other = open_shared(encoder)
    for filters in (
        {},
        {"servers": ["crm", "unknown"]},
        {"effects": {"read"}},
        {"tags": ["sales"]},
        {"tags": ["it's"]},
        {"allow": lambda entry: "invoice" not in entry.tool.name},
    ):
        assert results(shared, **filters) == results(other, **filters) == results(local, **filters)
    assert len(other) == len(local) == 49
    assert {(entry.server, repr(entry.tool)) for entry in other} == {
        (entry.server, repr(entry.tool)) for entry in local
    }
    assert other.find(make_tools(3)[1].name, "crm") == make_tools(3)[1]


def test_changes_report_and_encode_only_the_difference(open_shared):
    encoder = HashEncoder()
    index = open_shared(encoder)
    assert len(index.add(make_tools(1), server="crm").added) == 40
    again = open_shared(encoder)
    assert again.add(make_tools(1), server="crm").unchanged == 40
    changed = [Tool("send_message", "Other text"), *(tool for tool in make_tools(1) if tool.name != "send_message")][
        :39
    ]
    encoder.texts.clear()
    change = again.replace_server(changed, server="crm")
    assert len(encoder.texts) == len(change.added) + len(change.updated) == 1
    assert change.removed
    index.refresh()
    assert {entry.tool.name for entry in index} == {tool.name for tool in changed}
    assert index.find("send_message").description == "Other text"
    assert not index.remove(["unknown"], server="crm").removed


def test_removed_tool_can_be_added_again(open_shared):
    index = open_shared(HashEncoder())
    index.add([Tool("f", "Find the zebra")])
    index.remove(["f"])
    assert index.search("zebra") == []
    assert index.add([Tool("f", "Find the zebra")]).added == ("f",)
    assert [hit.tool.name for hit in open_shared(HashEncoder()).search("zebra")] == ["f"]


def test_few_candidates_still_give_the_best_tools(open_shared):
    encoder = HashEncoder()
    open_shared(encoder).add(make_tools(1))
    shared, local = open_shared(encoder, candidates=10), ToolIndex(encoder)
    local.add(make_tools(1))
    for query in QUERIES[:4]:
        assert local.search(query, 1)[0].tool in [hit.tool for hit in shared.search(query, 3)]


def test_index_of_another_encoder_is_refused(open_shared):
    open_shared(HashEncoder("one", 8)).add(make_tools(1, 3))
    for other in (HashEncoder("two", 8), HashEncoder("one", 16), None):
        with pytest.raises((ConfigError, StoreError), match="one"):
            open_shared(other).refresh()


def test_threads_write_and_search(open_shared):
    index = open_shared(HashEncoder(), refresh_seconds=0)
    failures = []

    def write(server):
        try:
            for seed in range(4):
                index.replace_server(make_tools(seed, 12), server=server)
        except Exception as error:
            failures.append(error)

    def read():
        try:
            for _ in range(15):
                index.search("delete the invoice", 3)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"] + [threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    expected = {(server, tool) for server in "ab" for tool in map(repr, make_tools(3, 12))}
    assert {(entry.server, repr(entry.tool)) for entry in open_shared(HashEncoder())} == expected


def write_versions(url, server, seeds):
    with PostgresIndex(url, HashEncoder()) as index:
        for seed in seeds:
            index.replace_server(make_tools(seed, 15), server=server)


def test_processes_write_to_postgres_at_once(postgres_url):
    processes = get_context("forkserver")
    reader = PostgresIndex(postgres_url, HashEncoder(), refresh_seconds=0)
    # one writer of a server, and two of another one
    writers = [processes.Process(target=write_versions, args=(postgres_url, name, range(3))) for name in "abb"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        reader.search("delete the invoice", 3)  # follows the changes meanwhile, and must miss none
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 3
    fresh = PostgresIndex(postgres_url, HashEncoder())
    expected = {(entry.server, repr(entry.tool)) for entry in fresh}
    assert {(entry.server, repr(entry.tool)) for entry in reader} == expected
    assert {tool for owner, tool in expected if owner == "a"} == set(map(repr, make_tools(2, 15)))
    assert {tool for owner, tool in expected if owner == "b"} >= set(map(repr, make_tools(2, 15)))
    reader.close()
    fresh.close()


def test_shared_index_has_no_file(open_shared, tmp_path):
    with pytest.raises(ConfigError, match="no file"):
        open_shared().save(tmp_path / "x")
    with pytest.raises(ConfigError, match="no file"):
        PostgresIndex.load(tmp_path / "x")


def test_wrong_options_are_refused():
    with pytest.raises(ConfigError, match="invalid name of a table"):
        PostgresIndex("postgresql://localhost", table="x; DROP TABLE y")
    with pytest.raises(StoreError, match="Qdrant"):
        QdrantIndex("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="over plain HTTP"):
        QdrantIndex("http://qdrant.example.com:6333", key="secret")
