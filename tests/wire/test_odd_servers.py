"""Streams as real servers send them, beyond what the specification says."""

import json

import pytest

import toolwire
from toolwire.ir import Ping, Response, ResponseEnd, ResponseStart, Stop, StreamFault, TextEnd, TextStart, fold, unfold
from toolwire.ir.text import unescape
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get
from toolwire.wire.openai_chat import stream_decoder, stream_state


def chat(*choices, done=True, **envelope):
    chunks = [{"id": "c", "object": "chat.completion.chunk", "model": "m", **envelope, "choices": [c]} for c in choices]
    frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*frames, "data: [DONE]\n\n" if done else ""]).encode()


def delta(finish=None, **fields):
    return {"index": 0, "delta": fields, "finish_reason": finish}


def calls_of(wire, data):
    return [(call.name, call.arguments) for call in fold(decode_stream(get(wire), [data])).calls]


def call(name, arguments, **more):
    return {"function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize("more", [{}, {"index": 0}], ids=["no index", "index 0"])
def test_two_complete_calls_with_the_same_name_and_no_id_stay_separate(more):
    one, two = call("f", '{"a": 1}', **more), call("f", '{"a": 2}', **more)
    expected = [("f", {"a": 1}), ("f", {"a": 2})]
    assert calls_of("openai_chat", chat(delta(tool_calls=[one, two]), delta("tool_calls"))) == expected
    assert calls_of("openai_chat", chat(delta(tool_calls=[one]), delta("tool_calls", tool_calls=[two]))) == expected


def test_a_name_that_is_repeated_with_every_delta_is_one_call():
    deltas = [delta(tool_calls=[call("f", piece, index=0)]) for piece in ('{"a"', ": 1", "}", "")]
    assert calls_of("openai_chat", chat(*deltas, delta("tool_calls"))) == [("f", {"a": 1})]


def test_white_space_after_a_finished_call_is_ignored():
    data = chat(
        delta(tool_calls=[call("f", "{}", index=0, id="1")]),
        delta(tool_calls=[call("g", "{}", index=1, id="2")]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "\n"}}]),
        delta("tool_calls"),
    )
    assert calls_of("openai_chat", data) == [("f", {}), ("g", {})]


def test_reasoning_repeated_in_two_fields_is_read_once():
    data = chat(delta(reasoning="so", reasoning_content="so"), delta("stop", content="yes"))
    reasoning, text = fold(decode_stream(get("openai_chat"), [data])).parts
    assert (reasoning.text, text.text) == ("so", "yes")


def test_first_azure_chunk_does_not_set_id_and_model():
    first = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    data = f"data: {json.dumps(first)}\n\n".encode() + chat(delta("stop", content="hi"))
    response = fold(decode_stream(get("openai_chat"), [data]))
    assert (response.id, response.model, response.text) == ("c", "m", "hi")
    assert response.extra["openai_chat"]["prompt_filter_results"] == [{"prompt_index": 0}]


def test_error_inside_a_choice_keeps_its_message():
    error = {"code": 502, "message": "the provider went away"}
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "error": error}]}
    fault = get("openai_chat").decode_response(body).fault
    assert (fault.status, fault.message) == (502, "the provider went away")
    last = decode_stream(get("openai_chat"), [chat({**delta("error", content=""), "error": error})])[-1]
    assert isinstance(last, StreamFault) and last.fault.message == "the provider went away"


def test_stream_error_without_an_envelope_is_read():
    frame = {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400}
    last = decode_stream(get("openai_chat"), [f"data: {json.dumps(frame)}\n\n".encode()])[-1]
    assert (last.fault.kind, last.fault.status, last.fault.message) == ("invalid_request", 400, "too long")


@pytest.mark.parametrize("detail", ["Not Found", [{"loc": ["body"], "msg": "field required"}]], ids=["words", "list"])
def test_web_framework_errors_are_read(detail):
    fault = get("openai_chat").decode_error(422, {"detail": detail})
    assert fault.status == 422
    assert "Not Found" in fault.message or "field required" in fault.message


def test_choices_are_ordered_by_index():
    choices = [
        {"index": index, "message": {"role": "assistant", "content": str(index)}, "finish_reason": "stop"}
        for index in (1, 0)
    ]
    response = get("openai_chat").decode_response({"choices": choices})
    assert (response.text, response.alternatives[0].parts[0].text) == ("0", "1")


def test_tool_calls_finish_reason_without_calls_becomes_stop():
    body = {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "", "tool_calls": []},
                "finish_reason": "tool_calls",
            }
        ]
    }
    assert get("openai_chat").decode_response(body).stop.reason == "stop"


