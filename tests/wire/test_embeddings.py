"""Requests for embeddings and their answers between all wires, exact or with losses."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.ir.errors import EncodeError, ProtocolError, ToolwireError
from toolwire.ir.losses import Losses
from toolwire.ir.response import Usage
from toolwire.wire.embeddings import (
    EmbeddingRequest,
    Embeddings,
    decode_embedding_request,
    decode_embeddings,
    encode_embedding_request,
    encode_embeddings,
)

WIRES = ("openai_chat", "gemini", "ollama", "cohere")
WITH_TASK = ("gemini", "cohere")
REQUESTS = {
    "openai_chat": {"model": "m", "input": ["a", "b"], "dimensions": 3, "encoding_format": "float"},
    "gemini": {
        "requests": [
            {
                "model": "models/m",
                "content": {"parts": [{"text": text}]},
                "taskType": "CLUSTERING",
                "outputDimensionality": 3,
            }
            for text in "ab"
        ]
    },
    "ollama": {"model": "m", "input": ["a", "b"], "dimensions": 3},
    "cohere": {
        "model": "m",
        "texts": ["a", "b"],
        "input_type": "clustering",
        "embedding_types": ["float"],
        "output_dimension": 3,
    },
}
every_pair = pytest.mark.parametrize(("front", "wire"), [*itertools.product(WIRES, WIRES)])


@every_pair
def test_request_is_translated_exactly_or_with_losses(front, wire):
    losses = Losses()
    decoded = decode_embedding_request(front, "m", REQUESTS[front], losses)
    assert not losses
    encoded = encode_embedding_request(wire, decoded, losses)
    expected = json.loads(json.dumps(REQUESTS[wire]))
    if front not in WITH_TASK and wire == "gemini":
        for part in expected["requests"]:
            del part["taskType"]
    if front not in WITH_TASK and wire == "cohere":
        expected["input_type"] = "search_document"
    assert encoded == expected
    is_exact = (front in WITH_TASK and wire in WITH_TASK) or (front not in WITH_TASK and wire != "cohere")
    assert bool(losses) == (not is_exact)


@pytest.mark.parametrize("wire", WIRES)
def test_request_is_read_as_it_was_written(wire):
    request = EmbeddingRequest("m", ("a", "b"), "query" if wire in WITH_TASK else None, 8)
    losses = Losses()
    assert decode_embedding_request(wire, "m", encode_embedding_request(wire, request, losses), losses) == request
    assert not losses


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@every_pair
@given(vectors=st.lists(st.lists(numbers, min_size=2, max_size=4), min_size=1, max_size=3))
def test_answer_keeps_its_numbers(front, wire, vectors):
    answer = Embeddings(tuple(map(tuple, vectors)), "up", Usage(7, 0))
    request = EmbeddingRequest("mine", ("x",) * len(vectors))
    upstream = decode_embeddings(wire, encode_embeddings(wire, answer, request))
    client = decode_embeddings(front, encode_embeddings(front, upstream, request))
    assert client.vectors == answer.vectors
    assert client.usage == Usage(7, 0)


def test_base64_is_openais_form_of_the_same_numbers():
    answer = Embeddings(((0.5, -1.25),))
    document = encode_embeddings("openai_chat", answer, EmbeddingRequest("m", ("a",), encoding="base64"))
    assert document["data"][0]["embedding"] == "AAAAPwAAoL8="
    assert decode_embeddings("openai_chat", document).vectors == answer.vectors


def test_single_content_of_gemini_has_a_single_answer():
    request = decode_embedding_request("gemini", "m", {"content": {"parts": [{"text": "a"}]}}, Losses())
    assert encode_embeddings("gemini", Embeddings(((1.0,),)), request) == {"embedding": {"values": [1.0]}}


@pytest.mark.parametrize(
    ("wire", "document", "concept"),
    [
        ("openai_chat", {"input": "a", "user": "u"}, "embedding_option"),
        ("ollama", {"input": "a", "options": {"num_ctx": 1}}, "embedding_option"),
        ("gemini", {"content": {"parts": [{"text": "a"}]}, "title": "t"}, "embedding_option"),
        ("gemini", {"content": {"parts": [{"text": "a"}]}, "taskType": "FACT_VERIFICATION"}, "embedding_task"),
    ],
)
def test_field_without_a_counterpart_is_a_loss(wire, document, concept):
    losses = Losses()
    decode_embedding_request(wire, "m", document, losses)
    assert [loss.concept for loss in losses] == [concept]


@pytest.mark.parametrize(
    ("wire", "document", "error"),
    [
        ("openai_chat", {"input": [1, 2]}, EncodeError),
        ("openai_chat", {"input": []}, ProtocolError),
        ("openai_chat", {}, ProtocolError),
        ("openai_chat", {"input": "a", "dimensions": "x"}, ProtocolError),
        ("gemini", {"requests": [{"content": {"parts": [{"inlineData": {}}]}}]}, EncodeError),
        ("gemini", {"requests": ["x"]}, ProtocolError),
        ("cohere", {"texts": ["a"], "embedding_types": ["int8"]}, ProtocolError),
    ],
)
def test_request_that_cannot_be_translated_is_refused(wire, document, error):
    with pytest.raises(error):
        decode_embedding_request(wire, "m", document, Losses())


def test_different_tasks_in_one_request_are_refused():
    parts = [{"content": {"parts": [{"text": "a"}]}, "taskType": task} for task in ("CLUSTERING", "RETRIEVAL_QUERY")]
    with pytest.raises(EncodeError, match="different settings"):
        decode_embedding_request("gemini", "m", {"requests": parts}, Losses())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
names = ("input", "texts", "requests", "content", "embeddings", "embedding", "data", "usage", "meta", "index")


@pytest.mark.parametrize("wire", WIRES)
@given(document=st.dictionaries(st.sampled_from(names), json_values, max_size=4))
def test_any_document_is_read_or_refused(wire, document):
    for read in (
        lambda: decode_embedding_request(wire, "m", document, Losses()),
        lambda: decode_embeddings(wire, document),
    ):
        try:
            found = read()
        except ToolwireError:
            continue
        assert all(map(math.isfinite, itertools.chain(*getattr(found, "vectors", ()))))
