"""Numbered cases: streams."""

import json

import pytest

import toolwire
from tables import every_case
from toolwire.ir import (
    CallDelta,
    CallEnd,
    CallStart,
    Ping,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    ResponseStart,
    Stop,
    TextDelta,
    fold,
)
from toolwire.testing import bytewise
from toolwire.wire import get

WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")


def chunk(delta=None, finish=None, index=0, **fields):
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish}]
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **fields}
    return f"data: {json.dumps(body)}\n\n".encode()


def calls_delta(*calls):
    return {"tool_calls": list(calls)}


def call(index, arguments, call_id=None, name=None):
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function} | ({"id": call_id, "type": "function"} if call_id else {})


DONE = b"data: [DONE]\n\n"
INTERLEAVED = [
    chunk({"role": "assistant", "content": None}),
    chunk(calls_delta(call(0, "", "a", "f"))),
    chunk(calls_delta(call(1, "", "b", "g"))),
    chunk(calls_delta(call(0, '{"x"'))),
    chunk(calls_delta(call(1, '{"y":'))),
    chunk(calls_delta(call(0, ": 1}"))),
    chunk(calls_delta(call(1, "2}"))),
    chunk({}, "tool_calls"),
    DONE,
]


def translated(data, source, target, request=None):
    translation = toolwire.translate_stream(source=source, target=target, request=request)
    return translation.feed(data) + translation.close(), translation


def frames(data):
    """The JSON of every event, without [DONE]."""
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def events_of(wire, data):
    decoder = get(wire).stream_decoder()
    return decoder.feed(data) + decoder.close()


def written(wire, *events):
    encoder = get(wire).stream_encoder()
    return b"".join(encoder.feed(event) for event in events)


@pytest.mark.case("54")
def test_indexes_with_gaps_are_renumbered():
    data = b"".join(
        [
            chunk({"role": "assistant"}),
            chunk(calls_delta(call(1, "{}", "a", "f"))),
            chunk(calls_delta(call(3, "{}", "b", "g"))),
            chunk({}, "tool_calls"),
            DONE,
        ]
    )
    blocks = [
        event["index"]
        for event in frames(translated(data, "openai_chat", "anthropic")[0])
        if event["type"] == "content_block_start"
    ]
    assert blocks == [0, 1]
    again = written("openai_chat", *events_of("openai_chat", data))
    indexes = {
        c["index"]
        for event in frames(again)
        for choice in event["choices"]
        for c in choice["delta"].get("tool_calls", ())
    }
    assert indexes == {0, 1}


@pytest.mark.case("55", "56")
@pytest.mark.parametrize("target", ["openai_chat"])
def test_id_and_name_are_written_once_with_empty_arguments(target):
    data = b"".join(
        [
            chunk({"role": "assistant"}),
            *[chunk(calls_delta(call(0, piece, "a", "f"))) for piece in ('{"x":', "1}")],
            chunk({}, "tool_calls"),
            DONE,
        ]
    )
    entries = [
        c
        for event in frames(written(target, *events_of("openai_chat", data)))
        for choice in event["choices"]
        for c in choice["delta"].get("tool_calls", ())
    ]
    assert [entry.get("id") for entry in entries] == ["a", None, None]
    assert entries[0]["function"] == {"name": "f", "arguments": ""}
    assert "".join(entry["function"]["arguments"] for entry in entries) == '{"x":1}'


@pytest.mark.case("57")
@pytest.mark.parametrize("target", WIRES)
def test_interleaved_deltas_are_reassembled(target):
    data = b"".join(INTERLEAVED)
    out = data if target == "openai_chat" else translated(data, "openai_chat", target)[0]
    made = toolwire.calls(out)
    assert [(c.id, c.name, c.arguments) for c in made] == [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]


@pytest.mark.case("57")
def test_interleaved_deltas_are_written_block_by_block_for_anthropic():
    out = frames(translated(b"".join(INTERLEAVED), "openai_chat", "anthropic")[0])
    order = [(event["type"], event["index"]) for event in out if event["type"].startswith("content_block")]
    assert order == sorted(order, key=lambda entry: entry[1])
    open_blocks = 0
    for kind, _ in order:
        open_blocks += {"content_block_start": 1, "content_block_stop": -1}.get(kind, 0)
        assert open_blocks <= 1


