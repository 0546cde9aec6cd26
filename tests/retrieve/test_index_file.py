"""Saving and opening an index: the same results, and a typed error for every file that is not usable."""

import os
import struct
import subprocess
import sys

import pytest

from hash_encoder import HashEncoder
from toolwire import Tool
from toolwire.ir.errors import ConfigError
from toolwire.retrieve import IndexFileError, ToolIndex, is_index_file, read_index_info
from toolwire.retrieve.documents import make_document

QUERIES = ("open a ticket for the customer", "weather tomorrow", "delete files", "東京の天気", "city", "")


def make_tool(name, description="", effect="write", **parameters):
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    return Tool(name, description, {"type": "object", "properties": properties}, effect=effect)


TOOLS = [
    make_tool("create_ticket", "Open a ticket for a customer", customer="The customer's e-mail"),
    make_tool("getWeather", "Get the weather of a city", effect="read", city="Name of the city"),
    make_tool("delete_file", "Delete a file for ever", path="Path of the file"),
    make_tool("天気", "東京の天気を表示する", effect="read"),
]


def make_index(encoder=None):
    index = ToolIndex(encoder)
    index.add(TOOLS, server="main", tags=("office", "demo"))
    index.add([make_tool("list_files", "List the files of a folder", effect="read")], server="disk")
    return index


def results(index, **filters):
    return [
        [(hit.server, hit.tool, round(hit.score, 5), hit.reasons) for hit in index.search(query, 3, **filters)]
        for query in QUERIES
    ]


@pytest.mark.parametrize("encoder", [None, HashEncoder()], ids=["words", "vectors"])
def test_loaded_index_gives_the_same_results(tmp_path, encoder):
    index = make_index(encoder)
    index.save(tmp_path / "tools.index")
    loaded = ToolIndex.load(tmp_path / "tools.index", encoder)
    assert len(loaded) == 5
    assert list(loaded) == list(index)
    assert results(loaded) == results(index)
    for filters in (
        {"servers": {"disk"}},
        {"tags": ["demo"]},
        {"effects": {"read"}},
        {"allow": lambda entry: "e" in entry.tool.name},
    ):
        assert results(loaded, **filters) == results(index, **filters)
    assert loaded.find("delete_file") == TOOLS[2]
    assert loaded.find("delete_file", "disk") is None


@pytest.mark.parametrize("encoder", [None, HashEncoder()], ids=["words", "vectors"])
def test_saved_changes_equal_an_index_from_scratch(tmp_path, encoder):
    path = tmp_path / "tools.index"
    make_index(encoder).save(path)
    changed = make_tool("getWeather", "Forecast of rain", effect="read", place="Place")
    for index in (ToolIndex.load(path, encoder), make_index(encoder)):
        index.remove(["create_ticket", "unknown"], server="main")
        index.add([changed, make_tool("send_mail", "Send a letter")], server="main", tags=("office", "demo"))
        index.save(path)
        scratch = ToolIndex(encoder)
        for entry in index:
            scratch.add([entry.tool], server=entry.server, tags=entry.tags)
        loaded = ToolIndex.load(path, encoder)
        assert [entry.tool.name for entry in loaded] == ["delete_file", "天気", "list_files", "getWeather", "send_mail"]
        assert results(loaded) == results(index) == results(scratch)
        assert "ticket" not in path.read_bytes().decode("utf-8", "ignore")


def test_update_of_a_saved_index_encodes_only_changed_declarations(tmp_path):
    path = tmp_path / "tools.index"
    make_index(HashEncoder()).save(path)
    encoder = HashEncoder()
    index = ToolIndex.load(path, encoder)
    change = index.replace_server(
        [*TOOLS[:2], make_tool("delete_file", "Remove a file")], server="main", tags=("office", "demo")
    )
    assert (change.updated, change.removed, change.unchanged) == (("delete_file",), ("天気",), 2)
    assert len(encoder.texts) == 1
    index.save(path)
    again = ToolIndex.load(path, encoder)
    assert again.replace_server([entry.tool for entry in index if entry.server == "disk"], server="disk").unchanged == 1
    assert len(encoder.texts) == 1


