"""Our reading of JSON against the standard library's."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical import json_values, objects
from toolwire.bridge.restoration.arguments import FreeformUnwrapper
from toolwire.ir import CallDelta, CallEnd, ToolwireError
from toolwire.ir.text import dumps, escape, unescape
from toolwire.stream.scanner import Scanner
from toolwire.stream.strict import parse, parse_arguments

text = st.text(st.characters(exclude_categories=["Cs"]))


def spellings(value):
    return [json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, indent=3)]


@given(value=json_values)
def test_strict_parser_accepts_valid_json(value):
    for spelling in spellings(value):
        assert dumps(parse(spelling)) == dumps(value)


@given(
    data=st.one_of(
        st.binary(max_size=60), text.map(str.encode), st.text('{}[]",:\\ \t\n0123456789.eE+-abutrnfls').map(str.encode)
    )
)
def test_strict_parser_accepts_nothing_that_json_rejects(data):
    try:
        value = parse(data)
    except ToolwireError:
        return
    expected = json.loads(data.decode())
    assert dumps(value) == dumps(expected)
    assert not (isinstance(value, float) and not math.isfinite(value))


NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,3}|[1-9][0-9]{300,315})(\.[0-9]{1,3})?([eE][+-]?0{0,2}[0-9]{1,3})?", fullmatch=True
)
STRINGS = st.sampled_from(["x", "0e123", "a9e400", "call_12e345", "- 1e400", ",1e+400", "1.5e-999", "x" * 300, "e" * 9])


@given(
    values=st.lists(st.one_of(NUMBERS, STRINGS.map(json.dumps)), min_size=1, max_size=8),
    filler=st.sampled_from([[], ["y" * 5000], ["12ef345"] * 900, [f"9e{number}" for number in range(400, 900)]]),
    gap=st.sampled_from(["", " ", "\n\t", "\r"]),
)
def test_infinite_numbers_are_found_in_documents_of_all_shapes(values, filler, gap):
    document = f"[{gap}{f'{gap},{gap}'.join([*values, json.dumps(filler)])}{gap}]"
    expected = json.loads(document)
    places = [number for number, value in enumerate(expected) if isinstance(value, float) and math.isinf(value)]
    try:
        value = parse(document)
    except ToolwireError as error:
        assert places
        assert error.pointer == f"/{places[0]}"
    else:
        assert not places
        assert value == expected


@given(value=objects, cut=st.integers(0, 400))
def test_a_prefix_of_arguments_is_truncated_and_never_complete(value, cut):
    raw = json.dumps(value)
    prefix = raw[: cut % len(raw)]
    arguments, state = parse_arguments(prefix)
    assert (arguments, state) == ({}, "complete") if not prefix else state == "truncated"


@given(value=objects, places=st.lists(st.integers(0, 10**4), max_size=8))
def test_the_scanner_finds_every_argument_once(value, places):
    for spelling in spellings(value):
        edges = [0, *sorted(place % (len(spelling) + 1) for place in places), len(spelling)]
        scanner = Scanner()
        found = []
        for start, end in itertools.pairwise(edges):
            assert not scanner.complete or not spelling[start:].strip()
            found += scanner.feed(spelling[start:end])
        assert scanner.complete
        assert not scanner.invalid
        assert dumps({name: json.loads(raw) for name, raw in found}) == dumps(value)
        assert [name for name, _ in found] == list(value)


@given(garbage=st.text('{}[]",:\\ a1', max_size=40))
def test_scanner_reports_complete_only_for_objects(garbage):
    scanner = Scanner()
    scanner.feed(garbage)
    try:
        is_object = isinstance(json.loads(garbage), dict)
    except ValueError:
        is_object = False
    if is_object and parse_arguments(garbage)[1] == "complete":
        assert scanner.complete
    if scanner.complete and not is_object:
        # the values inside are for the strict parser to judge; the frame was right
        assert garbage.strip()[0] == "{"
        assert garbage.strip()[-1] == "}"


@given(words=text)
def test_escape_round_trips(words):
    assert unescape(escape(words)) == words
    assert json.loads(b'"%b"' % escape(words)) == words


@given(words=text, places=st.lists(st.integers(0, 10**4), max_size=8), ascii_only=st.booleans())
def test_wrapped_input_is_unwrapped_at_every_split(words, places, ascii_only):
    raw = json.dumps({"input": words}, ensure_ascii=ascii_only)
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    unwrapper = FreeformUnwrapper(0)
    events = []
    for start, end in itertools.pairwise(edges):
        events += unwrapper.feed(CallDelta.of(0, raw[start:end]))
    *more, end = unwrapper.end(CallEnd(0, {"input": words}, raw))
    assert end == CallEnd(0, None, words)
    assert "".join(event.text for event in [*events, *more]) == words


@pytest.mark.parametrize(
    "raw", ['{"input": 3}', '{"other": "x"}', '{"input": "x", "input": "y"}', '{"input": "cut', "[]", ""]
)
def test_wrapped_call_without_a_valid_input_argument_is_not_complete(raw):
    arguments, state = parse_arguments(raw)
    for pieces in ([raw], list(raw)):
        unwrapper = FreeformUnwrapper(0)
        events = [event for piece in pieces for event in unwrapper.feed(CallDelta.of(0, piece))]
        *more, end = unwrapper.end(CallEnd(0, arguments, raw, state))
        assert end.state == ("truncated" if state == "truncated" else "invalid")
        assert "".join(event.text for event in [*events, *more]) == end.raw


@pytest.mark.parametrize(
    "raw", ['{"input": "x", "more": 1}', '{"more": 1, "input": "x"}', ' { "more": [], "input" : "x" }']
)
def test_extra_arguments_beside_the_input_are_ignored(raw):
    arguments, state = parse_arguments(raw)
    for pieces in ([raw], list(raw)):
        unwrapper = FreeformUnwrapper(0)
        events = [event for piece in pieces for event in unwrapper.feed(CallDelta.of(0, piece))]
        *more, end = unwrapper.end(CallEnd(0, arguments, raw, state))
        assert (end.state, end.raw) == ("complete", "x")
        assert "".join(event.text for event in [*events, *more]) == "x"