def test_reasoning_text_and_summaries_may_alternate():
    start, end = ResponseStart("r", "m"), ResponseEnd((Stop("stop"),))
    pieces = [("think ", None), ("first ", 0), ("more ", None), ("second", 1), ("end", None)]
    deltas = [ReasoningDelta.of(0, text, section) for text, section in pieces]
    data = written("openai_responses", start, ReasoningStart(0), *deltas, ReasoningEnd(0), end)
    kinds = [frame["type"] for frame in frames(data) if frame["type"].endswith("text.delta")]
    assert kinds == [
        f"response.reasoning_{'summary_' if section is not None else ''}text.delta" for _, section in pieces
    ]
    [part] = fold(events_of("openai_responses", data)).parts
    assert (part.text, part.summary) == ("think more end", ("first ", "second"))


@pytest.mark.case("58")
def test_a_call_without_argument_deltas_is_an_empty_object():
    events = (ResponseStart("r", "m"), CallStart(0, "t", "now"), CallEnd(0, {}), ResponseEnd((Stop("tool_calls"),)))
    anthropic = written("anthropic", *events)
    assert b"input_json_delta" not in anthropic
    chat = frames(translated(anthropic, "anthropic", "openai_chat")[0])
    fragments = [
        c["function"]["arguments"]
        for event in chat
        for choice in event["choices"]
        for c in choice["delta"].get("tool_calls", ())
    ]
    assert fragments == ["", "{}"]


@pytest.mark.case("59")
@pytest.mark.parametrize("target", ["anthropic", "openai_responses", "gemini"])
def test_surrogate_pair_split_across_deltas_is_joined(target):
    pieces = ['"a\\ud83d"', '"\\ude00b"', '"\\ud83d\\ude00"', '"\\ud83d"', '"c"']
    head, tail = chunk({"content": "@"}).decode().split('"@"')
    data = chunk({"role": "assistant", "content": ""}) + b"".join(f"{head}{piece}{tail}".encode() for piece in pieces)
    data += chunk({}, "stop") + DONE
    out, _ = translated(data, "openai_chat", target)
    assert fold(events_of(target, out)).text == "a😀b😀\ufffdc"
    for event in frames(out):
        json.dumps(event, ensure_ascii=False).encode()


@pytest.mark.case("59")
def test_utf8_text_is_decoded_when_split_at_every_byte():
    text = "é😀\u0000\u2028"
    data = b"".join([chunk({"role": "assistant", "content": text}), chunk({}, "stop"), DONE])
    data = json.dumps(text, ensure_ascii=False).encode().join(data.split(json.dumps(text).encode()))
    translation = toolwire.translate_stream(source="openai_chat", target="anthropic")
    out = b"".join(translation.feed(piece) for piece in bytewise(data)) + translation.close()
    assert fold(events_of("anthropic", out)).text == text


@pytest.mark.case("60")
def test_finish_reason_stop_with_calls_becomes_tool_calls():
    data = b"".join(
        [chunk({"role": "assistant"}), chunk(calls_delta(call(0, "{}", "a", "f"))), chunk({}, "stop"), DONE]
    )
    assert fold(events_of("openai_chat", data)).stop.reason == "tool_calls"
    out = frames(translated(data, "openai_chat", "anthropic")[0])
    assert [event["delta"]["stop_reason"] for event in out if event["type"] == "message_delta"] == ["tool_use"]


@pytest.mark.case("61")
@pytest.mark.parametrize("finish", ["length", "tool_calls", "stop"])
def test_incomplete_call_is_truncated_for_every_finish_reason(finish):
    data = b"".join(
        [chunk({"role": "assistant"}), chunk(calls_delta(call(0, '{"x": "y', "a", "f"))), chunk({}, finish), DONE]
    )
    (made,) = toolwire.calls(data)
    assert (made.state, made.arguments) == ("truncated", None)
    assert toolwire.calls(translated(data, "openai_chat", "anthropic")[0])[0].state == "truncated"


