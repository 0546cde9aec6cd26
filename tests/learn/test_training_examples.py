"""The normal form of training examples."""

import pytest

from toolwire.ir.parts import Artefact, Reasoning, Text, ToolCall, ToolResult
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import Example, make_example

WEATHER = Tool("get_weather", "Weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})


def user(text):
    return Message("user", (Text(text),))


def test_results_of_one_turn_share_a_message():
    calls = (ToolCall("a", "get_weather", {"city": "Rome"}), ToolCall("b", "get_weather", {"city": "Oslo"}))
    example = make_example(
        [
            user("Rome and Oslo?"),
            Message("assistant", calls),
            Message("user", (calls[0].result("22"),)),
            Message("user", (calls[1].result("3"), Text("And now?"))),
        ],
        [WEATHER],
    )
    assert [len(message.parts) for message in example.messages] == [1, 2, 2, 1]
    assert example.results == (calls[0].result("22"), calls[1].result("3"))
    assert example.messages[-1] == user("And now?")
    assert example.called_names == ("get_weather",)
    assert example.user_text == "Rome and Oslo?\nAnd now?"


def test_call_and_result_without_ids_are_matched_by_order():
    example = make_example(
        [
            Message("assistant", (ToolCall("", "f", {}), ToolCall("", "g", {}))),
            Message("user", (ToolResult("", None, (Text("1"),)), ToolResult("", None, (Text("2"),)))),
        ]
    )
    assert [call.id for call in example.calls] == ["call_1", "call_2"]
    assert [(result.call_id, result.name) for result in example.results] == [("call_1", "f"), ("call_2", "g")]


def test_new_id_differs_from_every_other_id():
    example = make_example([Message("assistant", (ToolCall("call_2", "f", {}), ToolCall("", "g", {})))])
    assert [call.id for call in example.calls] == ["call_2", "call_3"]


def test_result_without_id_goes_to_the_call_of_its_name():
    example = make_example(
        [
            Message("assistant", (ToolCall("", "f", {}), ToolCall("", "g", {}))),
            Message("user", (ToolResult("", "g", (Text("2"),)),)),
        ]
    )
    assert example.results[0].call_id == "call_2"


def test_spelling_of_a_provider_is_removed():
    signed = ToolCall(
        "a",
        "f",
        {"x": 1},
        '{ "x": 1 }',
        artefacts=(Artefact("google", "thought_signature", "AA"),),
        extra={"openai_chat~": {":index": 0}},
    )
    thought = Reasoning("", ("Think.",), extra={"openai_chat~": {":field": "reasoning"}})
    text = (Text("a", cache="default"), Text("b"), Text(""))
    example = make_example([Message("assistant", (thought, *text, signed), {"openai_chat~": {"content": None}})])
    assert example.messages == (Message("assistant", (Reasoning("Think."), Text("ab"), ToolCall("a", "f", {"x": 1}))),)


def test_truncated_call_keeps_its_text():
    call = ToolCall("a", "f", None, '{"x', "truncated")
    assert make_example([Message("assistant", (call,))]).calls == (call,)


def test_weights_are_per_assistant_message():
    messages = [user("a"), Message("assistant", (Text("b"),)), user("c"), Message("assistant", (Text("d"),))]
    example = make_example(messages, weights=(0, 1))
    assert [example.weight_of(index) for index in range(4)] == [0, 0, 0, 1]
    everything = make_example(messages, weights=(1, 1))
    assert everything.weights == ()
    assert [everything.weight_of(index) for index in range(4)] == [0, 1, 0, 1]


def test_leading_system_messages_are_one():
    example = make_example([Message("system", (Text("a"),)), Message("system", (Text("b"),)), user("c")])
    assert [message.text for message in example.messages] == ["a\n\nb", "c"]


@pytest.mark.parametrize("messages", [[], [user("a")]])
def test_short_conversation_is_an_example(messages):
    assert make_example(messages) == Example(tuple(messages))
