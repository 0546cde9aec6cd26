"""Events out of order are refused before a byte of them is written."""

import pytest

from recordings import WIRES
from tables import every_case
from toolwire.ir import (
    CallDelta,
    CallEnd,
    CallStart,
    EncodeError,
    Fault,
    Ping,
    ResponseEnd,
    ResponseStart,
    Stop,
    StreamFault,
    TextDelta,
    TextEnd,
    TextStart,
    fold,
)
from toolwire.wire import get

START, END = ResponseStart("r", "m"), ResponseEnd((Stop("stop"),))
OUT_OF_ORDER = {
    "no start": [TextStart(0)],
    "two starts": [START, START],
    "a delta for nothing": [START, TextDelta.of(0, "x")],
    "a delta behind its end": [START, TextStart(0), TextEnd(0), TextDelta.of(0, "x")],
    "an end for nothing": [START, CallEnd(3)],
    "an item twice": [START, TextStart(0), TextEnd(0), CallStart(0, "a", "f")],
    "the end while an item is open": [START, CallStart(0, "a", "f"), CallDelta.of(0, "{"), END],
    "something behind the end": [START, END, TextStart(0)],
    "something behind a fault": [START, StreamFault(Fault("server", "x")), END],
}


@every_case("wire", WIRES)
@every_case("events", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER)
def test_events_out_of_order_are_rejected(wire, events):
    encoder = get(wire).stream_encoder()
    for event in events[:-1]:
        encoder.feed(event)
    with pytest.raises(EncodeError):
        encoder.feed(events[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_fault_may_come_first_and_ping_at_any_time(wire):
    encoder = get(wire).stream_encoder()
    data = encoder.feed(Ping()) + encoder.feed(StreamFault(Fault("overloaded", "busy", 503)))
    decoder = get(wire).stream_decoder()
    faults = [event.fault for event in decoder.feed(data) + decoder.close() if isinstance(event, StreamFault)]
    assert [fault.message for fault in faults] == ["busy"]


@pytest.mark.parametrize("wire", WIRES)
def test_calls_keep_the_order_of_their_starts(wire):
    encoder = get(wire).stream_encoder()
    events = [START, CallStart(0, "a", "first"), CallStart(1, "b", "second")]
    events += [CallDelta.of(1, "{}"), CallEnd(1, {}, "{}"), CallDelta.of(0, "{}"), CallEnd(0, {}, "{}")]
    data = b"".join(map(encoder.feed, [*events, ResponseEnd((Stop("tool_calls"),))]))
    decoder = get(wire).stream_decoder()
    assert [call.name for call in fold([*decoder.feed(data), *decoder.close()]).calls] == ["first", "second"]
