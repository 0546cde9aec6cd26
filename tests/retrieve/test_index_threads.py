"""An index that several threads search while others change it."""

import threading

from hash_encoder import HashEncoder
from toolwire import Tool
from toolwire.retrieve import ToolIndex


def make_tools(server, version):
    return [Tool(f"{server}_{number}", f"Version {version} of the file tool {number}") for number in range(10)]


def test_threads_search_while_others_change_and_save(tmp_path):
    index = ToolIndex(HashEncoder())
    index.add([Tool("stable", "Delete the file of the customer")], server="stable")
    failures, done = [], threading.Event()

    def run(work):
        try:
            work()
        except Exception as error:
            failures.append(error)

    def change(server):
        for version in range(15):
            index.replace_server(make_tools(server, version)[: 5 + version % 5], server=server)
            index.remove([f"{server}_0"], server=server)

    def search():
        while not done.is_set():
            hits = index.search("delete the file of the customer", 5)
            assert hits[0].tool.name == "stable"
            assert len({(hit.server, hit.tool.name) for hit in hits}) == len(hits)
            assert index.find("stable") is not None

    def save():
        while not done.is_set():
            index.save(tmp_path / "tools.index")
            assert ToolIndex.load(tmp_path / "tools.index", HashEncoder()).find("stable") is not None

    readers = [threading.Thread(target=run, args=(work,)) for work in (search, search, save)]
    writers = [threading.Thread(target=run, args=(lambda name=name: change(name),)) for name in ("a", "b")]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert failures == []
    scratch = ToolIndex(HashEncoder())
    for entry in index:
        scratch.add([entry.tool], server=entry.server)
    assert len(index) == 1 + 2 * 8
    for query in ("file tool 3", "delete the customer", "version 14"):
        found = [(hit.tool.name, round(hit.score, 4)) for hit in index.search(query, 50)]
        assert sorted(found) == sorted((hit.tool.name, round(hit.score, 4)) for hit in scratch.search(query, 50))


def test_two_threads_add_the_same_tools():
    index = ToolIndex(HashEncoder())
    threads = [threading.Thread(target=index.add, args=(make_tools("a", 1),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(index) == len(list(index)) == 10
    assert len(index.search("file tool", 50)) == 10
