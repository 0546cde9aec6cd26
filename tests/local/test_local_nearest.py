"""The ranking of functions for the local model, by words and by meaning."""

import numpy as np
import pytest

from toolwire import Tool
from toolwire.local import nearest
from toolwire.local.nearest import MAX_ENCODED, rank_functions

MEANINGS = {"cancel": 0, "stop": 0, "weather": 1, "rain": 1, "mail": 2, "letter": 2}


class Meanings:
    """An encoder that knows a few synonyms, and counts the texts that it reads."""

    name = "synonyms"
    dimensions = 4

    def __init__(self):
        self.read = []

    def encode(self, texts, progress=None):
        self.read += texts
        vectors = np.full((len(texts), 4), 0.01, np.float32)
        for row, text in enumerate(texts):
            for word, place in MEANINGS.items():
                vectors[row, place] += word in text.lower()
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def encoder(monkeypatch):
    meanings = Meanings()
    cached = nearest._CachedEncoder(meanings)
    monkeypatch.setattr(nearest, "_open_encoder", lambda: cached)
    return meanings


def names(found):
    return list(found)


TOOLS = (
    Tool("stop_order", "Stop an order."),
    Tool("get_weather", "The weather of a city."),
    Tool("send_letter", "Send a letter."),
)


def test_words_rank_functions_without_an_encoder(monkeypatch):
    monkeypatch.setattr(nearest, "_open_encoder", lambda: None)
    found = rank_functions("weather in Oslo", TOOLS, 3)
    assert {name: rank for name, (_, rank) in found.items()} == {"get_weather": 0, "stop_order": 1, "send_letter": 1}
    assert next(iter(found)) == "get_weather"


def test_meaning_finds_a_function_without_a_common_word(encoder):
    assert names(rank_functions("is rain coming?", TOOLS, 1)) == ["get_weather"]


def test_few_functions_are_ranked_by_words_alone(encoder):
    assert [rank for _, rank in rank_functions("is rain coming?", TOOLS, 3).values()] == [0, 0, 0]
    assert not encoder.read


def test_functions_are_encoded_once(encoder):
    for text in ("is rain coming?", "cancel it"):
        rank_functions(text, TOOLS, 1)
    assert len(encoder.read) == len(set(encoder.read)) == len(TOOLS) + 2


def test_of_thousands_of_functions_few_are_encoded(encoder):
    many = [Tool(f"function_{number}", f"Number {number}.") for number in range(1_000)]
    found = rank_functions("is rain coming?", [*many, Tool("rain_radar", "Show rain.")], 6)
    assert names(found)[0] == "rain_radar" and len(found) == 6
    assert len(encoder.read) <= MAX_ENCODED + 1


def test_functions_of_one_name_are_ranked_once(encoder):
    twice = (Tool("stop_order", "The first."), Tool("stop_order", "The second."), *TOOLS[1:])
    assert rank_functions("cancel order", twice, 2)["stop_order"][0].description == "The first."


def test_vectors_of_old_functions_are_forgotten(encoder, monkeypatch):
    monkeypatch.setattr(nearest, "_MAX_CACHED", 3)
    for _ in range(2):
        rank_functions("is rain coming?", TOOLS, 1)
    assert len(encoder.read) > len(TOOLS) + 1