def test_result_without_an_id_round_trips():
    body = {"messages": [{"role": "tool", "name": "f", "content": "1"}]}
    wire = get("openai_chat")
    assert wire.encode_request(wire.decode_request(body)).body["messages"] == body["messages"]


def test_incomplete_gemini_partial_arguments_are_a_truncated_call():
    pieces = [{"jsonPath": "$.city", "stringValue": "Par", "willContinue": True}]
    chunks = [
        {"functionCall": {"name": "f", "willContinue": True}},
        {"functionCall": {"partialArgs": pieces, "willContinue": True}},
    ]
    frames = [{"candidates": [{"index": 0, "content": {"role": "model", "parts": [chunk]}}]} for chunk in chunks]
    frames.append({"candidates": [{"index": 0, "finishReason": "MAX_TOKENS"}]})
    data = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames).encode()
    response = fold(decode_stream(get("gemini"), [data]))
    (call,) = response.calls
    assert (call.state, call.raw, response.stop.reason) == ("truncated", '{"city":"Par"', "length")


def events_of(*events):
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def test_arguments_complete_only_in_the_done_event_are_read():
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": ""}
    whole = {**item, "arguments": '{"a": 1}', "status": "completed"}
    response = {"id": "r", "object": "response", "status": "in_progress", "model": "m", "output": []}
    data = events_of(
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc", "delta": '{"a"'},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [whole]}},
    )
    assert calls_of("openai_responses", data) == [("f", {"a": 1})]


def test_end_without_a_stop_reason_becomes_stop_with_a_loss():
    start = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None}
    data = events_of(
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
    )
    stream = toolwire.translate_stream(source="anthropic", target="openai_chat")
    assert b'"finish_reason":"stop"' in stream.feed(data) + stream.close()
    assert [loss.concept for loss in stream.losses if loss.severity != "info"] == ["stop reason unknown"]


def test_ping_may_be_written_before_the_start():
    encoder = get("anthropic").stream_encoder()
    assert encoder.feed(Ping()) == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert encoder.feed(ResponseStart("a", "m")) == b""
    written = encoder.feed(TextStart(0)) + encoder.feed(TextEnd(0)) + encoder.feed(ResponseEnd((Stop("stop"),)))
    assert written.startswith(b"event: message_start") and b'"id":"a"' in written


def test_call_interrupted_by_another_call_is_truncated():
    parts = [
        {"functionCall": {"name": "f", "willContinue": True}},
        {"functionCall": {"name": "g", "args": {"x": 1}}},
    ]
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    seen = toolwire.calls(f"data: {json.dumps(body)}\n\n")
    assert [(one.name, one.state, one.arguments) for one in seen] == [
        ("f", "truncated", None),
        ("g", "complete", {"x": 1}),
    ]


def test_interleaved_partial_arguments_are_matched_by_id():
    pieces = [
        {"id": "1", "name": "f", "willContinue": True},
        {"id": "2", "name": "g", "willContinue": True},
        {"id": "1", "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": True},
        {"id": "2", "partialArgs": [{"jsonPath": "$.b", "numberValue": 2}]},
        {"id": "1", "partialArgs": [{"jsonPath": "$.a", "stringValue": "y"}]},
    ]
    frames = [{"candidates": [{"content": {"parts": [{"functionCall": piece}]}}]} for piece in pieces]
    frames.append({"candidates": [{"finishReason": "STOP"}]})
    data = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames).encode()
    assert calls_of("gemini", data) == [("f", {"a": "xy"}), ("g", {"b": 2})]


@pytest.mark.parametrize("value", [{"numberValue": "x"}, {"boolValue": "no"}])
def test_partial_argument_of_the_wrong_type_is_rejected(value):
    piece = {"name": "f", "partialArgs": [{"jsonPath": "$.a", **value}]}
    body = {"candidates": [{"content": {"parts": [{"functionCall": piece}]}, "finishReason": "STOP"}]}
    with pytest.raises(toolwire.ProtocolError):
        toolwire.calls(f"data: {json.dumps(body)}\n\n")


def test_event_type_may_be_given_only_in_the_sse_frame():
    data = (
        b'event: response.created\ndata: {"response":{"id":"r","model":"m"}}\n\n'
        b'event: response.completed\ndata: {"response":{"id":"r","status":"completed","output":[]}}\n\n'
    )
    assert toolwire.calls(data, "openai_responses") == ()


