"""The rule by which both OpenAI decoders recognise a call that a later event repeats, and its cost."""

import json

import pytest

from toolwire import fold
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get
from toolwire.wire.copies import Copy, equal_arguments, match_copies
from work_counter import assert_linear, count_work


def part(arguments, *, name="find", ids=("", ""), kind="function_call", is_open=False):
    copy = Copy(kind, name, ids, lambda: arguments, kind == "function_call")
    copy.is_open = is_open
    return copy


ONE, TWO = '{"x":1}', '{"x":2}'


@pytest.mark.parametrize(
    ("items", "copies", "found"),
    [
        pytest.param([part(ONE, ids=("a", "")), part(TWO, ids=("b", ""))], [part(TWO, ids=("a", ""))], [0], id="id"),
        pytest.param(
            [part(ONE, ids=("a", "")), part(TWO, ids=("a", ""))],
            [part(TWO, ids=("a", "")), part(ONE, ids=("a", ""))],
            [1, 0],
            id="shared id, so equal arguments",
        ),
        pytest.param(
            [part(ONE), part(TWO)], [part('{ "x": 2.0 }'), part(ONE)], [1, 0], id="other formatting and order"
        ),
        pytest.param(
            [part(ONE, ids=("a", ""))], [part(ONE, ids=("b", "")), part(ONE, ids=("c", ""))], [0, None], id="used once"
        ),
        pytest.param(
            [part("", is_open=True), part('{"x":', is_open=True)],
            [part(TWO), part('{"y":2}')],
            [1, 0],
            id="longest start",
        ),
        pytest.param([part('{"x":')], [part(TWO, ids=("b", ""))], [0], id="position"),
        pytest.param([part(ONE, ids=("a", ""))], [part(TWO, ids=("b", ""))], [None], id="other id and arguments"),
        pytest.param([part(ONE)], [part(ONE, name="other")], [None], id="other name"),
        pytest.param([part(ONE)], [part(ONE, kind="custom_tool_call")], [None], id="other kind"),
        pytest.param([part('{"x":1}')], [part('{"x":true}', ids=("b", ""))], [0], id="true is not 1, but the position"),
    ],
)
def test_copies_are_matched_by_id_then_content_then_position(items, copies, found):
    assert match_copies(items, copies) == found


def test_positions_do_not_count_among_messages_without_deltas():
    assert match_copies([part(ONE)], [part(TWO)], by_position=False) == [None]


def test_arguments_are_equal_in_any_formatting():
    assert equal_arguments('{"a":1,"b":[2.0]}', '{ "b": [2], "a": 1 }')
    assert not equal_arguments('{"a":1}', '{"a":true}')
    assert not equal_arguments('{"a":"1"}', '{"a":1}')
    assert equal_arguments(f'{{"a":{10**40}}}', f'{{"a":{10**40}}}')
    assert not equal_arguments('{"a":', '{"a": ')


def event(**fields):
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n"


def responses_stream(count):
    """Calls under one id each, and a final response that lists them backwards under new ids."""
    calls = [
        {"type": "function_call", "id": f"f{n}", "call_id": f"c{n}", "name": "find", "arguments": f'{{"x":{n}}}'}
        for n in range(count)
    ]
    events = [event(type="response.output_item.done", item=call) for call in calls]
    output = [{**call, "id": f"z{n}", "call_id": f"y{n}"} for n, call in enumerate(reversed(calls))]
    events.append(event(type="response.completed", response={"status": "completed", "output": output}))
    return "".join(events)


def open_items(count):
    """Calls that stay open, and as many items that end under unknown ids."""
    events = []
    for n in range(count):
        call = {"type": "function_call", "id": f"f{n}", "call_id": f"c{n}", "name": "find", "arguments": ""}
        events.append(event(type="response.output_item.added", item=call))
    for n in range(count):
        events.append(event(type="response.function_call_arguments.delta", item_id=f"f{n}", delta=f'{{"x":{n}'))
        call = {"type": "function_call", "id": f"g{n}", "call_id": f"d{n}", "name": "find", "arguments": f'{{"y":{n}}}'}
        events.append(event(type="response.output_item.done", item=call))
    events.append(event(type="response.completed", response={"status": "completed", "output": []}))
    return "".join(events)


def chat_chunk(**choice):
    return f"data: {json.dumps({'id': 'c', 'choices': [{'index': 0, 'finish_reason': None, **choice}]})}\n\n"


def chat_message(*calls):
    entries = [{"id": call_id, "function": {"name": "find", "arguments": arguments}} for call_id, arguments in calls]
    return chat_chunk(message={"role": "assistant", "tool_calls": entries})


def chat_fragments(count):
    """A message for each call."""
    return "".join(chat_message((f"c{n}", f'{{"x":{n}}}')) for n in range(count)) + "data: [DONE]\n\n"


def chat_repetitions(count):
    """Calls in deltas, and a message with another call for each of them."""
    deltas = [
        chat_chunk(delta={"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": f'{{"x":{n}}}'}}]})
        for n in range(count)
    ]  # fmt: skip
    return "".join(deltas) + "".join(chat_message((f"n{n}", f'{{"y":{n}}}')) for n in range(count)) + "data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("wire", "write", "calls"),
    [
        ("openai_responses", responses_stream, 1),
        ("openai_responses", open_items, 2),
        ("openai_chat", chat_fragments, 1),
        ("openai_chat", chat_repetitions, 2),
    ],
)
def test_cost_of_repeated_calls_is_linear(wire, write, calls):
    costs = []
    for count in (50, 100, 200):
        data = write(count).encode()
        assert len(fold(decode_stream(get(wire), [data])).calls) == calls * count
        costs.append((count, count_work(lambda data=data: decode_stream(get(wire), [data]))))
    assert_linear(costs)


def test_last_message_repeats_many_calls_backwards_under_new_ids():
    count = 100
    calls = [(f"c{n}", f'{{"x":{n}}}') for n in range(count)]
    deltas = [
        chat_chunk(delta={"tool_calls": [{"index": n, "id": call_id, "function": {"name": "find", "arguments": text}}]})
        for n, (call_id, text) in enumerate(calls)
    ]
    message = chat_message(*[(f"n{call_id}", text) for call_id, text in reversed(calls)])
    data = "".join([*deltas, message, chat_message(("m", calls[0][1])), "data: [DONE]\n\n"]).encode()
    assert [call.id for call in fold(decode_stream(get("openai_chat"), [data])).calls] == [name for name, _ in calls]


def test_short_copies_of_a_long_call_do_not_join_its_arguments(monkeypatch):
    """Many repetitions of a call with long arguments cost no more than their own length."""
    from toolwire.wire.openai_chat import stream_state

    read = []
    unescape = stream_state.unescape
    monkeypatch.setattr(stream_state, "unescape", lambda data: read.append(len(data)) or unescape(data))
    long = chat_message(("a", json.dumps({"x": "y" * 100_000})))
    decoder = get("openai_chat").stream_decoder()
    for chunk in (long, *[chat_message((f"n{n}", "{}")) for n in range(50)]):
        decoder.feed(chunk.encode())
    assert sum(read) < 1_000_000
