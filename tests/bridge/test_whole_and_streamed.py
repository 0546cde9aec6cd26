"""Whole and streamed answers have the same result on every other wire: the same answer, losses and fault."""

from functools import cache

import pytest

from places import TESTS
from tables import every_case
from toolwire.testing import load_vectors
from toolwire.wire import get, names
from whole_and_streamed import as_document, as_stream, disagreements, is_same_answer

VECTORS = TESTS / "vectors" / "wire"
ONE_FORM_ONLY = {
    "anthropic": {"an error in the middle", "without a stop sequence, counts and an id"},
    "bedrock": {
        "a model error before the first event",
        "an answer without metrics, with a type in its texts",
        "throttled in the middle",
    },
    "cohere": {"an error at the end", "an error at once", "without starts, ends and indices"},
    "gemini": {"an error in the middle", "a malformed call", "no candidates and no reason"},
    "gemini_interactions": {
        "an error event",
        "incomplete in the arguments of a call",
        "running in the background",
        "two calls",
    },
    "ollama": {"an error at once", "an error in the middle", "words, thoughts again, words"},
    "openai_chat": {
        "an error in the middle",
        "as little as some servers send",
        "reasoning with a reference inside, a call behind it",
    },
    "openai_responses": {
        "as little as some servers send",
        "queued in the background",
    },
}
"""Answers that their own wire can carry in one of the two forms only, or with other fields in the other form."""


@cache
def pairs_of_forms(wire):
    """Return (name, document, stream) for each answer of the vectors."""
    codec = get(wire)
    found = []
    for vector in load_vectors(VECTORS / f"{wire}.json"):
        if vector.kind not in ("response", "stream") or vector.name in ONE_FORM_ONLY[wire]:
            continue
        if vector.kind == "response":
            found.append((vector.name, vector.body, as_stream(codec, codec.decode_response(vector.body))))
        else:
            found.append((vector.name, vector.whole or as_document(codec, vector.data), vector.data))
    return found


@pytest.mark.parametrize("source", names())
def test_vectors_are_the_same_answer_in_both_forms(source):
    different = [
        name for name, document, data in pairs_of_forms(source) if not is_same_answer(get(source), document, data)
    ]
    assert different == []


@every_case("target", names())
@every_case("source", names())
def test_vectors_have_the_same_translation_in_both_forms(source, target):
    if source == target:
        return
    found = {name: disagreements(document, data, source, target) for name, document, data in pairs_of_forms(source)}
    assert {name: different for name, different in found.items() if different} == {}
