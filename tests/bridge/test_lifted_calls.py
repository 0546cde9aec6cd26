"""Arguments of a call that change their shape on the target, as they arrive."""

from __future__ import annotations

from tables import every_case
from toolwire import Message, Request, Text, Tool
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir.events import CallDelta, CallEnd, CallStart, ResponseEnd, ResponseStart
from toolwire.ir.folding import fold
from toolwire.ir.response import Stop

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "place": {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]},
    },
    "required": ["place"],
}
REQUEST = Request("m", (Message("user", (Text("x"),)),), (Tool("look", input_schema=SCHEMA, strict=True),))


def restorer():
    return prepare(REQUEST, "openai_chat").exchange.make_restorer()


@every_case("size", [1, 4, 1000])
@every_case(
    "text", ['{"city": "Oslo", "days": 1e999, "place": 1}', '{"days": nope}', '{"a\\x": 1}', '{"days": 1, "days": 2}']
)
def test_values_that_are_no_json_leave_an_invalid_call(text: str, size: int) -> None:
    """They raised an error in the middle of a stream, where a whole answer had an invalid call."""
    feed = restorer().feed
    deltas = [CallDelta.of(0, text[at : at + size]) for at in range(0, len(text), size)]
    events = [ResponseStart(), CallStart(0, "c", "look"), *deltas, CallEnd(0, None, text, "invalid")]
    events.append(ResponseEnd((Stop("tool_calls"),)))
    [call] = fold([each for event in events for each in feed(event)]).calls
    assert (call.state, call.raw) == ("invalid", text)


def test_unchanged_values_pass_through_as_they_arrive() -> None:
    feed = restorer().feed
    feed(CallStart(0, "c", "look"))
    assert feed(CallDelta.of(0, '{"city": null, "place": {"zi')) == (CallDelta.of(0, '{"place":{"zi'),)
    assert feed(CallDelta.of(0, 'p": "1"}, "days": 1')) == (CallDelta.of(0, 'p": "1"}'),)
