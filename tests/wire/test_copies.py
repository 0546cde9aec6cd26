"""The rules by which decoders recognise a call that a later event repeats, and their cost."""

import json

import pytest

from tables import every_case
from toolwire import fold
from toolwire.ir.text import unescape
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get
from toolwire.wire.streaming.copies import Copy, equal_arguments, match_copies
from work_counter import assert_linear, count_work


def part(arguments, *, name="find", ids=("", ""), kind="function_call", is_open=False):
    copy = Copy(kind, name, ids, lambda: arguments, kind == "function_call")
    copy.is_open = is_open
    return copy


ONE, TWO = '{"x":1}', '{"x":2}'


@every_case(
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
    for count in (25, 50, 100):
        data = write(count).encode()
        assert len(fold(decode_stream(get(wire), [data])).calls) == calls * count
        costs.append((count, count_work(lambda data=data: decode_stream(get(wire), [data]))))
    assert_linear(costs)


def call_item(arguments="", *, call_id="c1", item_id="f1"):
    return {"type": "function_call", "id": item_id, "call_id": call_id, "name": "find", "arguments": arguments}


def responses_data(*events):
    completed = event(type="response.completed", response={"status": "completed", "output": []})
    return "".join([*events, completed]).encode()


@pytest.mark.parametrize("arguments", ["", "{}", ONE])
@pytest.mark.parametrize("ids", [{"call_id": "c2"}, {"call_id": "c2", "item_id": "f2"}])
def test_call_that_ends_under_another_id_is_one_call(arguments, ids):
    added = event(type="response.output_item.added", output_index=0, item=call_item(arguments))
    done = event(type="response.output_item.done", output_index=0, item=call_item(ONE, **ids))
    calls = fold(decode_stream(get("openai_responses"), [responses_data(added, done, done)])).calls
    assert [(call.id, call.arguments, call.state) for call in calls] == [("c1", {"x": 1}, "complete")]


def test_placeholder_of_a_call_that_the_final_response_lacks_is_truncated():
    added = event(type="response.output_item.added", output_index=0, item=call_item("{}"))
    other = call_item(ONE, call_id="c2", item_id="f2")
    final = event(type="response.completed", response={"status": "completed", "output": [{**other, "name": "set"}]})
    calls = fold(decode_stream(get("openai_responses"), [(added + final).encode()])).calls
    assert [(call.id, call.state) for call in calls] == [("c1", "truncated"), ("c2", "complete")]


@pytest.mark.parametrize("kind", ["function_call_arguments", "output_text"])
def test_short_copies_of_a_long_item_do_not_join_its_pieces(kind, monkeypatch):
    field = {"function_call_arguments": "arguments", "output_text": "text"}[kind]
    sizes = []

    def count(data):
        sizes.append(len(data))
        return unescape(data)

    monkeypatch.setattr("toolwire.wire.openai_responses.stream_state.unescape", count)
    item = call_item() if field == "arguments" else {"type": "message", "id": "f1", "role": "assistant", "content": []}
    added = event(type="response.output_item.added", output_index=0, item=item)
    place = {"item_id": "f1", "output_index": 0}
    deltas = [event(type=f"response.{kind}.delta", **place, delta="y" * 500)] * 50
    copies = [event(type=f"response.{kind}.done", **place, **{field: "x"})] * 100
    decode_stream(get("openai_responses"), [responses_data(added, *deltas, *copies)])
    assert sum(sizes) <= 2 * 50 * 500


def messages_data(*events):
    start = event(type="message_start", message={"id": "m", "role": "assistant", "content": []})
    stop = event(type="message_delta", delta={"stop_reason": "tool_use"}) + event(type="message_stop")
    return "".join([start, *events, stop]).encode()


def test_stops_without_an_index_do_not_look_at_all_open_blocks():
    class Blocks(dict):
        reads = 0

        def __iter__(self):
            for key in super().__iter__():
                self.reads += 1
                yield key

    text = {"type": "text", "text": "x"}
    starts = [event(type="content_block_start", index=n, content_block=text) for n in range(200)]
    decoder = get("anthropic").stream_decoder()
    decoder._blocks = Blocks()
    decoder.feed(messages_data(*starts, *[event(type="content_block_stop")] * 200))
    assert decoder._blocks.reads <= 200


def block(index, call_id, *inputs):
    use = {"type": "tool_use", "id": call_id, "name": "find", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": text} for text in inputs]
    deltas = "".join(event(type="content_block_delta", index=index, delta=piece) for piece in pieces)
    start = event(type="content_block_start", index=index, content_block=use)
    return start + deltas + event(type="content_block_stop", index=index)


@pytest.mark.parametrize(
    ("events", "losses"),
    [
        pytest.param([block(0, "t", ONE)] * 3, 0, id="a call three times"),
        pytest.param([block(0, "t", ONE, ONE, ONE)], 0, id="input three times"),
        pytest.param([block(0, "", ONE, TWO)], 1, id="other input of a call without an id"),
        pytest.param([block(0, "t", ONE, TWO), block(0, "u", ONE)], 1, id="other input before another call"),
        pytest.param([block(0, "t", ONE), block(0, "u", ONE), block(0, "t", TWO)], 1, id="other input after another call"),
        pytest.param([block(0, "t", ONE, "}")], 1, id="a brace"),
    ],
)  # fmt: skip
def test_input_after_the_complete_one_is_compared(events, losses):
    decoder = get("anthropic").stream_decoder()
    response = fold(decoder.feed(messages_data(*events)) + decoder.close())
    assert {(call.id, call.state) for call in response.calls} >= {(response.calls[0].id, "complete")}
    assert len({call.id for call in response.calls}) == len(response.calls)
    assert len(decoder.losses) == losses


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
