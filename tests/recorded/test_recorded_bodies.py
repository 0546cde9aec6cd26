"""Recorded requests as the judge of `check_body`: accepted ones have no violation, rejected ones have the provider's own."""

import base64
import json
import re

import pytest
import recorded_traffic
from recorded_traffic import exchanges, refusals, wire_exchanges

import accepted_bodies
import sdk_shapes
from recordings import RECORDED
from tables import every_case
from toolwire.audit import check_body
from toolwire.audit.provider_rules.providers import PROVIDERS

COMPLETE = len(exchanges()) >= recorded_traffic.PUBLISHED
BEDROCK_PATHS = re.compile(r"/(?:chat/completions|responses|model/[^/]+/invoke)\Z")

NOT_ABOUT_THE_BODY = {
    r"test_model_name_suggestion\[(?:google|groq)\]": "the model does not exist",
    r"test_inferred_model_name_suggestion": "the model does not exist",
    r"TestCohere.test_embed_error": "the model does not exist",
    r"TestGoogle.test_count_tokens_error": "the model does not exist",
    r"test_tool_regular_error": "the model does not exist",
    r"test_tool_use_failed_error": "the model's own call did not match its tools, or was missing",
    r"test_openrouter_errors_raised": "rate limit",
    r"test_anthropic_bedrock_count_tokens": "the body is inside of a request to count its tokens",
    r"test_multimodal_tool_return_matrix\[(?:direct|tool_return_content)-url-image-google_vertex\]": (
        "the address of the image may not be fetched (robots.txt)"
    ),
}
"""Source of a rejected exchange: the reason why no check of its body can explain it."""

EXPLANATIONS = {
    "TW061": r"No tool output found for tool call",
    "TW105": r"decimal below minimum value",
    "TW114": r"does not support effort level",
    "TW117": r"Web search options not supported with this model",
    "TW118": r"'messages\[0\]\.role' does not support",
    "TW126": r"Content blocks are expected to be|file type you uploaded is not supported|unsupported MIME type",
    "TW129": r"was provided without its required following item",
    "TW133": r"Input tag 'web_search_20250305' found using 'type' does not match",
}
"""Rule: the part of the provider's message that it explains."""


def test_recordings_are_present():
    recorded_traffic.require_recordings()


def violations(exchange):
    model = exchange.request.get("model") or exchange.model_in_path
    return check_body(exchange.request, exchange.provider, model)


def test_every_accepted_request_is_accepted():
    accepted = [one for one in wire_exchanges() if one.accepted]
    found = {repr(one): violations(one) for one in accepted}
    assert {source: violated for source, violated in found.items() if violated} == {}
    if COMPLETE:
        assert len(accepted) > 1000


def test_accepted_requests_of_bedrock_are_accepted():
    """The wires of the other providers, at Bedrock's addresses."""
    sent = [one for one in exchanges() if one.provider == "bedrock" and one.accepted and BEDROCK_PATHS.search(one.path)]
    assert {repr(one): violated for one in sent if (violated := violations(one))} == {}
    if COMPLETE:
        assert len(sent) > 10


@every_case("recorded", RECORDED, ids=repr)
def test_every_request_of_a_real_client_is_accepted(recorded):
    provider, _, version = recorded.wire.partition("@")
    assert check_body(recorded.body, provider, version=version or None) == []


def rejected():
    """Rejected exchanges whose reason is in the body."""
    return [one for one in refusals() if not any(re.search(pattern, one.source) for pattern in NOT_ABOUT_THE_BODY)]


@every_case("exchange", rejected(), ids=repr)
def test_every_rejected_body_is_explained(exchange):
    error = exchange.error_body["error"]
    explained(violations(exchange), error["message"], error.get("param"))


def explained(violated, message, param=None):
    """Assert that a violation has the rule of the message, at the parameter that the provider names."""
    at = "" if param in (None, "input") else "/" + re.sub(r"\[(\d+)\]", r"/\1", param).replace(".", "/")
    matching = [one for one in violated if re.search(EXPLANATIONS.get(one.rule, r"\A(?!)"), message)]
    assert any(one.path.startswith(at) for one in matching), (message, violated)
    assert len(matching) == len(violated)


def test_rejected_tool_of_bedrock_is_explained():
    """The body of an invocation, inside of a request to count its tokens."""
    found = [one for one in exchanges() if "count_tokens_rejects_server_tools" in one.source]
    for one in found:
        body = json.loads(base64.b64decode(one.request["input"]["invokeModel"]["body"]))
        explained(check_body(body, "bedrock"), one.response["message"])
    assert found or not COMPLETE


def test_every_listed_reason_occurs():
    if COMPLETE:
        sources = [one.source for one in refusals()]
        assert all(any(re.search(pattern, source) for source in sources) for pattern in NOT_ABOUT_THE_BODY)
        assert len(rejected()) >= 16


def test_every_recorded_provider_is_known():
    assert {one.provider for one in wire_exchanges()} <= PROVIDERS.keys()


@pytest.mark.parametrize("wire", sdk_shapes.SOURCES)
def test_shapes_are_those_of_the_sdk_that_their_file_names(wire):
    source, written = (sdk_shapes.SHAPES / f"{wire}.toml").read_text(encoding="utf-8").split("\n", 1)
    installed, rendered = sdk_shapes.render(wire).split("\n", 1)
    if installed != source and rendered != written:
        pytest.skip(f"{installed.rpartition('from ')[2]} is newer: run python tests/support/sdk_shapes.py")
    # `typing` caches equal types, so the order of a union's members depends on what the process has imported before
    words = [[sorted(re.findall(r"[^\s|\[\]\"]+", line)) for line in text.splitlines()] for text in (written, rendered)]
    assert words[0] == words[1], "run: python tests/support/sdk_shapes.py"


@pytest.mark.one_in(7)
@every_case("exchange", [one for one in wire_exchanges() if one.accepted], ids=repr)
def test_translation_of_an_accepted_request_is_accepted(exchange):
    """On every other wire, for a model of each family."""
    for target, models in accepted_bodies.MODELS.items():
        for model in models if target != exchange.wire else ():
            body = accepted_bodies.translated((exchange.wire, exchange.request), target, model)
            assert body is None or accepted_bodies.violations(body, target, model) == []


@pytest.mark.one_in(5)
def test_translation_of_a_real_client_is_accepted(recorded):
    for target, models in accepted_bodies.MODELS.items():
        for model in models if target != recorded.bare_wire else ():
            body = accepted_bodies.translated((recorded.wire, recorded.body), target, model)
            assert body is None or accepted_bodies.violations(body, target, model) == []