@pytest.mark.case("62")
def test_usage_is_written_only_when_the_request_includes_it():
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    data = b"".join([chunk({"role": "assistant", "content": "a"}), chunk({}, "stop"), chunk(None, usage=usage), DONE])
    assert fold(events_of("openai_chat", data)).usage.total == 3
    anthropic = translated(data, "openai_chat", "anthropic")[0]
    asked = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    for request, count in ((asked, 1), ({**asked, "stream_options": None}, 0)):
        out = frames(translated(anthropic, "anthropic", "openai_chat", request)[0])
        assert len([event for event in out if event.get("usage")]) == count


@pytest.mark.case("63")
def test_final_usage_overwrites_initial_usage():
    start = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    start["usage"] = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}
    events = [
        {"type": "message_start", "message": start},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    usage = fold(events_of("anthropic", data)).usage
    assert (usage.input, usage.cached, usage.output) == (15, 5, 7)


@pytest.mark.case("64")
def test_pings_are_written_in_the_form_of_each_wire():
    start = ResponseStart("r", "m")
    assert written("openai_chat", start, Ping()).endswith(b": ping\n\n")
    assert written("openai_responses", start, Ping()).endswith(b": ping\n\n")
    assert written("anthropic", start, Ping()).endswith(b'event: ping\ndata: {"type":"ping"}\n\n')
    assert written("gemini", start, Ping()).strip() == b""
    for wire in WIRES:
        end = ResponseEnd((Stop("stop"),))
        data = written(wire, start, Ping(), end)
        assert fold(events_of(wire, data)).stop.reason == "stop"


@pytest.mark.case("65")
@pytest.mark.parametrize("target", WIRES)
def test_mid_stream_error_is_translated_to_an_error_event(target):
    data = (
        b"event: message_start\ndata: "
        + json.dumps({"type": "message_start", "message": {"id": "m", "model": "c", "usage": {}}}).encode()
        + b"\n\n"
    )
    data += b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    out = data if target == "anthropic" else translated(data, "anthropic", target)[0]
    fault = fold(events_of(target, out)).fault
    assert fault.message == "Overloaded"
    if target == "openai_chat":
        assert frames(out)[-1]["error"]["message"] == "Overloaded"
    if target == "openai_responses":
        assert frames(out)[-1]["type"] == "response.failed"


@pytest.mark.case("66")
@every_case("source", WIRES)
@every_case("target", WIRES)
def test_truncated_stream_ends_in_an_error(source, target):
    if source == target:
        return
    whole = written(source, ResponseStart("r", "m"), *_two_items(), ResponseEnd((Stop("stop"),)))
    for length in range(0, len(whole) // 2, 7):
        out, translation = translated(whole[:length], source, target)
        assert isinstance(translation.error, toolwire.TruncatedStream)
        assert fold(events_of(target, out)).fault is not None


def _two_items():
    from toolwire.ir import TextEnd, TextStart

    yield TextStart(0)
    yield TextDelta.of(0, "some words that take a while")
    yield TextEnd(0)
    yield CallStart(1, "a", "f")
    yield CallDelta.of(1, '{"x": "a longer argument than that"}')
    yield CallEnd(1, {"x": "a longer argument than that"})


@pytest.mark.case("67")
def test_responses_stream_has_all_start_and_done_events():
    out = frames(translated(b"".join(INTERLEAVED), "openai_chat", "openai_responses")[0])
    assert [event["sequence_number"] for event in out] == list(range(len(out)))
    kinds = [event["type"].removeprefix("response.") for event in out]
    assert kinds[:2] == ["created", "in_progress"]
    assert kinds[-1] == "completed"
    for index in (0, 1):
        mine = [event["type"].removeprefix("response.") for event in out if event.get("output_index") == index]
        assert mine[0] == "output_item.added"
        assert mine[-2:] == ["function_call_arguments.done", "output_item.done"]
        assert set(mine[1:-2]) == {"function_call_arguments.delta"}
    words = frames(written("openai_responses", ResponseStart("r", "m"), *_two_items(), ResponseEnd((Stop("stop"),))))
    text = [event["type"].removeprefix("response.") for event in words if event.get("output_index") == 0]
    assert text == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]


@pytest.mark.case("68")
def test_complete_arguments_are_preceded_by_a_delta():
    parts = [{"functionCall": {"id": "a", "name": "f", "args": {}}}]
    data = (
        b"data: "
        + json.dumps(
            {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}
        ).encode()
        + b"\n\n"
    )
    kinds = [event["type"] for event in frames(translated(data, "gemini", "openai_responses")[0])]
    assert kinds.index("response.function_call_arguments.delta") < kinds.index("response.function_call_arguments.done")


@pytest.mark.case("33")
def test_encrypted_reasoning_is_taken_from_the_finished_item():
    item = {"type": "reasoning", "id": "rs", "summary": []}
    events = [
        {"type": "response.created", "response": {"id": "r", "model": "m"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "encrypted_content": "early"}},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "encrypted_content": "final"}},
        {"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", "output": []}},
    ]
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    (part,) = fold(events_of("openai_responses", data)).parts
    assert [artefact.data for artefact in part.artefacts] == ["final"]


