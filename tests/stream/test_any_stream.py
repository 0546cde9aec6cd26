"""Whatever an answer holds, however its bytes are cut: the same events, and folded, the whole answer."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

import toolwire
from canonical import any_responses, responses
from combinations import for_every
from recordings import WIRES
from toolwire.bridge import prepare
from toolwire.bridge.restoration.repair import CallRepairer
from toolwire.bridge.translation.exchange import Exchange
from toolwire.ir import (
    CallDelta,
    CallEnd,
    Losses,
    Message,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    TruncatedStream,
)
from toolwire.testing import differences, same
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get
from whole_and_streamed import as_stream, disagreements, is_same_answer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "": {"type": "string"}}}
REQUEST = Request(
    "m",
    (Message("user", (Text("hi"),)),),
    (Tool("f", input_schema=SCHEMA, strict=True), Tool("get_weather", kind="freeform")),
    parallel=False,
)
EXCHANGES = [prepare(REQUEST, "openai_chat").exchange, prepare(REQUEST, "anthropic").exchange]


def encoded(wire, response):
    encoder = get(wire).stream_encoder()
    return b"".join([encoder.feed(event) for event in toolwire.unfold(Exchange().restore(response))])


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


cuts = st.lists(st.integers(0, 10**6), max_size=12)


@given(response=any_responses)
def test_fold_inverts_unfold(response):
    assert same(toolwire.fold(toolwire.unfold(response)), response)


def test_exchanges_lift_and_unwrap():
    assert "f" in EXCHANGES[0].lifts
    assert EXCHANGES[1].wrapped == {"get_weather"}


@given(response=any_responses)
@for_every(client=[None, "anthropic", "openai_responses"], repair=[False, True])
def test_whole_answer_is_restored_like_its_events(client, repair, response):
    exchange = EXCHANGES[repair if client is None else client == "openai_responses"]
    capabilities = None if client is None else get(client).capabilities
    of_whole, of_events = Losses(), Losses()
    repairers = [CallRepairer(REQUEST.tools) if repair else None for _ in range(2)]
    whole = exchange.restore(response, of_whole, capabilities, repairer=repairers[0])
    restorer = exchange.make_restorer(of_events, capabilities, repairer=repairers[1])
    streamed = toolwire.fold(
        [made for event in small_deltas(toolwire.unfold(response)) for made in restorer.feed(event)]
    )
    if whole.fault is None:
        assert same(streamed, whole), differences(streamed, whole)
    assert same(streamed.fault, whole.fault)
    assert list(of_events) == list(of_whole)
    if repair:
        assert repairers[0].repairs == repairers[1].repairs


def small_deltas(events):
    """Split the deltas of calls: a machine that sees the text in pieces must not depend on their size."""
    for event in events:
        if isinstance(event, CallDelta):
            yield from (CallDelta.of(event.key, letter) for letter in event.text)
        else:
            yield event


@given(response=responses, places=cuts)
@for_every(wire=WIRES)
def test_events_do_not_depend_on_how_the_stream_is_split(wire, response, places):
    data = encoded(wire, response)
    assert decode_stream(get(wire), cut(data, places)) == decode_stream(get(wire), [data])


@given(response=responses)
@for_every(wire=WIRES)
def test_streamed_and_whole_responses_are_equal(wire, response):
    codec = get(wire)
    restored = Exchange().restore(response)
    streamed = toolwire.fold(decode_stream(codec, [encoded(wire, response)]))
    whole = codec.decode_response(codec.encode_response(restored).body)
    assert streamed.text == whole.text
    sent = {call.id for call in restored.calls if call.state == "complete"}
    assert [(c.id, c.name, c.arguments, c.state) for c in streamed.calls if c.id in sent] == [
        (c.id, c.name, c.arguments, c.state) for c in whole.calls if c.id in sent
    ]
    assert same(streamed.stop, whole.stop), differences(streamed.stop, whole.stop)
    assert same(streamed.usage, whole.usage)


@given(response=responses, places=cuts)
@for_every(source=WIRES, target=WIRES)
def test_text_and_calls_survive_stream_translation(source, target, response, places):
    if source == target:
        return
    translation = toolwire.translate_stream(source=source, target=target)
    data = encoded(source, response)
    out = b"".join([translation.feed(chunk) for chunk in cut(data, places)]) + translation.close()
    there = toolwire.fold(decode_stream(get(source), [data]))
    arrived = toolwire.fold(decode_stream(get(target), [out]))
    if there.fault is not None:
        assert arrived.fault is not None
        return
    if get(target).capabilities.object_arguments and has_malformed_call(there):
        # a client that gets an object could not see that it is not what the model wrote
        assert arrived.fault.message == translation.error.message
        assert "not the requested JSON object" in translation.error.message
        return
    assert translation.error is None
    assert text_of(arrived) == text_of(there)
    assert [(c.name, c.arguments) for c in arrived.calls if c.arguments is not None] == runnable(there, target)


def has_malformed_call(response):
    """Return whether a call is invalid, or ends early although the answer goes on."""
    return any(
        isinstance(part, ToolCall)
        and (part.state == "invalid" or (part.state == "truncated" and part is not response.parts[-1]))
        for part in response.parts
    )


def runnable(response, target):
    """The calls that may be run: those that are whole, freeform ones as functions where there is nothing else.

    Anthropic and Converse do not tell a complete call at the end of an answer from a truncated one, if a limit or a
    refusal ended the answer. Reasoning without a text is not sent.
    """
    freeform = get(target).capabilities.freeform
    calls = [call for call in response.calls if call.state == "complete" and not (call.kind == "freeform" and freeform)]
    is_ended_early = response.stop.reason in ("length", "content_filter", "refusal")
    sent = [part for part in response.parts if not isinstance(part, Reasoning) or part.text]
    if target in ("anthropic", "bedrock") and is_ended_early and calls and calls[-1] is sent[-1]:
        calls.pop()
    return [(call.name, {"input": call.raw} if call.kind == "freeform" else call.arguments) for call in calls]


def text_of(response):
    return "".join(part.text for part in response.parts if isinstance(part, (Text, Refusal)))


@given(response=responses, place=st.integers(0, 10**6))
@for_every(wire=WIRES)
def test_truncated_stream_raises_or_is_complete(wire, response, place):
    data = encoded(wire, response)
    whole = toolwire.fold(decode_stream(get(wire), [data]))
    decoder = get(wire).stream_decoder()
    events = decoder.feed(data[: place % len(data)])
    ended = {event.key for event in events if isinstance(event, CallEnd) and event.state == "complete"}
    assert ended <= {event.key for event in decode_stream(get(wire), [data]) if isinstance(event, CallEnd)}
    try:
        answer = toolwire.fold(events + decoder.close())
    except TruncatedStream:
        return
    assert same(answer.parts, whole.parts)
    assert same(answer.stop, whole.stop)


@given(response=responses)
@for_every(source=WIRES, target=WIRES)
def test_whole_and_streamed_answers_have_the_same_translation(source, target, response):
    if source == target:
        return
    codec = get(source)
    restored = Exchange().restore(response, client=codec.capabilities)
    if restored.fault is not None:
        return
    document, data = codec.encode_response(restored).body, as_stream(codec, restored)
    if is_same_answer(codec, document, data):
        assert disagreements(document, data, source, target) == []
