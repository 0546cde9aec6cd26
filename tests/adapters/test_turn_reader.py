"""The deltas of a turn: independent of chunking for all formats, with stable ids and append-only arguments."""

import random
from itertools import count

import msgspec
import pytest

from places import TESTS
from tables import every_case
from toolwire.adapters import CallPiece, TurnDelta, TurnReader, prompt_opens_reasoning, without_calls
from toolwire.testing import load_text_vectors
from toolwire.text import get, names

VECTORS = TESTS / "vectors" / "text"


def reader(name, tools=(), **options):
    numbers = count()
    return TurnReader(get(name), tools, new_id=lambda tool: f"{tool}-{next(numbers)}", **options)


def collect(deltas):
    """Add up deltas as a client does; refuse a piece that no client accepts."""
    reasoning, content, calls = "", "", []
    for delta in deltas:
        reasoning += delta.reasoning
        content += delta.content
        for piece in delta.calls:
            assert (piece.id is None) == (piece.name is None)
            if piece.name is not None:
                assert piece.index == len(calls), "calls are numbered in order"
                calls.append([piece.id, piece.name, ""])
            calls[piece.index][2] += piece.arguments
    return reasoning, content, calls


def chunkings(text):
    yield [text]
    yield list(text)
    numbers = random.Random(text)
    for size in (3, 11):
        cuts = sorted(numbers.sample(range(len(text) + 1), min(size, len(text) + 1)))
        yield [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.one_in(5)
@every_case("name", names())
def test_streamed_deltas_add_up_to_the_parsed_turn(name):
    for vector in load_text_vectors(VECTORS / f"{name}.json"):
        whole = reader(name, vector.tools, opened=vector.thinking).read(vector.text, finished=vector.finished)
        expected = (whole.reasoning, whole.content, [[one.id, one.name, one.arguments] for one in whole.calls])
        assert whole.reasoning == vector.reasoning
        assert whole.content == vector.content
        assert [one.name for one in whole.calls] == [call.name for call in vector.calls]
        for piece, call in zip(whole.calls, vector.calls, strict=True):
            if call.state == "complete":
                assert msgspec.json.decode(piece.arguments) == call.arguments
        for pieces in chunkings(vector.text):
            turn = reader(name, vector.tools, opened=vector.thinking)
            deltas = [*map(turn.feed, pieces), turn.close(finished=vector.finished)]
            assert collect(deltas) == expected, (vector.name, pieces)


@every_case("name", names())
def test_truncated_arguments_are_never_a_complete_object(name):
    for vector in load_text_vectors(VECTORS / f"{name}.json"):
        turn = reader(name, vector.tools, opened=vector.thinking)
        turn.read(vector.text, finished=vector.finished)
        for call in turn.calls:
            assert call.arguments
            if call.state == "truncated":
                with pytest.raises(msgspec.DecodeError):
                    msgspec.json.decode(call.arguments)


def test_generated_ids_are_replaced_and_ids_of_the_model_are_kept():
    turn = reader("kimi_k2")
    text = "<|tool_calls_section_begin|>" + 2 * (
        "<|tool_call_begin|>functions.f:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
    )
    assert [piece.id for piece in turn.read(text + "<|tool_calls_section_end|>").calls] == ["functions.f:7", "f-0"]
    assert reader("hermes").read('<tool_call>{"name": "f"}</tool_call>').calls == (CallPiece(0, "{}", "f-0", "f"),)


def test_name_is_sent_once_and_before_the_arguments():
    turn = reader("hermes")
    deltas = [turn.feed(piece) for piece in ('<tool_call>{"name": "f", ', '"arguments": {"a": ', "1}}</tool_call>")]
    assert deltas == [
        TurnDelta(calls=(CallPiece(0, "", "f-0", "f"),)),
        TurnDelta(calls=(CallPiece(0, '{"a": '),)),
        TurnDelta(calls=(CallPiece(0, "1}"),)),
    ]
    assert not turn.close()


def test_nothing_of_the_text_is_lost_at_the_end():
    turn = reader("hermes")
    assert collect([turn.feed("a <tool"), turn.close()]) == ("", "a <tool", [])


def test_call_inside_open_reasoning_is_a_call():
    text = 'I need it. <tool_call>{"name": "f", "arguments": {}}</tool_call>'
    whole = reader("hermes", opened=True).read(text)
    assert (whole.reasoning, whole.content, len(whole.calls)) == ("I need it. ", "", 1)


@pytest.mark.parametrize("text", ["<think>a</think>b", "<think>a</think>\n\nb<tool_call>", "b"])
def test_tagged_content_keeps_the_reasoning_in_the_text(text):
    assert reader("hermes", tagged_content=True).read(text).content == text


def test_format_without_calls_keeps_their_tags():
    text = 'b <tool_call>{"name": "f"}</tool_call>'
    turn = TurnReader(without_calls(get("hermes")), new_id=str)
    assert turn.read("<think>a</think>" + text) == TurnDelta("a", text)


@pytest.mark.parametrize(
    ("prompt", "state"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("What does <think> mean?<|im_start|>assistant\n", None),
        ("", None),
    ],
)
def test_only_the_end_of_a_prompt_opens_the_reasoning(prompt, state):
    assert prompt_opens_reasoning(get("hermes"), prompt) is state
