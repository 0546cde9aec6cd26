"""The trace format: lines, their bounds, and traces that were interrupted or made by others."""

import json
import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.ir.errors import ConfigError
from toolwire.ir.losses import Loss
from toolwire.run.traces.format import (
    MAX_LINE,
    VERSION,
    AnswerPiece,
    CallStarted,
    ExchangeStarted,
    LossReported,
    RequestSent,
    RunStarted,
    TraceHeader,
    decode_trace,
    encode_event,
    encode_header,
    is_cut,
)
from toolwire.run.traces.recordings import run_of
from toolwire.run.traces.replay import first_difference

HEADER = TraceHeader(VERSION, "r1", "run", "2026-11-16T10:00:00.000Z")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(string.printable, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=3), inner, max_size=3),
    max_leaves=12,
)


def decode(*events, tail=b""):
    data = encode_header(HEADER) + b"".join(map(encode_event, events)) + tail
    return decode_trace(data.splitlines(keepends=True), "t.jsonl")


@given(JSON)
def test_events_are_decoded_as_they_were_encoded(body):
    events = (
        RunStarted(ms=0.0, span=1, run_id="r1", request={"messages": [body]}),
        RequestSent(ms=0.5, span=2, parent=1, body=body, base=1, kept=1),
        CallStarted(ms=1.0, span=3, parent=1, call={"arguments": body}, effect="read"),
        LossReported(ms=1.0, span=2, loss=Loss("/a", "a", "dropped", "warning", "b")),
        AnswerPiece(ms=2.0, span=4, text="\ufffd"),
    )
    assert decode(*events) == (HEADER, events)


@pytest.mark.parametrize(
    "body",
    [
        "x" * (3 * MAX_LINE),
        {"messages": ["é" * MAX_LINE, "short"]},
        ["y" * 900] * 5000,
        list(range(400_000)),
        {f"name {number}": number for number in range(100_000)},
    ],
    ids=["text", "nested", "many texts", "many numbers", "many names"],
)
def test_a_line_is_bounded_and_states_the_removed_length(body):
    line = encode_event(RequestSent(ms=0.0, span=1, model="m", body=body))
    assert len(line) <= MAX_LINE
    _, (event,) = decode_trace([encode_header(HEADER), line], "t")
    assert is_cut(event.body)
    assert event.model == "m"


def test_only_long_strings_are_cut():
    line = encode_event(RequestSent(ms=0.0, span=1, body={"media": "z" * (2 * MAX_LINE), "text": "kept" * 100}))
    body = json.loads(line)["body"]
    assert body["text"] == "kept" * 100
    assert body["media"].endswith(f"…[cut: {2 * MAX_LINE} characters]")


def test_large_headers_do_not_break_the_line():
    headers = {f"x-{number}": "v" * 50 for number in range(40_000)}
    line = encode_event(ExchangeStarted(ms=0.0, span=1, wire="anthropic", headers=headers))
    assert len(line) <= MAX_LINE
    _, (event,) = decode_trace([encode_header(HEADER), line], "t")
    assert event.wire == "anthropic"


def test_incomplete_last_line_is_dropped():
    event = RunStarted(ms=0.0, span=1)
    assert decode(event, tail=b'{"event":"requ')[1] == (event,)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "it is empty"),
        ([b'{"a": 1}\n'], "line 1"),
        ([b"\xff\n"], "line 1"),
        ([encode_header(HEADER), b'{"event":"nothing"}\n'], "line 2"),
        ([encode_header(HEADER), b"{\n", b"{}\n"], "line 2"),
        ([encode_header(msgspec.structs.replace(HEADER, toolwire_trace=9))], "version 9"),
    ],
)
def test_other_files_are_refused_with_the_line(lines, message):
    with pytest.raises(ConfigError, match=message):
        decode_trace(lines, "t.jsonl")


def test_requests_are_completed_from_their_base():
    tools = [{"name": "t"}]
    user, assistant = {"role": "user"}, {"role": "assistant"}
    header, events = decode(
        RunStarted(ms=0.0, span=1, request={"model": "m", "messages": [user], "tools": tools}),
        RequestSent(ms=1.0, span=2, parent=1, body={"model": "m"}, base=1, kept=1),
        RequestSent(ms=2.0, span=3, parent=1, body={"model": "m", "messages": [assistant]}, base=2, kept=1),
        RequestSent(ms=3.0, span=4, parent=1, body={"model": "m", "tools": []}, base=3, kept=2),
    )
    requests = [turn.request for turn in run_of(header, events, "t").turns()]
    assert requests == [
        {"model": "m", "messages": [user], "tools": tools},
        {"model": "m", "messages": [user, assistant], "tools": tools},
        {"model": "m", "messages": [user, assistant], "tools": []},
    ]


@pytest.mark.parametrize("parent", [1, 7, 99])
def test_parent_that_does_not_exist_is_harmless(parent):
    header, events = decode(RunStarted(ms=0.0, span=1), RequestSent(ms=0.0, span=7, parent=parent))
    assert len(run_of(header, events, "t").spans) == 2


@given(JSON)
def test_a_document_does_not_differ_from_itself(document):
    assert first_difference("step", document, json.loads(json.dumps(document))) is None


@pytest.mark.parametrize(
    ("expected", "got", "pointer"),
    [
        ({"a": [1, {"b~/": "x"}]}, {"a": [1, {"b~/": "y"}]}, "/a/1/b~0~1"),
        ({"a": 1}, {"a": 1.0}, "/a"),
        ({"a": 1}, {"a": True}, "/a"),
        ({"a": [1]}, {"a": [1, 2]}, "/a/1"),
        ({}, {"new": None}, "/new"),
        ({"old": None}, {}, "/old"),
        ("key [removed] end", "key abc ends", ""),
        ("ab[removed]bc", "abc", ""),
    ],
)
def test_first_difference_has_a_pointer(expected, got, pointer):
    found = first_difference("step", expected, got)
    assert found is not None
    assert found.pointer == pointer


@pytest.mark.parametrize(
    ("recorded", "text"),
    [
        ("key [removed] end", "key sk-123 end"),
        ("[removed]", ""),
        ("start…[cut: 400 characters]", "start and the rest"),
        ("a [removed] b [removed] c", "a 1 b 2 c"),
    ],
)
def test_removed_and_cut_text_matches_anything(recorded, text):
    assert first_difference("step", recorded, text) is None