def test_type_of_an_anthropic_delta_is_inferred_from_its_field():
    blocks = [
        ({"type": "thinking", "thinking": ""}, {"thinking": "So"}),
        ({"type": "text", "text": ""}, {"text": "Hi"}),
        ({"type": "tool_use", "id": "t", "name": "f", "input": {}}, {"partial_json": '{"a":1}'}),
        ({"type": "new"}, {"text": "?"}),
    ]
    events = [{"type": "message_start", "message": {"id": "m"}}]
    for index, (block, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
    events += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    data = "".join([f"data: {json.dumps(event)}\n\n" for event in events]).encode()
    response = fold(decode_stream(get("anthropic"), [data]))
    reasoning, text, call, other = response.parts
    assert (reasoning.joined_text, text.text, call.arguments) == ("So", "Hi", {"a": 1})
    assert other.value == {"type": "new", "text": "?"}


@pytest.mark.parametrize("wire", ["anthropic", "openai_responses"])
@pytest.mark.parametrize("kind", [[1], {}, 5, None])
def test_event_without_a_valid_type_is_ignored(wire, kind):
    decoder = get(wire).stream_decoder()
    assert decoder.feed(f"event: x\ndata: {json.dumps({'type': kind})}\n\n".encode()) == []


@pytest.mark.parametrize(
    "part",
    [
        rb'{"functionCall":{"name":"f","args":{"a":"x\ud83d"}}}',
        rb'{"functionCall":{"name":"f\ud83d","args":{}}}',
    ],
)
def test_lone_surrogate_in_a_complete_value_is_rejected(part):
    data = b'data: {"candidates":[{"content":{"parts":[' + part + b']},"finishReason":"STOP"}]}\n\n'
    stream = toolwire.translate_stream(source="gemini", target="openai_chat")
    written = stream.feed(data) + stream.close()
    assert "lone surrogate" in str(stream.error) and "\U0010f83d".encode() not in written


def test_invalid_event_with_an_escape_is_a_fault_of_the_server():
    stream = toolwire.translate_stream(source="openai_chat", target="anthropic")
    stream.feed(b'data: {"choices": [{"delta": {"content": "\\u0041"}}\n\n')
    stream.close()
    assert stream.error.status == 502


def test_unmatched_surrogate_in_a_stream_becomes_a_replacement_character():
    data = chat(delta(content="hi"), done=False).replace(b"hi", rb"hi\ud83d") + chat(delta("stop"))
    assert fold(decode_stream(get("openai_chat"), [data])).text == "hi\ufffd"


@pytest.mark.parametrize("bom", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_byte_order_mark_before_a_chunk_array_is_accepted(bom, size):
    data = bom + b'[{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}]'
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert fold(decode_stream(get("gemini"), pieces)).text == "hi"
    assert toolwire.calls(data, "gemini") == toolwire.calls(data) == ()


@pytest.mark.parametrize("has_deltas", [False, True])
def test_many_messages_do_not_read_the_text_so_far_again(monkeypatch, has_deltas):
    read = []

    def count(escaped):
        read.append(len(escaped))
        return unescape(escaped)

    for module in (stream_state, stream_decoder):
        monkeypatch.setattr(module, "unescape", count)
    choices = []
    for number in range(300):
        if has_deltas:
            choices.append({"index": 0, "delta": {"content": f"word {number} "}})
        choices.append({"index": 0, "message": {"content": f"{number} "}})
    data = chat(*choices)
    get("openai_chat").stream_decoder().feed(data)
    assert sum(read) < len(data)


def test_responses_call_that_ends_under_another_id_is_one_call():
    call = {"type": "function_call", "id": "i1", "call_id": "a", "name": "f", "arguments": ""}
    renamed = {**call, "call_id": "b", "arguments": '{"x":1}'}
    response = {"id": "r", "model": "m", "status": "completed", "output": [renamed]}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "i1", "delta": '{"x":1}'},
        {"type": "response.output_item.done", "output_index": 0, "item": renamed},
        {"type": "response.completed", "response": response},
    ]
    decoder = get("openai_responses").stream_decoder()
    found = [item for event in events for item in decoder.feed(f"data: {json.dumps(event)}\n\n".encode())]
    parts = fold([*found, *decoder.close()]).parts
    assert [(part.id, part.arguments) for part in parts] == [("a", {"x": 1})]


@pytest.mark.parametrize(("is_last", "state"), [(True, "truncated"), (False, "complete")])
def test_only_the_last_item_of_a_limited_answer_can_be_cut(is_last, state):
    """A freeform call that ended under other ids, without a status: anomalyco/opencode#36766, vllm-project/vllm#47916."""
    call = {"type": "custom_tool_call", "id": "i1", "call_id": "a", "name": "run", "input": ""}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    response = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": call},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**call, "id": "i2", "call_id": "b", "input": "ls"},
        },
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.incomplete", "response": response},
    ]
    if is_last:
        del events[2]
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    [call] = fold(decode_stream(get("openai_responses"), [data])).calls
    assert (call.id, call.raw, call.state) == ("a", "ls", state)


