"""Events and wholes."""

import pytest

from toolwire.ir import (
    Alternative,
    Artefact,
    CallDelta,
    CallEnd,
    CallStart,
    Fault,
    Media,
    Ping,
    ProtocolError,
    Reasoning,
    Refusal,
    Response,
    ResponseEnd,
    ResponseStart,
    Stop,
    StreamFault,
    Text,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    TruncatedStream,
    Usage,
    fold,
    unfold,
)

EVERYTHING = Response(
    "r",
    "m",
    (
        Reasoning("think", ("one", "two"), (Artefact("p", "signature", "s"),), {"w": {"x": 1}}),
        Text('words "é" \n😀', artefacts=(Artefact("p", "k", "d"),), extra={"w": {"y": 2}}),
        Refusal("no"),
        ToolCall("c", "f", {"a": 1}, '{"a": 1}', artefacts=(Artefact("p", "k", "d"),)),
        ToolCall("d", "g", None, '{"a', "truncated"),
        ToolCall("e", "h", None, "free text", kind="freeform", namespace="n"),
        Media("image", "image/png", "iVBO"),
    ),
    Stop("tool_calls"),
    Usage(1, 2, 3),
    created=7,
    alternatives=(Alternative((Text("other"),), Stop("stop")),),
    extra={"w": {"z": 3}},
)


def test_unfold_and_fold_are_inverse():
    assert fold(unfold(EVERYTHING)) == EVERYTHING


def test_items_may_be_interleaved():
    events = [
        ResponseStart(),
        TextStart(0),
        CallStart(1, "c", "f"),
        TextDelta.of(0, "a"),
        CallDelta.of(1, "{}"),
        Ping(),
        TextDelta.of(0, "b"),
        CallEnd(1, {}, "{}"),
        TextEnd(0),
        ResponseEnd((Stop("stop"),)),
    ]
    assert fold(events).parts == (Text("ab"), ToolCall("c", "f", {}, "{}"))


def test_incomplete_events_raise_truncated_stream():
    events = list(unfold(EVERYTHING))
    for length in range(len(events)):
        with pytest.raises(TruncatedStream):
            fold(events[:length])


def test_fault_ends_the_response():
    fault = Fault("server", "boom")
    response = fold([ResponseStart("r"), TextStart(0), TextDelta.of(0, "a"), StreamFault(fault)])
    assert response.fault == fault
    assert response.stop is None


@pytest.mark.parametrize(
    "events",
    [
        [TextStart(0), TextStart(0)],
        [TextDelta.of(0, "a")],
        [TextEnd(0)],
        [CallEnd(0)],
        [TextStart(0), ResponseEnd((Stop("stop"),))],
    ],
    ids=["starts twice", "delta before start", "end before start", "call end before start", "ends while open"],
)
def test_events_out_of_order_are_rejected(events):
    with pytest.raises(ProtocolError):
        fold([ResponseStart(), *events])
