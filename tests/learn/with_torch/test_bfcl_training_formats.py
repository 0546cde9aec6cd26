"""All ground-truth calls of BFCL through every training format that can be written, and back."""

import json

import pytest

from toolwire.ir.errors import EncodeError
from toolwire.ir.parts import Text
from toolwire.ir.request import Message
from toolwire.learn import formats, make_example, read_bfcl
from toolwire.learn.bfcl.entries import CALL_CATEGORIES, MULTI_TURN_CATEGORIES

SINGLE_TURN = {"xlam"}  # one question and its calls


@pytest.fixture(scope="module")
def single_turn():
    return [entry for entry in read_bfcl(CALL_CATEGORIES) if entry.all_calls]


@pytest.fixture(scope="module")
def multi_turn():
    return [entry for entry in read_bfcl(MULTI_TURN_CATEGORIES) if entry.all_calls]


def conversation(entry):
    """Build the whole conversation, with the text "ok" as the result of each call before the last turn."""
    messages = []
    last = max(number for number, calls in enumerate(entry.calls) if calls)
    for number, (turn, calls) in enumerate(zip(entry.turns, entry.calls, strict=True)):
        messages += turn or [Message("user", (Text("Continue."),))]
        messages.append(Message("assistant", calls or (Text("Which one?"),)))
        if number == last:
            break
        if calls:
            messages += [
                Message("user", tuple(call.result("ok") for call in calls)),
                Message("assistant", (Text("Done."),)),
            ]
    return make_example(messages, entry.tools)


def question_only(entry):
    text = "\n".join(message.text for message in entry.turns[0])
    return make_example([Message("user", (Text(text),)), Message("assistant", entry.calls[0])], entry.tools)


def round_trip(example, name):
    chosen = formats.get(name)
    row, _ = chosen.encode(example)
    return chosen.decode(json.loads(json.dumps(row)))


def identical(found, expected):
    """Compare names and arguments, and the types of all numbers: 1, 1.0 and true differ."""
    return [(call.name, repr(call.arguments)) for call in found] == [
        (call.name, repr(call.arguments)) for call in expected
    ]


@pytest.mark.parametrize("name", formats.names(writable=True))
def test_all_single_turn_calls_survive(single_turn, name):
    count = rewritten = 0
    for entry in single_turn:
        try:
            read = round_trip(conversation(entry), name)
        except EncodeError:  # a history that the format cannot express
            rewritten += 1
            read = round_trip(question_only(entry), name)
        assert identical(read.calls, entry.all_calls), entry.id
        assert [tool.name for tool in read.tools] == [tool.name for tool in entry.tools], entry.id
        count += len(read.calls)
    assert count == 3302
    assert rewritten == 0 or name in {"llamafactory", "llamafactory_openai", "xlam"}
    assert rewritten < len(single_turn) / 20


@pytest.mark.parametrize("name", sorted(set(formats.names(writable=True)) - SINGLE_TURN))
def test_all_multi_turn_calls_survive(multi_turn, name):
    count = 0
    for entry in multi_turn:
        read = round_trip(conversation(entry), name)
        assert identical(read.calls, entry.all_calls), entry.id
        count += len(read.calls)
    assert count == 4625
