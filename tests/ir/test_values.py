"""Canonical values: frozen, cheap, honest about equality."""

import msgspec
import pytest

from toolwire.ir import Losses, Message, Opaque, Part, Request, Text, Tool, ToolCall, ToolResult
from toolwire.testing import differences, same


def test_values_are_frozen():
    with pytest.raises(AttributeError):
        Text("a").text = "b"


def test_repr_omits_default_fields():
    assert repr(ToolCall("c", "f", {"a": 1})) == "ToolCall(id='c', name='f', arguments={'a': 1})"


def test_values_round_trip_through_json():
    request = Request(
        "m", (Message("user", (Text("hi"), ToolResult("c", parts=(Opaque("w", "t", {"x": 1}),)))),), (Tool("f"),)
    )
    data = msgspec.json.encode(request)
    assert msgspec.json.decode(data, type=Request) == request
    assert msgspec.json.decode(msgspec.json.encode(Text("a")), type=Part) == Text("a")


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0, False), (None, 0), ("1", 1), ([], {})])
def test_values_that_python_treats_as_equal_are_not_the_same(one, other):
    assert not same({"a": one}, {"a": other})
    assert same({"a": one}, {"a": one})


def test_wire_notation_does_not_affect_equality():
    assert same(Text("a", extra={"gemini~": {":x": 1}}), Text("a"))
    assert differences(Text("a", extra={"gemini": {"x": 1}}), Text("a")) == ["/extra"]


def test_result_of_a_call_copies_its_identity():
    call = ToolCall("c", "f", kind="freeform", namespace="n")
    assert call.result("ok") == ToolResult("c", "f", (Text("ok"),), kind="freeform", namespace="n")
    assert call.result([1], is_error=True).structured == [1]
    assert call.result([1]).text == "[1]"


def test_text_of_a_call_is_its_raw_or_encoded_arguments():
    assert ToolCall("c", "f", {"a": 1}, '{"a": 1}').text == '{"a": 1}'
    assert ToolCall("c", "f", {"a": 1}).text == '{"a":1}'


def test_a_loss_is_reported_once():
    losses = Losses()
    for _ in range(3):
        losses.add("/a", "x", "dropped", "why")
    assert len(losses) == 1
    assert str(next(iter(losses))) == "warning  /a  x dropped: why"
