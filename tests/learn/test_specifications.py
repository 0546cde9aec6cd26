"""Retriever-aware rows: retrieved specifications beside the question."""

import json

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import add_specifications, make_example

pytest.importorskip("numpy")
from toolwire.retrieve import ToolIndex

TOOLS = [
    Tool("get_weather", "Weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}}),
    Tool("get_forecast", "Weather forecast of a city for days."),
    Tool("send_mail", "Send a mail to a person."),
    Tool("book_hotel", "Book a hotel room."),
]


@pytest.fixture(scope="module")
def index():
    made = ToolIndex()
    made.add(TOOLS)
    return made


def example(text, name, tools=()):
    return make_example(
        [
            Message("system", (Text("Be brief."),)),
            Message("user", (Text(text),)),
            Message("assistant", (ToolCall("c", name, {"city": "Rome"}),)),
        ],
        tools,
    )


def specify(index, text="weather of the city Rome", name="get_weather", **options):
    (found,) = add_specifications([example(text, name)], index, **options)
    return found


def names(found):
    return [tool.name for tool in found.example.tools]


def test_tools_are_replaced_by_the_retrieved_ones(index):
    found = specify(index, k=2)
    assert set(names(found)) == {"get_weather", "get_forecast"}
    assert found.gold_found
    assert found.example.calls == example("", "get_weather").calls


def test_right_tool_may_be_missing(index):
    found = specify(index, name="book_hotel", k=2)
    assert "book_hotel" not in names(found)
    assert not found.gold_found


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("kept", ["get_weather", "book_hotel"]),
        ("first", ["book_hotel", "get_weather"]),
        ("oracle", ["book_hotel"]),
    ],
)
def test_right_tool_is_given_on_request(index, gold, expected):
    found = specify(index, text="weather of a city", name="book_hotel", k=2, gold=gold)
    assert names(found) == expected
    assert not found.gold_found  # by the search


def test_found_tool_keeps_its_rank(index):
    assert names(specify(index, k=2, gold="kept")) == names(specify(index, k=2))


def test_specifications_in_the_prompt(index):
    found = specify(index, k=1, place="prompt")
    assert found.example.tools == ()
    question, introduction, *lines = found.example.messages[1].text.split("\n")
    assert question == "weather of the city Rome"
    assert introduction == "Use this API documentation for reference:"
    assert json.loads(lines[0]) == {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }


def test_excluded_tools_are_not_found(index):
    assert names(specify(index, k=2, excluded=frozenset({"get_weather"}))) == ["get_forecast"]


def test_declaration_of_the_example_wins(index):
    own = Tool("book_hotel", "My own hotels.")
    (found,) = add_specifications([example("weather", "book_hotel", [own])], index, k=1, gold="oracle")
    assert found.example.tools == (own,)


def test_example_without_a_question_is_unchanged(index):
    given = make_example([Message("assistant", (Text("Hi."),))])
    (found,) = add_specifications([given], index)
    assert found.example is given


@pytest.mark.parametrize("options", [{"k": 0}, {"gold": "best"}])
def test_wrong_options_are_usage_errors(index, options):
    with pytest.raises(ConfigError):
        specify(index, **options)
