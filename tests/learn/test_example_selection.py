"""Selection of training examples: duplicates, balance, splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Media, Reasoning, Text, ToolCall
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import make_example
from toolwire.learn.example_selection import (
    NO_CALL,
    balance,
    hide_tools,
    hold_out_tools,
    is_held_out,
    key_of,
    tool_counts,
)


def example(text, *names, call_id="c"):
    calls = tuple(ToolCall(f"{call_id}{number}", name, {"x": number}) for number, name in enumerate(names))
    tools = [Tool(name) for name in ("a", "b", "c")]
    return make_example([Message("user", (Text(text),)), Message("assistant", calls or (Text("Hi."),))], tools)


def test_ids_and_origin_do_not_make_a_difference():
    first, second = example("Go!", "a"), example("Go!", "a", call_id="other")
    assert key_of(first) == key_of(second)
    assert key_of(first).exact != key_of(example("Go!", "b")).exact


def test_near_key_ignores_case_and_punctuation():
    first, second = example("Weather in  ROME?", "a"), example("weather, in Rome", "a")
    assert key_of(first).exact != key_of(second).exact
    assert key_of(first).near == key_of(second).near
    assert key_of(first).near != key_of(example("weather in Rome", "b")).near


def test_content_of_every_kind_counts():
    parts = [(Text("x"),), (Reasoning("x"),), (Media("image", url="https://a.test/x"),), (Reasoning("y"),)]
    keys = {key_of(make_example([Message("user", one)])).exact for one in parts}
    assert len(keys) == len(parts)


def test_counts_per_tool():
    keys = [key_of(one) for one in (example("1", "a", "a"), example("2", "a", "b"), example("3"))]
    assert tool_counts(keys) == {"a": 2, NO_CALL: 1, "b": 1}


def test_balance_keeps_at_most_n_examples_of_a_tool():
    keys = {number: key_of(example(str(number), "a")) for number in range(50)}
    left_out = balance(keys, max_per_tool=10, seed=1)
    assert len(left_out) == 40
    assert set(left_out.values()) == {"its tools have 10 other examples"}
    assert left_out == balance(keys, max_per_tool=10, seed=1)
    assert left_out.keys() != balance(keys, max_per_tool=10, seed=2).keys()


def test_example_of_a_rare_tool_survives_a_frequent_one():
    keys = {number: key_of(example(str(number), "a")) for number in range(20)}
    keys[20] = key_of(example("both", "a", "b"))
    assert 20 not in balance(keys, max_per_tool=1)


def test_rare_tools_are_left_out():
    keys = {
        0: key_of(example("0", "a")),
        1: key_of(example("1", "a")),
        2: key_of(example("2", "b")),
        3: key_of(example("3")),
    }
    assert balance(keys, min_per_tool=2) == {2: "a tool has fewer than 2 examples"}


@pytest.mark.parametrize("options", [{"max_per_tool": 0}, {"min_per_tool": -1}])
def test_bounds_must_be_positive(options):
    with pytest.raises(ConfigError, match="must be positive"):
        balance({}, **options)


@given(st.sets(st.text(min_size=1), min_size=2), st.floats(0.01, 0.99), st.integers(0, 5))
def test_held_out_tools_are_a_part_of_the_tools(names, share, seed):
    found = hold_out_tools(names, share, seed)
    assert found < names
    assert found
    assert found == hold_out_tools(sorted(names, reverse=True), share, seed)


def test_share_of_held_out_tools():
    names = [f"tool_{number}" for number in range(200)]
    assert len(hold_out_tools(names, 0.1)) == 20
    assert hold_out_tools(names, 0.1, 0) != hold_out_tools(names, 0.1, 1)


@pytest.mark.parametrize("share", [0, 1, -1, 2])
def test_share_must_be_between_0_and_1(share):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        hold_out_tools(["a", "b"], share)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        is_held_out(key_of(example("1", "a")), share)


def test_one_tool_cannot_be_split():
    with pytest.raises(ConfigError, match="at least 2 called tools"):
        hold_out_tools(["a"], 0.5)


def test_split_by_example_keeps_near_duplicates_together():
    for number in range(50):
        pair = [key_of(example(text, "a")) for text in (f"Order {number}!", f"order   {number}")]
        assert len({is_held_out(key, 0.5) for key in pair}) == 1


def test_share_of_held_out_examples():
    count = sum(is_held_out(key_of(example(str(number), "a")), 0.2) for number in range(2000))
    assert 330 < count < 470


def test_hidden_tools_are_not_declared():
    given_example = example("Go.", "a")
    assert [tool.name for tool in hide_tools(given_example, frozenset({"b"})).tools] == ["a", "c"]
    assert hide_tools(given_example, frozenset({"z"})) is given_example
