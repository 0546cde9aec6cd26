"""The encoder in numpy returns the vectors of the reference implementation."""

import json

import numpy as np
import pytest

from places import TESTS
from toolwire.ir.errors import ConfigError
from toolwire.retrieve import MiniLm, open_minilm

REFERENCE = json.loads((TESTS / "vectors" / "retrieve" / "minilm.json").read_text("utf-8"))
TEXTS = [row["text"] for row in REFERENCE["vectors"]]


@pytest.fixture(scope="module")
def plain():
    return open_minilm(adapted=False)


@pytest.fixture(scope="module")
def vectors(plain):
    return plain.encode(TEXTS)


def test_vectors_are_those_of_the_reference(vectors):
    expected = np.array([row["vector"] for row in REFERENCE["vectors"]], np.float32)
    assert np.abs(vectors - expected).max() < 1e-4


def test_batch_does_not_change_a_vector(plain, vectors):
    for number in (0, 3, 9, len(TEXTS) - 1):
        assert np.abs(plain.encode([TEXTS[number]])[0] - vectors[number]).max() < 1e-5


def test_vectors_have_length_one_and_texts_any_number(plain, vectors):
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert plain.encode([]).shape == (0, plain.dimensions)


def test_progress_ends_with_all_texts(plain):
    seen = []
    plain.encode(TEXTS[:6], lambda done, count: seen.append((done, count)))
    assert seen[-1] == (6, 6)


def test_lone_surrogates_are_replaced(plain):
    """Command-line arguments and file names that are not valid UTF-8 contain them."""
    assert (plain.encode(["weather \ud800", "a\udcff"]) == plain.encode(["weather ?", "a?"])).all()


def test_adapted_encoder_has_another_name_and_finds_a_paraphrased_tool(plain):
    adapted = open_minilm()
    assert adapted.name != plain.name
    tools = ["get weather. Return the forecast for a city", "close issue. Close an issue of a repository"]
    query = adapted.encode(["do I need an umbrella in Lyon tomorrow"])
    assert (query @ adapted.encode(tools).T)[0].argmax() == 0


def test_damaged_weights_are_reported(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ConfigError, match="cannot read the encoder"):
        MiniLm(tmp_path)


def test_states_of_tokens_have_the_direction_of_the_vector(plain):
    expected = np.array([row["vector"] for row in REFERENCE["vectors"]], np.float32)
    sums = np.array([states.sum(axis=0) for states in plain.encode_tokens(TEXTS)])
    assert np.abs(sums / np.linalg.norm(sums, axis=1, keepdims=True) - expected).max() < 1e-4


def test_states_are_cut_after_the_given_number_of_tokens(plain):
    short, long = plain.encode_tokens(["weather", "weather " * 100], 16)
    assert len(short) == 3
    assert len(long) == 16
