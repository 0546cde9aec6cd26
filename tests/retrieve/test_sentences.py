"""Queries of several sentences, and the reasons of matches, in a catalogue that is larger than the candidates."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from toolwire import Tool
from toolwire.retrieve import ToolIndex
from toolwire.run.tools.words import split_words

COUNT = 1_500
QUERY = "Reserve number 7 please. Then cancel number 1400 for me."


class WordVectors:
    """An encoder whose vectors are sums of a fixed random vector per word, so that equal words are similar."""

    name = "word vectors"
    dimensions = 256

    def encode(self, texts: Sequence[str], progress: Any = None) -> Any:
        rows = [sum(map(self._vector, split_words(text)), np.zeros(self.dimensions)) for text in texts]
        return np.array([row / max(np.linalg.norm(row), 1e-9) for row in rows], np.float32)

    def _vector(self, word: str) -> Any:
        seed = int.from_bytes(sha256(word.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).normal(size=self.dimensions)


@pytest.fixture(scope="module")
def index() -> ToolIndex:
    index = ToolIndex(WordVectors())
    index.add([Tool(f"cancel_{number}", f"Cancel number {number}.") for number in range(COUNT)], server="a")
    index.add([Tool("reserve_7", "Reserve number 7."), Tool("forecast", "Weather of a city.")], server="b")
    return index


def test_each_sentence_finds_its_tool_in_a_large_catalogue(index: ToolIndex) -> None:
    names = [hit.tool.name for hit in index.search(QUERY, 2)]
    assert set(names) == {"reserve_7", "cancel_1400"}


def test_a_sentence_never_returns_an_excluded_or_removed_tool(index: ToolIndex) -> None:
    hits = index.search(QUERY, COUNT, servers=["b"])
    assert {hit.server for hit in hits} == {"b"}
    small = ToolIndex(WordVectors())
    small.add([Tool("reserve_7", "Reserve number 7."), Tool("cancel_1400", "Cancel number 1400.")])
    small.remove(["cancel_1400"])
    assert [hit.tool.name for hit in small.search(QUERY, 5)] == ["reserve_7"]


def test_reasons_name_the_words_of_each_field_in_the_spelling_of_the_query(index: ToolIndex) -> None:
    (best, *_) = index.search("Reserving a city, number 7!", 1)
    assert best.tool.name == "reserve_7"
    assert best.reasons[:2] == ("name: reserving, 7", "description: reserving, number, 7")
    assert best.reasons[-1].startswith("meaning: ")


def test_reasons_are_found_in_every_segment_and_after_a_change(index: ToolIndex) -> None:
    changed = ToolIndex()
    changed.add([Tool("alpha", "Compress a file.")])
    changed.add([Tool("beta", "Compress a folder.")])
    changed.add([Tool("alpha", "Compress an archive.")])
    reasons = {hit.tool.name: hit.reasons for hit in changed.search("compress the archive or folder", 5)}
    assert reasons == {
        "alpha": ("description: compress, archive",),
        "beta": ("description: compress, folder",),
    }
