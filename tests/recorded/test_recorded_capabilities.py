"""The capability rows change nothing that a provider accepted from one of its own models."""

from collections import Counter

import pytest
from msgspec.structs import replace
from recorded_traffic import require_recordings, wire_exchanges

from toolwire import prepare
from toolwire.wire import explain_capabilities, get
from toolwire.wire.models.capabilities import UNKNOWN_MODEL

# The recordings are older than version 2026-10-21 of Anthropic's API, which has no sampling parameters.
VERSIONS = {"anthropic": "anthropic@2023-06-01"}
REQUESTS = [one for one in wire_exchanges() if one.accepted]


def read(exchange):
    """The codec, and the request with its model, which some paths name."""
    wire = get(VERSIONS.get(exchange.wire, exchange.wire))
    request = wire.decode_request(exchange.request)
    return wire, request if request.model else replace(request, model=exchange.model_in_path or "")


def shown(losses):
    return Counter((loss.path, loss.concept, loss.action, loss.detail) for loss in losses)


@pytest.mark.finding("G8")
@pytest.mark.parametrize("wire_name", ["anthropic", "gemini", "openai_chat", "openai_responses"])
def test_rows_change_nothing_that_a_provider_accepted(wire_name):
    require_recordings()
    known = 0
    for exchange in REQUESTS:
        if exchange.wire != wire_name:
            continue
        wire, request = read(exchange)
        match = explain_capabilities(wire, request.model, wire.version, vendor=exchange.provider)
        known += bool(match.rows)
        fitted = prepare(request, wire, capabilities=match.capabilities)
        without_rows = prepare(request, wire, capabilities=UNKNOWN_MODEL)
        assert not shown(fitted.losses) - shown(without_rows.losses), exchange
        changed = [
            field
            for field in ("choice", "params", "reasoning")
            if getattr(fitted.request, field) != getattr(without_rows.request, field)
        ]
        assert not changed, exchange
    assert known > 50


@pytest.mark.finding("G1")
def test_system_messages_that_a_provider_accepted_keep_their_position():
    require_recordings()
    found = Counter()
    for exchange in REQUESTS:
        roles = [message.get("role") for message in exchange.request.get("messages", ())]
        if exchange.wire != "anthropic" or "system" not in roles:
            continue
        wire, request = read(exchange)
        body = wire.encode_request(prepare(request, wire).request).body
        # adjacent user messages are merged
        merged = [role for index, role in enumerate(roles) if index == 0 or role != roles[index - 1]]
        assert [message["role"] for message in body["messages"]] == merged, exchange
        found[request.model] += 1
    assert found.keys() >= {"claude-opus-4-8", "claude-fable-5"}
