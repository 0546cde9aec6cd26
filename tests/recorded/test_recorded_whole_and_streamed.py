"""Recorded answers have the same translation as a document and as a stream, on every other wire."""

from functools import cache

import pytest
from recorded_answers import answers, streams
from recorded_traffic import require_recordings

import toolwire
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get, names
from whole_and_streamed import as_document, as_stream, disagreements, is_same_answer

WIRES = [name for name in names() if "@" not in name]
_BEDROCK = "amazon-bedrock/src/__fixtures__/amazon-bedrock-json"
WRITTEN_BY_HAND = {
    # shortened: its deltas are another text than its finished item, which only the stream can report
    "openai/src/responses/__fixtures__/openai-shell-container.1.chunks.txt",
    # with a field that blocks of Converse do not have, and that no event of a stream can carry: `"type": "text"`
    *(f"{_BEDROCK}-{name}.json" for name in ("tool.2", "tool.3", "with-tools.1")),
    # without `metadata`, so without the usage, which every answer of Converse has
    *(f"{_BEDROCK}-tool.{number}.chunks.txt" for number in (1, 2, 3)),
}


@cache
def recorded_answers(wire):
    found = [one for one in answers() if one.body is not None] + streams()
    return [one for one in found if one.wire == wire and one.name not in WRITTEN_BY_HAND]


def has_one_form(answer):
    """Return whether an answer has no counterpart in the other form: an unfinished document, a stream that failed."""
    codec = get(answer.wire)
    if answer.body is not None:
        response = codec.decode_response(answer.body)
        return response.fault is not None or response.stop is None
    return toolwire.fold(decode_stream(codec, [answer.data])).fault is not None


def forms(answer):
    """Return the document and the stream of a recorded answer; the form that was not recorded is derived."""
    codec = get(answer.wire)
    if answer.body is None:
        return as_document(codec, answer.data), answer.data
    return answer.body, as_stream(codec, codec.decode_response(answer.body))


@pytest.mark.parametrize("wire", WIRES)
def test_recorded_answers_are_the_same_in_both_forms(wire):
    require_recordings()
    found = [one for one in recorded_answers(wire) if not has_one_form(one)]
    assert [one.name for one in found if not is_same_answer(get(wire), *forms(one))] == []
    assert len(recorded_answers(wire)) - len(found) <= 20


@pytest.mark.one_in(3)
@pytest.mark.parametrize("target", WIRES)
@pytest.mark.parametrize("source", WIRES)
def test_recorded_answers_have_the_same_translation_in_both_forms(source, target):
    require_recordings()
    if source == target:
        return
    found = {
        one.name: disagreements(*forms(one), source, target)
        for one in recorded_answers(source)
        if not has_one_form(one)
    }
    assert {name: different for name, different in found.items() if different} == {}
