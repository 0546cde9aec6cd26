"""JSON with one meaning, and errors that say where."""

import json

import pytest

from tables import every_case
from toolwire.ir import ProtocolError
from toolwire.stream.strict import parse, parse_arguments, parse_object

SOUND = [
    "null",
    "true",
    "0",
    "-0.5",
    "1e10",
    '"é😀\\u00e9\\ud83d\\ude00"',
    "[]",
    "{}",
    '{"a": [1, {"b": null}], "c": ""}',
    " [1 , 2]\n",
]


@every_case("text", SOUND)
def test_valid_documents_are_parsed(text):
    assert parse(text) == json.loads(text)
    assert parse(text.encode()) == json.loads(text)


@every_case(
    ("text", "pointer", "words"),
    [
        ('{"a": 1, "a": 2}', "/a", "duplicate key"),
        ('{"x": [0, {"b": 1, "\\u0062": 2}]}', "/x/1/b", "duplicate key"),
        ('{"a": NaN}', "/a", "not JSON"),
        ("[1, -Infinity]", "/1", ""),
        ('{"a": [1, 1e400]}', "/a/1", "out of range"),
        ('{"a": "1e400", "b": 1E+309}', "/b", "out of range"),
        ("[" + "9" * 310 + ".0]", "/0", "out of range"),
        ('["\\ud800"]', "/0", "surrogate"),
        ('["\\ude00x"]', "/0", ""),
        ("[" * 300, "", "deep"),
        ("[" + "1" * 5000 + "]", "/0", "digits"),
        ('{"a": {"b": 1}, "c": tru}', "/c", ""),
        ('{"a/b": {"~": }}', "/a~1b/~0", ""),
        ('{"a": "x\x00"}', "/a", "control character"),
        ("{'a': 1}", "", ""),
        ('{"a": 1} x', "", "unexpected text after"),
        ("", "", "empty"),
        ('{"k": "unterminated }]', "/k", "ends in the middle"),
    ],
)
def test_rejected_document_error_has_a_pointer(text, pointer, words):
    with pytest.raises(ProtocolError) as caught:
        parse(text)
    assert words in caught.value.message
    if text != "[" * 300:
        assert caught.value.pointer == pointer


def test_numbers_near_the_limits_are_accepted():
    for text in ("1e308", "-1.7976931348623157e308", "1e-400", '"1e999"', '{"9e9999": 1}', "9" * 400, "0." + "1" * 400):
        parse(text)


def test_large_integers_are_exact():
    assert parse("9007199254740993") == 9007199254740993
    assert parse("1" * 60) == int("1" * 60)


def test_document_size_is_limited():
    with pytest.raises(ProtocolError) as caught:
        parse(b'"' + b"x" * 100 + b'"', limit=50)
    assert caught.value.status == 413


def test_invalid_utf8_is_rejected():
    with pytest.raises(ProtocolError, match="UTF-8"):
        parse(b'{"a": "\xff"}')


@pytest.mark.parametrize(
    ("text", "words"), [("[]", "an array"), ("null", "null"), ("3", "a number"), ("true", "a boolean")]
)
def test_value_that_is_not_an_object_is_rejected(text, words):
    with pytest.raises(ProtocolError, match=words):
        parse_object(text)


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_empty_text_means_no_arguments(text):
    assert parse_arguments(text) == ({}, "complete")


@pytest.mark.parametrize(
    "text", ['{"a": [1, -2.5e3, true, null, "x\\n\\u00e9\\ud83d\\ude00"], "b": {"c": {}}}', '{"ü": "é"}']
)
def test_every_prefix_of_arguments_is_truncated(text):
    assert parse_arguments(text)[1] == "complete"
    for length in range(1, len(text)):
        assert parse_arguments(text[:length]) == (None, "truncated"), text[:length]


@every_case("filler", ["", "x" * 400, "x" * 6000, ["x+"] * 3000], ids=["small", "medium", "text", "values"])
@every_case("number", ["1e400", "1E400", "1e+400", "-1E+0309", "9" * 310 + ".0", "-" + "9" * 400 + ".5"])
def test_infinite_number_is_refused_in_a_document_of_any_size(number, filler):
    document = json.dumps({"a": filler})[:-1] + f', "b": [{number}]}}'
    with pytest.raises(ProtocolError) as caught:
        parse(document)
    assert caught.value.pointer == "/b/0"


@pytest.mark.parametrize("filler", ["", "x" * 400, "1e400 " * 1500], ids=["small", "medium", "large"])
def test_number_within_the_range_is_accepted_in_a_document_of_any_size(filler):
    document = json.dumps({"a": filler})[:-1] + ', "b": [1e+300, 1E-400, 17e306]}'
    assert parse(document) == json.loads(document)
