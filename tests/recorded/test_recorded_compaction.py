"""Compacted and marked forms of recorded requests: the provider's documented constraints still hold."""

import recorded_traffic
from msgspec.structs import replace
from recorded_traffic import exchanges, wire_exchanges

import toolwire
from recordings import RECORDED
from tables import every_case
from toolwire.audit import check_body
from toolwire.bridge import mark_stable_prefix
from toolwire.ir import Reasoning, ToolCall, ToolResult, ToolwireError
from toolwire.run import Compaction, plan_compaction
from toolwire.wire import get

COMPLETE = len(exchanges()) >= recorded_traffic.PUBLISHED
SETTINGS = (
    Compaction(max_tokens=1, keep_first=0, keep_last=1, max_result=0),
    Compaction(max_messages=1, keep_last=1, summarise=True),
    Compaction(max_messages=1, keep_first=0, keep_last=2),
    Compaction(max_messages=1, keep_first=0, keep_last=3),
)


def test_recordings_are_present():
    recorded_traffic.require_recordings()


def encode(request, codec):
    """The body that is sent to the wire of the recording itself."""
    return codec.encode_request(toolwire.prepare(request, codec).request).body


def decoded():
    """Accepted recorded requests with a history, on the wires of this package."""
    for one in wire_exchanges():
        if not one.accepted:
            continue
        codec = get(one.wire)
        model = one.request.get("model") or one.model_in_path
        try:
            request = codec.decode_request(one.request)
            before = check_body(encode(request, codec), one.provider, model)
        except ToolwireError:
            continue
        if not before:
            yield one, codec, model, request


def answered_calls(messages):
    results = {part.call_id for message in messages for part in message.parts if isinstance(part, ToolResult)}
    calls = {part.id for message in messages for part in message.parts if isinstance(part, ToolCall)}
    return calls, results


def test_compacted_recorded_requests_are_accepted():
    compacted, reasoning = 0, 0
    violated = {}
    for one, codec, model, request in decoded():
        for settings in SETTINGS:
            plan = plan_compaction(request.messages, settings, tools=request.tools)
            if plan is None:
                continue
            compacted += 1
            messages = plan.apply(["A summary."] * len(plan.spans) if settings.summarise else ())
            calls, results = answered_calls(messages)
            before_calls, before_results = answered_calls(request.messages)
            assert calls & before_results == results & before_calls, one
            reasoning += any(isinstance(part, Reasoning) for message in messages for part in message.parts)
            try:
                body = encode(replace(request, messages=messages), codec)
            except ToolwireError as error:
                violated[f"{one} {settings}"] = error
                continue
            if found := check_body(body, one.provider, model):
                violated[f"{one} {settings}"] = found
    assert violated == {}
    if COMPLETE:
        assert compacted > 100
        assert reasoning > 10


def test_recorded_requests_with_cache_marks_are_accepted():
    marked = 0
    violated = {}
    for one, codec, model, request in decoded():
        with_marks = mark_stable_prefix(request, codec)
        marked += with_marks is not request
        if found := check_body(encode(with_marks, codec), one.provider, model):
            violated[repr(one)] = found
    assert violated == {}
    if COMPLETE:
        assert marked > 100, marked


@every_case("recorded", RECORDED, ids=repr)
def test_requests_of_real_clients_are_compacted(recorded):
    provider, _, version = recorded.wire.partition("@")
    codec = get(recorded.wire)
    request = codec.decode_request(recorded.body)
    for settings in SETTINGS:
        plan = plan_compaction(request.messages, settings)
        if plan is not None:
            body = encode(replace(request, messages=plan.apply()), codec)
            assert check_body(body, provider, version=version or None) == []