def test_calls_with_one_call_id_are_written_with_two_item_ids():
    """OpenAI refuses an input with two items of one id."""
    calls = [toolwire.ToolCall("a", "f", {"x": 1}), toolwire.ToolCall("a", "f", {"x": 2})]
    answer = Response("r", "m", (*calls,), Stop("tool_calls"))
    wire = get("openai_responses")
    whole = wire.encode_response(answer).body["output"]
    encoder = wire.stream_encoder()
    stream = b"".join(map(encoder.feed, unfold(answer)))
    final = json.loads(stream.rpartition(b"data: ")[2])["response"]["output"]
    for items in (whole, final):
        assert [item["call_id"] for item in items] == ["a", "a"]
        assert len({item["id"] for item in items}) == 2


def test_item_id_of_a_wrong_type_is_no_error():
    wire = get("openai_responses")
    call = {"type": "function_call", "id": ["x"], "call_id": "a", "name": "f", "arguments": "{}", "status": "completed"}
    answer = wire.decode_response({"id": "r", "object": "response", "status": "completed", "output": [call, call]})
    assert [item["call_id"] for item in wire.encode_response(answer).body["output"]] == ["a", "a"]
    encoder = wire.stream_encoder()
    assert b"response.completed" in b"".join(map(encoder.feed, unfold(answer)))


def custom(call_id, text, name="run", **more):
    return {"index": 0, "id": call_id, "type": "custom", "custom": {"name": name, "input": text}, **more}


def inputs_of(data):
    return [(call.id, call.raw, call.state) for call in fold(decode_stream(get("openai_chat"), [data])).calls]


def test_freeform_calls_with_index_0_are_separated_by_their_ids():
    """Servers use one index for all calls (ollama/ollama#15457)."""
    deltas = [delta(tool_calls=[custom("a", "ls")]), delta(tool_calls=[custom("b", "pwd")])]
    expected = [("a", "ls", "complete"), ("b", "pwd", "complete")]
    assert inputs_of(chat(*deltas, delta("tool_calls"))) == expected
    again = delta(tool_calls=[custom("a", "ls")])
    assert inputs_of(chat(*deltas, again, delta("tool_calls"))) == expected


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_freeform_call_at_a_limit_is_truncated(reason):
    """Nothing in the input shows that its end is missing, so the last call is never run."""
    calls = [custom("a", "ls"), custom("b", "rm -rf /tmp", index=1)]
    expected = [("a", "ls", "complete"), ("b", "rm -rf /tmp", "truncated")]
    assert inputs_of(chat(delta(tool_calls=calls), delta(reason))) == expected
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    body = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    response = get("openai_chat").decode_response(body)
    assert [(call.id, call.raw, call.state) for call in response.calls] == expected
    for wire in ("anthropic", "gemini", "ollama"):
        translation = toolwire.translate_response(body, source="openai_chat", target=wire)
        complete = [call for call in get(wire).decode_response(translation.body).calls if call.state == "complete"]
        assert [call.arguments for call in complete] == [{"input": "ls"}], wire


def test_freeform_call_after_an_early_reason_is_truncated_without_an_end_marker():
    choices = delta("stop", content="Look"), delta(tool_calls=[custom("a", "rm -rf /tmp")])
    assert inputs_of(chat(*choices, done=False)) == [("a", "rm -rf /tmp", "truncated")]
    assert inputs_of(chat(*choices)) == [("a", "rm -rf /tmp", "complete")]


def test_annotations_that_come_after_their_text_are_reported():
    annotated = {"type": "text", "text": "Look", "annotations": [{"type": "url_citation"}]}
    data = chat(
        delta(content="Look"),
        delta(tool_calls=[call("f", '{"a": 1}', index=0, id="1")]),
        {"index": 0, "message": {"content": [annotated]}, "finish_reason": "stop"},
    )
    decoder = get("openai_chat").stream_decoder()
    assert fold(decoder.feed(data)).text == "Look"
    assert "a message adds annotations to text that has been sent" in [loss.detail for loss in decoder.losses]


def test_error_beside_empty_choices_is_the_fault():
    error = {"message": "overloaded", "type": "server_error", "code": 503}
    response = get("openai_chat").decode_response({"id": "x", "choices": [], "error": error})
    assert response.fault.message == "overloaded"
    assert get("openai_chat").decode_response({"id": "x", "choices": []}).fault is None


def test_reference_in_an_answer_is_opaque_with_its_own_type():
    items = [{"id": "msg_1"}, {"role": "user", "content": "hi"}]
    parts = get("openai_responses").decode_response({"id": "r", "output": items, "status": "completed"}).parts
    assert [(part.type, part.value) for part in parts] == [("item_reference", items[0]), ("message", items[1])]
