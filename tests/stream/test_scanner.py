"""Arguments that are still arriving."""

import json

import pytest

from toolwire.ir import ArgumentEnd, CallDelta, CallEnd, CallStart, TextDelta
from toolwire.stream.scanner import ArgumentWatch, Scanner

DOCUMENTS = [
    "{}",
    " { } ",
    '{"a": 1}',
    '{"a":"x","b":"y"}',
    '{ "a b\\"" : "x\\\\" , "n":-1.5e3 ,"o":{"k":[1,"}]\\"",{}]},"t":true,"e":"" , "l":[],"u":"\\u00e9"}\n',
    '{"deep": [[[[{"a": "]"}]]]], "after": null}',
]


def scan(pieces):
    scanner = Scanner()
    found = [argument for piece in pieces for argument in scanner.feed(piece)]
    return found, scanner.complete, scanner.invalid


@pytest.mark.parametrize("text", DOCUMENTS)
def test_every_argument_is_found_at_every_split(text):
    whole = scan([text])
    assert {name: json.loads(raw) for name, raw in whole[0]} == json.loads(text)
    assert whole[1:] == (True, False)
    assert scan(list(text)) == whole
    for position in range(len(text)):
        assert scan([text[:position], text[position:]]) == whole


@pytest.mark.parametrize("text", DOCUMENTS)
def test_scan_is_complete_only_after_the_last_bracket(text):
    text = text.strip()
    for length in range(len(text)):
        assert scan([text[:length]])[1:] == (False, False)


def test_argument_is_emitted_only_when_complete():
    scanner = Scanner()
    assert scanner.feed('{"path": "a.txt"') == [("path", '"a.txt"')]
    assert scanner.feed(', "n": 12') == []  # 123 could follow
    assert scanner.feed("3}") == [("n", "123")]


@pytest.mark.parametrize(
    "text", ["[1]", "3", '{"a" 1}', '{"a": , }', "{1: 2}", '{"a": 1, "a": 2}', "{}x", '{"a": 1 2}', '{"\\x": 1}']
)
def test_text_that_is_not_an_object_is_invalid(text):
    found, complete, invalid = scan([text])
    assert invalid
    assert not complete
    assert [name for name, _ in found] in ([], ["a"])


def test_argument_end_events_follow_their_deltas():
    watch = ArgumentWatch()
    events = [
        CallStart(0, "c", "f"),
        CallStart(1, "d", "sh", "freeform"),
        CallDelta.of(0, '{"a": [1'),
        CallDelta.of(1, '{"x": 1}'),
    ]
    events += [CallDelta.of(0, '], "b": "x"'), TextDelta.of(2, "t"), CallDelta.of(0, "}"), CallEnd(0)]
    seen = [event for given in events for event in watch.feed(given)]
    assert [event for event in seen if isinstance(event, ArgumentEnd)] == [
        ArgumentEnd(0, "a", [1]),
        ArgumentEnd(0, "b", "x"),
    ]
    assert [event for event in seen if not isinstance(event, ArgumentEnd)] == events


def test_invalid_arguments_emit_no_argument_end():
    watch = ArgumentWatch()
    watch.feed(CallStart(0, "c", "f"))
    assert watch.feed(CallDelta.of(0, '{"a": tru, "b": 1}')) == [CallDelta.of(0, '{"a": tru, "b": 1}')]