def test_fields_that_are_not_searched_are_updated_without_encoding():
    encoder = HashEncoder()
    index = ToolIndex(encoder)
    index.add([Tool("f", "Do it", {"type": "object"})])
    change = index.add([Tool("f", "Do it", {"type": "object"}, output_schema={"type": "string"})])
    assert change.unchanged == 1
    assert index.find("f").output_schema == {"type": "string"}
    assert len(encoder.texts) == 1


def test_empty_index_is_saved(tmp_path):
    ToolIndex(HashEncoder()).save(tmp_path / "empty")
    index = ToolIndex.load(tmp_path / "empty", HashEncoder())
    assert index.search("weather") == []
    index.add(TOOLS)
    assert index.search("weather")[0].tool.name == "getWeather"


def test_index_without_vectors_opens_with_words_only(tmp_path):
    make_index().save(tmp_path / "words")
    make_index(HashEncoder()).save(tmp_path / "vectors")
    encoder = HashEncoder()
    for path, given in ((tmp_path / "words", encoder), (tmp_path / "vectors", None)):
        index = ToolIndex.load(path, given)
        assert index.encoder is None
        assert results(index) == results(make_index())
    assert encoder.texts == []
    with pytest.raises(ConfigError, match="opened without its encoder 'hash'"):
        index.save(tmp_path / "vectors")
    assert read_index_info(tmp_path / "words").encoder is None
    info = read_index_info(tmp_path / "vectors")
    assert (info.tools, info.encoder, info.dimensions, info.servers) == (5, "hash", 16, ("main", "disk"))


@pytest.mark.parametrize("other", [HashEncoder("other"), HashEncoder("hash", 8)], ids=["name", "dimensions"])
def test_index_of_another_encoder_is_refused(tmp_path, other):
    make_index(HashEncoder()).save(tmp_path / "tools.index")
    with pytest.raises(IndexFileError, match=r"made with the encoder 'hash' \(16 dimensions\)"):
        ToolIndex.load(tmp_path / "tools.index", other)


def test_index_of_another_word_splitter_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "tools.index"
    with monkeypatch.context() as patch:
        patch.setattr("toolwire.retrieve.index_file.analysis_key", lambda: "other")
        make_index().save(path)
    with pytest.raises(IndexFileError, match="splits words differently"):
        ToolIndex.load(path)


def test_index_is_recognised_by_its_first_bytes(tmp_path):
    make_index().save(tmp_path / "tools.index")
    (tmp_path / "other").write_bytes(b"{}")
    assert is_index_file(tmp_path / "tools.index")
    assert not any(map(is_index_file, (tmp_path / "other", tmp_path / "missing", tmp_path)))


def test_vectors_are_returned_in_the_order_of_the_tools(tmp_path):
    encoder = HashEncoder()
    index = make_index(encoder)
    index.remove(["getWeather"], server="main")
    index.save(tmp_path / "tools.index")
    for each in (index, ToolIndex.load(tmp_path / "tools.index", encoder)):
        tools, vectors = each.vectors()
        assert [entry.tool.name for entry in tools] == ["create_ticket", "delete_file", "天気", "list_files"]
        assert (vectors[3] == encoder.encode([make_document(tools[3].tool, server="disk").text])).all()
    assert make_index().vectors() is None


def use_everything(path):
    """Open an index and read all of it."""
    index = ToolIndex.load(path, HashEncoder(dimensions=4))
    return list(index), index.search("weather", 1), index.find("getWeather")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "tools.index"
    make_index(HashEncoder()).save(path)
    return path.read_bytes()


def test_every_truncation_is_refused(saved, tmp_path):
    path = tmp_path / "damaged"
    for size in [*range(200), *range(200, len(saved), 7), len(saved) - 1]:
        path.write_bytes(saved[:size])
        with pytest.raises(IndexFileError):
            ToolIndex.load(path, HashEncoder())
    path.write_bytes(saved + b"\0")
    with pytest.raises(IndexFileError, match="damaged"):
        ToolIndex.load(path, HashEncoder())


