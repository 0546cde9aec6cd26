"""Assertion helpers accept answers of every kind, and describe the difference."""

import pytest

from toolwire import Message, Text, ToolCall
from toolwire.ir.errors import ConfigError
from toolwire.ir.losses import Loss
from toolwire.testing import (
    assert_called,
    assert_calls,
    assert_lossless,
    assert_not_called,
    assert_same,
    says,
)

CALL = ToolCall("c1", "get_weather", {"city": "Oslo", "days": 2})
OTHER = ToolCall("c2", "send", {"text": "rain"})


@pytest.mark.parametrize(
    "answer", [says("hi", CALL, OTHER), Message("assistant", (CALL, OTHER)), [CALL, OTHER], (CALL, OTHER)]
)
def test_calls_are_read_from_every_kind_of_answer(answer):
    assert assert_called(answer, "get_weather", city="Oslo") is CALL
    assert assert_called(answer, "send") is OTHER
    assert_not_called(answer, "pay")
    assert_calls(answer, [("get_weather", {"city": "Oslo", "days": 2}), "send"])


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda: assert_called([CALL], "get_weather", days=2.0), "days: expected 2.0, got 2"),
        (lambda: assert_called([CALL], "get_weather", unit="C"), 'unit: expected "C", got nothing'),
        (lambda: assert_called([], "get_weather"), "get_weather() was not called; the answer has 0 calls"),
        (lambda: assert_not_called([CALL], "get_weather"), "get_weather was called 1 times"),
        (lambda: assert_calls([CALL, OTHER], ["send", "get_weather"]), "- get_weather(…)"),
        (
            lambda: assert_calls([CALL], [("get_weather", {"city": "Oslo"})]),
            '+ get_weather({"city": "Oslo", "days": 2})',
        ),
        (lambda: assert_calls([CALL], ["get_weather", "send"]), "- send(…)"),
        (lambda: assert_same({"a": [1, 2]}, {"a": [1, 3]}), "-    3"),
        (lambda: assert_same(Text("a"), Text("b")), '+  "text": "a"'),
    ],
)
def test_failed_assertion_describes_the_difference(check, text):
    with pytest.raises(AssertionError) as caught:
        check()
    assert text in str(caught.value)


def test_equal_values_are_the_same():
    assert_same({"b": 1, "a": 2}, {"a": 2, "b": 1})
    assert_same(says("hi"), says("hi"))


def test_lossless_translation_has_only_losses_of_form():
    kept = Loss("/a", "strict", "dropped", "info", "not supported")
    lost = Loss("/seed", "seed", "dropped", "warning", "Anthropic has no seed")
    for translation in ((), [kept], ({"body": 1}, [kept])):
        assert_lossless(translation)
    for translation in ([lost], ({"body": 1}, [kept, lost])):
        with pytest.raises(AssertionError, match=r"1 losses\n  /seed: seed dropped: Anthropic has no seed"):
            assert_lossless(translation)


@pytest.mark.parametrize("check", [lambda: assert_called(7, "f"), lambda: assert_lossless(7)])
def test_value_of_another_kind_is_refused(check):
    with pytest.raises(ConfigError):
        check()


def test_long_difference_is_cut():
    with pytest.raises(AssertionError) as caught:
        assert_same(list(range(5000)), list(range(5000, 10_000)))
    assert len(str(caught.value).splitlines()) < 220 and "more lines" in str(caught.value)
