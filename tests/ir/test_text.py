"""JSON text of values."""

import pytest

from toolwire.ir import EncodeError, ProtocolError
from toolwire.ir.text import dumps, escape, to_bytes, unescape


@pytest.mark.parametrize("text", ["", "plain", 'quotes " and \\', "\n\t\x00\x1f", "é😀\u2028", "</script>"])
def test_escape_and_unescape_are_inverse(text):
    assert unescape(escape(text)) == text
    assert b'"' not in escape(text).replace(b'\\"', b"")


@pytest.mark.parametrize("escaped", [b'"', b"\\", b"\\x", b"\n", b"\xff", b"\\ud800"])
def test_invalid_string_content_is_rejected(escaped):
    with pytest.raises(ProtocolError):
        unescape(escaped)


@pytest.mark.parametrize("value", [{"a": [float("nan")]}, {"a": [1, float("inf")]}, {"a": -float("inf")}])
def test_non_finite_numbers_are_rejected(value):
    with pytest.raises(EncodeError) as caught:
        dumps(value)
    assert caught.value.pointer.startswith("/a")


@pytest.mark.parametrize(
    "value",
    [1.7e308, -1.7e308, 0xCB7F_0000, 0xCB, "\u02c0" * 20, "\u02c0\x7f", [0.5] * 20, b"\xcb\xff", {float("inf"): 1}],
)
def test_values_with_the_bytes_of_a_non_finite_number_are_written(value):
    assert to_bytes([None, value]) == b"[null," + to_bytes(value) + b"]"
    with pytest.raises(EncodeError):
        to_bytes([None, value, float("nan")])


def test_keys_are_sorted_at_every_depth():
    first = {"b": [{"z": None, "é": 1, "a": (1,)}], "😀": 0, "\uffff": 0, "a": {}}
    second = dict(reversed(first.items()))
    assert to_bytes(first, sort_keys=True) == to_bytes(second, sort_keys=True)
    assert to_bytes(first, sort_keys=True) == '{"a":{},"b":[{"a":[1],"z":null,"é":1}],"\uffff":0,"😀":0}'.encode()


def test_none_is_written_as_null():
    assert dumps({"a": None}) == '{"a":null}'


@pytest.mark.parametrize("value", ["\ud800", object(), {1, object()}])
def test_values_without_json_form_are_rejected(value):
    with pytest.raises(EncodeError):
        dumps(value)
