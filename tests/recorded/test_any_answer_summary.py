"""A summary of an answer equals the facts of the decoded answer, for every document; or there is no summary."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.bridge.conversation.restored_turns import turn_is_incomplete
from toolwire.bridge.conversation.turns import StoredTurn
from toolwire.ir import ProtocolError
from toolwire.stream.strict import parse_object
from toolwire.testing import load_vectors
from toolwire.testing.conformance import mutations
from toolwire.wire import get
from toolwire.wire.documents import AnswerSummary

USUAL = {
    "openai_chat": [
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1763000000,
            "model": "gpt-6",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": 'Set "a": b',
                        "tool_calls": [
                            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}},
                            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": '{"a'}},
                        ],
                        "refusal": None,
                        "annotations": [],
                    },
                    "logprobs": None,
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            "service_tier": "default",
            "system_fingerprint": None,
        },
        {
            "id": "x",
            "model": "m",
            "choices": [{"message": {"role": "assistant", "content": "", "refusal": "No."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 4},
        },
    ],
}
WIRES = list(USUAL)


def documents(wire):
    """Return the usual answers and all whole answers among the vectors of a wire."""
    vectors = load_vectors(f"tests/vectors/wire/{wire}.json")
    wholes = [vector.body if vector.kind == "response" else vector.whole for vector in vectors]
    return USUAL[wire] + [whole for whole in wholes if isinstance(whole, dict)]


def check(wire, data):
    """Compare the summary of `data` with its decoded answer, and return whether there is one."""
    codec = get(wire)
    summary = codec.summarise(data)
    if summary is None:
        return False
    response = codec.decode_response(parse_object(data))
    assert response.fault is None
    assert response.alternatives == ()
    assert not turn_is_incomplete(StoredTurn(response.parts), same_wire=True)
    names = tuple(call.name for call in response.calls)
    assert summary == AnswerSummary(response.id, response.model, response.stop.reason, response.usage, names)
    assert response.usage.extra == summary.usage.extra
    return True


def spellings(document):
    """Yield one document as bytes in several spellings."""
    yield json.dumps(document).encode()
    yield json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    yield json.dumps(document, indent="\t").encode()
    yield json.dumps(document, separators=(", ", "  :\n")).encode()


@pytest.mark.parametrize("wire", WIRES)
def test_usual_answer_has_a_summary(wire):
    for document in USUAL[wire]:
        assert all(check(wire, data) for data in spellings(document))


@pytest.mark.parametrize("wire", WIRES)
def test_summary_of_each_vector_equals_its_decoded_answer(wire):
    found = [check(wire, data) for document in documents(wire) for data in spellings(document)]
    assert any(found)


@pytest.mark.parametrize("wire", WIRES)
def test_summary_of_a_mutated_answer_equals_its_decoded_answer(wire):
    random = Random(wire)
    for document in documents(wire):
        for mutated in mutations(document, random, 60):
            if isinstance(mutated, dict):
                check(wire, random.choice(list(spellings(mutated))))


def _objects(value):
    """Yield all objects in a document."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


class _Duplicate(str):
    """A key that equals no other key, so that a dict can hold it twice."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return self is other


@every_case("spelling", range(4))
@every_case("wire", WIRES)
def test_duplicate_key_prevents_a_summary(wire, spelling):
    for original in USUAL[wire]:
        for number in range(len(list(_objects(original)))):
            document = json.loads(json.dumps(original))
            target = list(_objects(document))[number]
            for key in list(target) or ["a"]:
                value = target.get(key, 1)
                target[_Duplicate(key)] = value
                if not original or len(target) == 1:
                    target[_Duplicate(key)] = value
                data = list(spellings(document))[spelling]
                with pytest.raises(ProtocolError, match="duplicate"):
                    parse_object(data)
                assert get(wire).summarise(data) is None
                for duplicate in [one for one in target if type(one) is _Duplicate]:
                    del target[duplicate]


@every_case("hidden", [b' :"x"', b'\n:"x"', b"\t: 1", b' \n :{"a\\\\": 1}'])
@every_case("wire", WIRES)
def test_white_space_does_not_hide_a_duplicate_key(wire, hidden):
    for document in USUAL[wire]:
        data = json.dumps(document).encode()
        for key in {key for one in _objects(document) for key in one}:
            name = json.dumps(key).encode()
            assert get(wire).summarise(data.replace(name + b":", name + hidden + b", " + name + b":", 1)) is None


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
def test_summary_of_damaged_bytes_equals_its_decoded_answer(wire, data):
    document = data.draw(st.sampled_from(USUAL[wire]))
    text = data.draw(st.sampled_from(list(spellings(document))))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    inserted = data.draw(st.binary(max_size=4) | st.sampled_from(FRAGMENTS))
    check(wire, text[:start] + inserted + text[end:])


FRAGMENTS = [
    b"1e400",
    b"-1",
    b"5.0",
    b"1" * 30,
    b"1" * 4400,
    b"\\",
    b'"',
    b'\\"',
    b'":',
    b"\\ud800",
    b"\\ud83d\\ude00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"NaN",
    b"null",
    b"{}",
    b"[]",
    b'"id":"x",',
    b'"a\\\\":1,',
    b"[" * 300 + b"]" * 300,
    b'{"a":' * 300 + b"1" + b"}" * 300,
]


@pytest.mark.parametrize("wire", WIRES)
def test_truncated_answer_has_no_summary(wire):
    for document in USUAL[wire]:
        data = json.dumps(document).encode()
        assert not any(get(wire).summarise(data[:end]) for end in range(len(data)))


UNUSUAL_VALUES = [
    b"1e400",
    b"1e5",
    b"7.0",
    b"1" * 30,
    b"1" * 5000,
    b"[" * 300 + b"]" * 300,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b'{"a":1,"a":1}',
    b'{"a\\\\":1,"a\\\\":1}',
    b'"\\ud800"',
    b'"\xff"',
    b'"\x01"',
    b'"a\\": b"',
    b"null",
    b"true",
    b'"stop"',
]


@every_case("value", UNUSUAL_VALUES, ids=lambda value: repr(value[:12]))
@every_case("wire", WIRES)
def test_summary_with_an_unusual_value_equals_its_decoded_answer(wire, value):
    for original in USUAL[wire]:
        for number in range(len(list(_objects(original)))):
            for key in list(_objects(original))[number]:
                document = json.loads(json.dumps(original))
                list(_objects(document))[number][key] = "<value>"
                check(wire, json.dumps(document).encode().replace(b'"<value>"', value))


def test_backslashes_before_quotes_do_not_prevent_a_summary():
    function = {"name": "f", "arguments": '{"a\\": 1, "b": "{\\"c\\\\\\": 2"}'}
    document = json.loads(json.dumps(USUAL["openai_chat"][0]))
    document["choices"][0]["message"]["tool_calls"][0]["function"] = function
    assert all(check("openai_chat", data) for data in spellings(document))


@pytest.mark.parametrize("wire", WIRES)
def test_error_has_no_summary(wire):
    for error in ({"error": {"message": "x", "code": 500}}, {"type": "error", "error": {"type": "x", "message": "x"}}):
        assert get(wire).summarise(json.dumps(error).encode()) is None


def test_raw_completion_endpoint_has_no_summaries():
    assert get("openai_chat").at_completions().summarise(json.dumps(USUAL["openai_chat"][0]).encode()) is None
