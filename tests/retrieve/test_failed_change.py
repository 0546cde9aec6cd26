"""A change of an index that fails changes nothing, and never damages a saved index."""

import sys

import numpy as np
import pytest

from hash_encoder import HashEncoder
from toolwire import Tool
from toolwire.ir.errors import ConfigError, MissingExtra, StoreError
from toolwire.retrieve import ToolIndex

WEATHER, MAIL = Tool("weather", "Forecast of a city"), Tool("mail", "Send a mail")


class BrokenEncoder(HashEncoder):
    """Returns a wrong array for texts that contain "broken"."""

    def __init__(self, broken):
        super().__init__()
        self._broken = broken

    def encode(self, texts, progress=None):
        return self._broken if any("broken" in text for text in texts) else super().encode(texts, progress)


def describe(index):
    return [entry.tool for entry in index], [hit.tool.name for hit in index.search("forecast of a mail")]


@pytest.mark.parametrize("tool", [Tool("new", "broken"), Tool("mail", "broken update")], ids=["added", "updated"])
@pytest.mark.parametrize(
    ("broken", "message"),
    [(np.ones((1, 7)), "shape"), (np.ones((2, 16)), "shape"), (np.full((1, 16), np.nan), "NaN")],
    ids=["dimensions", "rows", "nan"],
)
def test_wrong_vectors_change_nothing(tmp_path, broken, message, tool):
    encoder, path = BrokenEncoder(broken), tmp_path / "tools.index"
    index = ToolIndex(encoder)
    index.add([WEATHER, MAIL])
    before = describe(index)
    with pytest.raises(ConfigError, match=message):
        index.add([tool])
    assert describe(index) == before
    index.save(path)
    assert describe(ToolIndex.load(path, encoder)) == before
    with pytest.raises(ConfigError, match=message):
        index.search("broken")


def test_missing_extra_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    index, path = ToolIndex(HashEncoder(), exact_limit=3), tmp_path / "tools.index"
    index.add([WEATHER, MAIL])
    before = describe(index)
    with pytest.raises(MissingExtra, match="requires usearch"):
        index.add([Tool("mail", "Another mail"), Tool("other", "Another tool")])
    assert describe(index) == before
    index.save(path)
    assert describe(ToolIndex.load(path, HashEncoder())) == before


def test_an_index_whose_change_was_interrupted_is_not_saved(tmp_path, monkeypatch):
    index, path = ToolIndex(HashEncoder()), tmp_path / "tools.index"
    index.add([WEATHER, MAIL])
    index.save(path)
    before = path.read_bytes()

    def fail(rows):
        raise MemoryError

    monkeypatch.setattr(index._vectors, "extend", fail)
    with pytest.raises(MemoryError):
        index.add([Tool("other", "Another tool")])
    with pytest.raises(StoreError, match="earlier change"):
        index.save(path)
    assert path.read_bytes() == before