def test_flipped_bytes_are_refused(tmp_path):
    path = tmp_path / "damaged"
    index = ToolIndex(HashEncoder(dimensions=4))
    index.add(TOOLS[1:2], server="main", tags=("office",))
    index.save(path)
    saved = path.read_bytes()
    assert use_everything(path)
    for position in [*range(64), *range(64, len(saved), 3)]:
        damaged = bytearray(saved)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(IndexFileError):
            use_everything(path)


def test_swapped_vectors_are_refused_before_the_first_result(saved, tmp_path):
    path = tmp_path / "damaged"
    vector = HashEncoder().encode([""])  # a position inside of the vectors: the end of the sections
    end = saved.rindex(b'{"info"')
    damaged = saved[: end - vector.nbytes] + bytes(vector.nbytes) + saved[end:]
    path.write_bytes(damaged)
    index = ToolIndex.load(path, HashEncoder())
    for _ in range(2):
        with pytest.raises(IndexFileError, match="'vectors'"):
            index.search("weather")
    assert ToolIndex.load(path).search("weather")  # words do not need them


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b'{"tools": []}', b"PK\x03\x04" * 100, b"toolwire index\n" * 9])
def test_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(IndexFileError, match=r"not an index of toolwire|cannot read"):
        ToolIndex.load(path)


def test_missing_file_and_folder_are_refused(tmp_path):
    with pytest.raises(IndexFileError, match="there is no index"):
        ToolIndex.load(tmp_path / "missing")
    with pytest.raises(IndexFileError, match="cannot read"):
        ToolIndex.load(tmp_path)
    with pytest.raises(IndexFileError, match="cannot write"):
        make_index().save(tmp_path / "missing" / "tools.index")


def test_newer_format_is_refused(saved, tmp_path):
    path = tmp_path / "newer"
    path.write_bytes(saved[:16] + struct.pack("<I", 99) + saved[20:])
    with pytest.raises(IndexFileError, match=r"format 99 of a newer version .*upgrade toolwire"):
        ToolIndex.load(path)


def test_tool_that_cannot_be_saved_is_refused_alone(tmp_path):
    index = ToolIndex(HashEncoder())
    index.add([Tool("nan", "Fine at first")])
    deep = {}
    for _ in range(20_000):  # also beyond the limit for C code in Python 3.12 and later, 10,000
        deep = {"properties": {"deeper": deep}}
    wrong = [
        Tool("list", "Has a list as its schema", []),
        Tool("surrogate", "Half of a character: \ud800"),
        Tool("nan", "Not JSON", {"const": float("nan")}),
        Tool("deep", "Nested", deep),
        Tool("object", "Not JSON", {"x": object()}),
    ]
    change = index.replace_server([*wrong, Tool("fine", "Delete a file")])
    assert [name for name, _ in change.refused] == ["list", "surrogate", "nan", "deep", "object"]
    assert all(reason for _, reason in change.refused)
    assert (change.added, change.removed) == (("fine",), ("nan",))
    index.save(tmp_path / "tools.index")
    assert [entry.tool.name for entry in ToolIndex.load(tmp_path / "tools.index", HashEncoder())] == ["fine"]


def test_failed_save_leaves_the_old_index(tmp_path, monkeypatch):
    path = tmp_path / "tools.index"
    make_index().save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(IndexFileError, match="No space left on device"):
        make_index(HashEncoder()).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_link_and_permissions_are_kept(tmp_path):
    path, link = tmp_path / "tools.index", tmp_path / "link"
    make_index().save(path)
    path.chmod(0o640)
    link.symlink_to(path)
    make_index(HashEncoder()).save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert read_index_info(path).encoder == "hash"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_named_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    code = (
        "import sys\nfrom toolwire.retrieve import ToolIndex, is_index_file\nprint(is_index_file(sys.argv[1]))\n"
        "try: ToolIndex.load(sys.argv[1])\nexcept Exception as error: print(type(error).__name__, error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "pipe")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.startswith("False\nIndexFileError cannot read the index")
    assert "not a regular file" in done.stdout