def gemini(*parts, **fields):
    body = {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **fields}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


@pytest.mark.case("69")
def test_empty_part_with_a_signature_adds_no_text():
    data = gemini({"text": "abc"}) + gemini({"text": "", "thoughtSignature": "c2ln"}, finishReason="STOP")
    events = events_of("gemini", data)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["abc"]
    (part,) = fold(events).parts
    assert part.artefacts[0].data == "c2ln"


@pytest.mark.case("70")
def test_partial_arguments_by_json_path_are_assembled():
    def part(*pieces, more=True, **fields):
        return {"functionCall": {"partialArgs": list(pieces), "willContinue": more, **fields}}

    data = gemini(part(name="book")) + gemini(part({"jsonPath": "$.a.b[1]", "stringValue": "x", "willContinue": True}))
    data += gemini(
        part({"jsonPath": "$.a.b[1]", "stringValue": "y"}, {"jsonPath": "$.n", "numberValue": 2.0}, more=False),
        finishReason="STOP",
    )
    (made,) = toolwire.calls(data)
    assert made.arguments == {"a": {"b": [None, "xy"]}, "n": 2}


@pytest.mark.case("71")
def test_a_blocked_prompt_is_a_content_filter_stop():
    body = {"promptFeedback": {"blockReason": "SAFETY"}}
    chat = toolwire.translate(body, source="gemini", target="openai_chat", kind="response").body
    assert chat["choices"][0]["finish_reason"] == "content_filter"
    out, _ = translated(b"data: " + json.dumps(body).encode() + b"\n\n", "gemini", "openai_chat")
    assert frames(out)[-1]["choices"][0]["finish_reason"] == "content_filter"


@pytest.mark.case("73")
def test_alternative_choices_are_kept_or_reported_as_lost():
    data = b"".join(
        [
            chunk({"role": "assistant", "content": "a"}),
            chunk(calls_delta(call(0, "{}", "x", "f")), index=1),
            chunk({}, "stop"),
            chunk({}, "tool_calls", index=1),
            DONE,
        ]
    )
    response = fold(events_of("openai_chat", data))
    assert response.text == "a"
    assert response.alternatives[0].parts[0].name == "f"
    out, translation = translated(data, "openai_chat", "anthropic")
    assert "alternatives" in [loss.concept for loss in translation.losses]
    assert fold(events_of("anthropic", out)).calls == ()
    out, translation = translated(data, "openai_chat", "gemini")
    assert len(fold(events_of("gemini", out)).alternatives) == 1


@pytest.mark.case("74")
@pytest.mark.parametrize(
    "mangle",
    [
        lambda d: d.replace(b"\n", b"\r\n"),
        lambda d: d.replace(b"\n", b"\r"),
        lambda d: b"\xef\xbb\xbf" + d,
        lambda d: d.replace(b"data: ", b": comment\nid: 7\nretry: 1\ndata:"),
        lambda d: d.replace(b'{"id": "c",', b'{"id": "c",\ndata: '),
    ],
    ids=["CRLF", "CR", "BOM", "comments, no space", "several data lines"],
)
def test_equivalent_sse_framing_gives_the_same_events(mangle):
    data = b"".join(INTERLEAVED)
    assert events_of("openai_chat", mangle(data)) == events_of("openai_chat", data)
    decoder = get("openai_chat").stream_decoder()
    events = [event for piece in bytewise(mangle(data)) for event in decoder.feed(piece)] + decoder.close()
    assert events == events_of("openai_chat", data)
