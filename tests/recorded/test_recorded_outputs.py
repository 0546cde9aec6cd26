"""Recorded requests with structured outputs: identical on their wire, legal on every other, and their answers too."""

from __future__ import annotations

import json
from functools import cache

import jsonschema_rs
import pytest
from recorded_traffic import require_recordings, wire_exchanges

from toolwire import translate
from toolwire.ir.pointer import resolve
from toolwire.schema.dialects import output_dialect
from toolwire.schema.lowering.conformance import violations
from toolwire.schema.validation.validator import Validator
from toolwire.wire import get

WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")


@cache
def recorded_outputs():
    """(exchange, request) of each accepted request that requires JSON."""
    require_recordings()
    found = [(one, get(one.wire).decode_request(one.request)) for one in wire_exchanges() if one.accepted]
    return [pair for pair in found if pair[1].output is not None and pair[1].output.kind != "text"]


def with_schema():
    return [pair for pair in recorded_outputs() if pair[1].output.kind == "json_schema"]


def test_recorded_schemas_are_json_schema_and_identical_on_their_wire():
    assert len(with_schema()) >= 20
    for exchange, request in with_schema():
        jsonschema_rs.meta.validate(request.output.schema)
        assert get(exchange.wire).encode_request(request).body == exchange.request


def is_stated(request, wire):
    """Return whether the form of the answer is only in the instructions, because the wire has none beside tools."""
    return bool(request.tools) and not get(wire).capabilities.output_with_tools


def test_recorded_declarations_are_json_schema():
    require_recordings()
    found = [
        get(one.wire).decode_request(one.request) for one in wire_exchanges() if one.accepted and one.wire == "gemini"
    ]
    schemas = [tool.input_schema for request in found for tool in request.tools if tool.input_schema is not None]
    assert len(schemas) >= 50
    for schema in schemas:
        jsonschema_rs.meta.validate(schema)


@pytest.mark.parametrize("target", WIRES)
def test_recorded_schemas_fit_every_target(target):
    for exchange, request in with_schema():
        if exchange.wire == target or is_stated(request, target):
            continue
        translation = translate(exchange.request, source=exchange.wire, target=target, model=request.model or "m")
        output = get(target).decode_request(translation.body).output
        assert output.kind == "json_schema", exchange
        assert violations(output.schema, output_dialect(get(target).dialect, strict=output.strict)) == []
        for loss in translation.losses:
            resolve(exchange.request, loss.path)


@pytest.mark.parametrize("client", WIRES)
def test_recorded_answers_fit_the_schema_of_the_client(client):
    """The client sends the recorded request on its own wire, and gets the recorded answer."""
    checked = 0
    for exchange, request in with_schema():
        if exchange.wire == client or is_stated(request, client) or not isinstance(exchange.response, dict):
            continue
        answer = get(exchange.wire).decode_response(exchange.response)
        if not answer.text.strip():
            continue
        body = translate(exchange.request, source=exchange.wire, target=client, model=request.model or "m").body
        asked = get(client).decode_request(body).output
        # the answer that the provider would give to the client's request, whose schema may have another shape
        restored = translate(exchange.response, source=exchange.wire, target=client, kind="response", request=body)
        value = json.loads(get(client).decode_response(restored.body).text)
        if asked.schema == request.output.schema:
            assert Validator(asked.schema).accepts(value)
            assert value == json.loads(answer.text)
            checked += 1
    assert checked


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_recorded_json_mode_mentions_json(target):
    for exchange, request in recorded_outputs():
        if request.output.kind == "json" and exchange.wire != target:
            body = translate(exchange.request, source=exchange.wire, target=target, model=request.model or "m").body
            field = "messages" if target == "openai_chat" else "input"
            assert "json" in json.dumps(body[field]).lower()
