"""Whatever a request holds, it goes out legal on every wire, or is refused with a reason."""

import re
from collections import Counter

from hypothesis import given
from msgspec.structs import replace

import toolwire
from canonical import requests
from combinations import for_every
from loss_pointers import unresolved
from recordings import WIRES
from sdk_validation import validate_request
from toolwire.ir import ToolCall, ToolResult, ToolwireError
from toolwire.ir.request import Params
from toolwire.ir.text import to_bytes
from toolwire.stream.strict import parse_object
from toolwire.wire import ModelCapabilities, get


@given(request=requests())
@for_every(wire=WIRES)
def test_encoded_request_is_valid_or_rejected(wire, request):
    codec = get(wire)
    try:
        prepared = toolwire.prepare(request, codec)
        body = codec.encode_request(prepared.request).body
    except ToolwireError:
        return
    body = parse_object(to_bytes(body))
    validate_request(wire, body)
    back = codec.decode_request(body)
    calls = [part for message in back.messages for part in message.parts if isinstance(part, ToolCall)]
    results = [part for message in back.messages for part in message.parts if isinstance(part, ToolResult)]
    assert len(calls) == len(results) == len(_calls(request))
    if all(call.id for call in calls):  # Gemini may go without ids
        assert Counter(call.id for call in calls).keys() == {result.call_id for result in results}
        assert len({call.id for call in calls}) == len(calls)
    for name in [call.name for call in calls] + [tool.name for tool in back.tools]:
        assert re.fullmatch(codec.limits.name, name)
        assert len(name) <= codec.limits.name_length


def _calls(request):
    return [part for m in request.messages if m.role == "assistant" for part in m.parts if isinstance(part, ToolCall)]


@given(request=requests())
@for_every(wire=WIRES)
def test_preparing_is_a_pure_function(wire, request):
    try:
        first = toolwire.prepare(request, get(wire))
    except ToolwireError:
        return
    second = toolwire.prepare(request, get(wire))
    assert first.request == second.request
    assert list(first.losses) == list(second.losses)


@given(request=requests())
@for_every(wire=WIRES)
def test_preparing_twice_equals_preparing_once(wire, request):
    """Fitting twice is fitting once."""
    codec = get(wire)
    try:
        once = toolwire.prepare(request, codec).request
    except ToolwireError:
        return
    assert toolwire.prepare(once, codec).request == once


@given(request=requests())
@for_every(source=WIRES, target=WIRES)
def test_pointers_of_losses_resolve(source, target, request):
    codec = get(source)
    try:
        document = codec.encode_request(toolwire.prepare(request, codec).request).body
        translation = toolwire.translate_request(document, source=source, target=target, model="m")
    except ToolwireError:
        return
    assert unresolved(document, translation) == []


# Bedrock rejects a cache point and Claude's settings for other models ("extraneous key [thinking] is not permitted").
ANY_MODEL = {"bedrock": ModelCapabilities(cache_marks=False, budgets=False, adaptive=False, system="start")}


@given(request=requests())
@for_every(wire=WIRES)
def test_unknown_model_loses_nothing_to_capability_rows(wire, request):
    """No rule about a model applies to a model without a row; only those of the wire do."""
    request = replace(request, model="house-7b")
    try:
        prepared = toolwire.prepare(request, wire)
        without_rows = toolwire.prepare(request, wire, capabilities=ANY_MODEL.get(wire, ModelCapabilities()))
    except ToolwireError:
        return
    assert prepared.request == without_rows.request
    assert not [loss for loss in prepared.losses if "this model" in loss.detail]
    for name in Params.__struct_fields__:
        if name not in ("user", "stop", "max_tokens", "include_usage"):  # these have limits on the wires
            assert getattr(prepared.request.params, name) == getattr(request.params, name)


def test_model_without_a_row_gets_no_setting_of_claude_on_bedrock():
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    body = {
        "model": "m",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [marked]}],
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "top_k": 4,
    }
    known = toolwire.translate_request(body, source="anthropic@2023-06-01", target="bedrock", model="claude-sonnet-4-5")
    assert known.body["additionalModelRequestFields"].keys() == {"thinking"}
    assert known.body["messages"][0]["content"][1] == {"cachePoint": {"type": "default"}}
    unknown = toolwire.translate_request(body, source="anthropic@2023-06-01", target="bedrock", model="house-7b")
    assert "additionalModelRequestFields" not in unknown.body
    assert unknown.body["messages"] == [{"role": "user", "content": [{"text": "hi"}]}]
    paths = {loss.path for loss in unknown.losses}
    assert {"/messages/0/content/0/cache_control", "/thinking/budget_tokens", "/top_k"} <= paths
