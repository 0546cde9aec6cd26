"""Requests that real clients sent, and what they accepted as an answer."""

import json

import pytest

import toolwire
from recordings import RECORDED, WIRES
from tables import every_case
from toolwire.testing import bytewise, differences
from toolwire.testing.pair_checks import request_pair
from toolwire.wire import get


@every_case("recorded", RECORDED, ids=repr)
def test_request_is_identical_after_decoding_and_encoding_on_its_wire(recorded):
    wire = get(recorded.wire)
    encoded = wire.encode_request(wire.decode_request(recorded.body))
    assert not differences(encoded.body, recorded.body)
    assert json.dumps(encoded.body, sort_keys=True) == json.dumps(recorded.body, sort_keys=True)
    assert not list(encoded.losses)


@every_case("recorded", RECORDED, ids=repr)
def test_translation_to_the_same_wire_returns_the_same_object(recorded):
    assert toolwire.translate(recorded.body, source=recorded.wire, target=recorded.wire).body is recorded.body
    data = json.dumps(recorded.body).encode()
    translation = toolwire.translate_stream(source=recorded.wire, target=recorded.wire)
    assert translation.feed(data) is data


@every_case("recorded", RECORDED, ids=repr)
def test_wire_is_detected(recorded):
    assert toolwire.detect(recorded.body) == toolwire.bridge.translation.detection.Detected(
        recorded.bare_wire, "request"
    )
    if recorded.stream:
        assert toolwire.detect(recorded.stream).wire == recorded.bare_wire
    else:
        assert toolwire.detect(recorded.answer["json"]).kind == "response"


@pytest.mark.one_in(7)
@every_case("target", WIRES)
@every_case("recorded", RECORDED, ids=repr)
def test_calls_stay_paired_with_their_results(recorded, target):
    request = get(recorded.wire).decode_request(recorded.body)
    translated = toolwire.translate(recorded.body, source=recorded.wire, target=target)
    arrived = get(target).decode_request(translated.body)
    assert pairs_in(arrived) == pairs_in(request)


def pairs_in(request):
    """(name, arguments, what came back) for each call, in order; by id where there are ids, else by order."""
    calls = [p for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolCall)]
    results = [p for m in request.messages for p in m.parts if isinstance(p, toolwire.ToolResult)]
    assert len(calls) == len(results)
    by_id = {result.call_id: result for result in results if result.call_id}
    paired = []
    for number, call in enumerate(calls):
        result = by_id.get(call.id, results[number])
        words = result.text.removeprefix("[tool error] ")
        paired.append((call.name.replace("__", "_").split("_")[0], call.arguments, words))
    return paired


@pytest.mark.one_in(5)
@every_case("target", WIRES)
@every_case("recorded", RECORDED, ids=repr)
def test_every_dropped_field_is_reported_as_a_loss(recorded, target):
    """A field of the client's request that the target has no word for is named, with a pointer that finds it."""
    if target == recorded.bare_wire:
        return
    translated = toolwire.translate(recorded.body, source=recorded.wire, target=target)
    for loss in translated.losses:
        toolwire.ir.pointer.resolve(recorded.body, loss.path)
        assert loss.detail
    request_pair(get(recorded.wire), recorded.body, get(target))
    for field in ("context_management", "client_metadata", "include"):
        if recorded.body.get(field):
            assert f"/{field}" in [loss.path for loss in translated.losses]
    if (
        target != "anthropic@2023-06-01"
        and target == "anthropic"
        and "temperature" in recorded.body.get("generationConfig", {})
    ):
        assert "/generationConfig/temperature" in [loss.path for loss in translated.losses]


@pytest.mark.one_in(5)
@every_case("target", WIRES)
@every_case("recorded", RECORDED, ids=repr)
def test_accepted_answer_survives_the_round_trip_over_any_wire(recorded, target):
    """The recorded answer goes to another wire and back, with the client's own request: it sees the same calls."""
    codec = get(recorded.wire)
    if recorded.stream:
        decoder = codec.stream_decoder()
        response = toolwire.fold(
            [event for piece in bytewise(recorded.stream) for event in decoder.feed(piece)] + decoder.close()
        )
    else:
        response = codec.decode_response(recorded.answer["json"])
    if target == recorded.bare_wire:
        return
    upstream = get(target).encode_response(response).body
    back = toolwire.translate(
        upstream, source=target, target=recorded.wire, kind="response", request=recorded.body
    ).body
    seen = codec.decode_response(back)
    assert [(c.name, c.arguments) for c in seen.calls] == [(c.name, c.arguments) for c in response.calls]
    assert seen.text == response.text
    assert seen.stop.reason == response.stop.reason
