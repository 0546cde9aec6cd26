"""Exchanges recorded with Azure OpenAI and Vertex AI.

For the same model and settings, the URL, the header of the key and the body are those of the recorded request, and the
recorded answers are decoded, whole and streamed.
"""

import json
import re

import pytest
from recorded_traffic import require_recordings, wire_exchanges

import toolwire
from tables import every_case
from toolwire.audit import check_body
from toolwire.ir.losses import Losses
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.wire import get

PROVIDERS = {"azure": "azure", "vertex": "vertex"}
EXCHANGES = [one for one in wire_exchanges() if one.provider in PROVIDERS]
ACCEPTED = [one for one in EXCHANGES if one.accepted]
AZURE = "https://r.openai.azure.com"


@pytest.fixture(autouse=True, scope="module")
def _recordings():
    require_recordings()


def settings_of(exchange):
    """The settings that a user would have written for this request."""
    path = exchange.path
    if exchange.provider == "azure":
        version = re.search(r"[?&]api-version=([^&]+)", path)
        return {"base_url": AZURE, "api_version": version and version[1], "wire": exchange.wire}
    project, location = re.search(r"/projects/([^/]+)/locations/([^/]+)/", path).groups()
    wire = None if exchange.wire == "gemini" else exchange.wire
    return {"project": project, "location": location, "wire": wire}


def model_of(exchange):
    deployment = re.search(r"/deployments/([^/]+)/", exchange.path)
    return exchange.model_in_path or (deployment[1] if deployment else exchange.request["model"])


def endpoint_of(exchange):
    return resolve(f"{exchange.provider}/{model_of(exchange)}", {}, key="a-secret-key", **settings_of(exchange))


def path_of(url):
    return re.sub(r"^https://[^/]+", "", url)


@every_case("exchange", EXCHANGES, ids=repr)
def test_url_and_key_header_are_those_of_the_recorded_request(exchange):
    endpoint = endpoint_of(exchange)
    stream = bool(exchange.request.get("stream")) or "stream" in exchange.path
    assert path_of(endpoint.url(stream=stream)) == exchange.path
    header = "api-key" if exchange.provider == "azure" else "authorization"
    assert set(endpoint.secrets) == {header}
    if exchange.provider == "vertex":
        location = settings_of(exchange)["location"]
        prefix = "" if location == "global" else f"{location}-"
        assert endpoint.origin == f"https://{prefix}aiplatform.googleapis.com"


@every_case("exchange", ACCEPTED, ids=repr)
def test_body_is_that_of_the_recorded_request(exchange):
    endpoint = endpoint_of(exchange)
    request = endpoint.wire.decode_request(exchange.request)
    body, losses = endpoint.wire.encode_request(request)
    assert not losses
    assert endpoint.finish_body(body) == exchange.request


@every_case("exchange", ACCEPTED, ids=repr)
def test_prepared_body_differs_only_where_a_loss_or_a_call_id_explains_it(exchange):
    """The whole path of a request: no field of the recorded body is missing or new without a reason."""
    endpoint, losses = endpoint_of(exchange), Losses()
    request = endpoint.wire.decode_request(exchange.request)
    stream = exchange.streamed
    sent = EndpointRequest(request, endpoint, stream=stream, text=None, losses=losses)
    body = json.loads(sent.body)
    assert not [loss for loss in losses if loss.action == "dropped" and loss.severity == "error"]
    recorded = {name for name in exchange.request if name not in ("stream", "n")}
    added = {"store"} if exchange.wire == "openai_responses" else set()
    assert recorded <= set(body) <= recorded | {"stream", "stream_options", "n"} | added
    assert not [
        finding for finding in check_body(body, exchange.provider, model_of(exchange)) if finding.severity == "error"
    ]


@every_case("exchange", ACCEPTED, ids=repr)
def test_recorded_answer_is_decoded(exchange):
    wire = endpoint_of(exchange).wire
    if exchange.streamed:
        decoder = wire.stream_decoder()
        events = [*decoder.feed(exchange.stream), *decoder.close()]
        response = toolwire.fold(events)
    else:
        response = wire.decode_response(exchange.response)
    unexpected_call = b"UNEXPECTED_TOOL_CALL" in (exchange.stream or json.dumps(exchange.response).encode())
    assert (None if response.fault is None else response.fault.kind) == ("malformed_call" if unexpected_call else None)
    assert response.stop is not None or unexpected_call
    assert response.usage is not None


@every_case("exchange", [one for one in EXCHANGES if not one.accepted], ids=repr)
def test_recorded_refusal_is_decoded(exchange):
    fault = endpoint_of(exchange).wire.decode_error(exchange.status, exchange.error_body, exchange.response_headers)
    error = exchange.error_body[0] if isinstance(exchange.error_body, list) else exchange.error_body
    assert (fault.status, fault.message) == (exchange.status, error["error"]["message"])


def test_every_recorded_vendor_is_present():
    assert {one.provider for one in EXCHANGES} == set(PROVIDERS)
    assert {one.wire for one in EXCHANGES} >= {"openai_chat", "openai_responses", "gemini"}
    assert len(EXCHANGES) >= 70


AZURE_STREAM = (
    b'data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,'
    b'"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}\n\n'
    b'data: {"choices":[{"content_filter_results":{},"delta":{"content":"","refusal":null,"role":"assistant"},'
    b'"finish_reason":null,"index":0,"logprobs":null}],"created":1,"id":"chatcmpl-1","model":"gpt-4o-2024-11-20",'
    b'"object":"chat.completion.chunk"}\n\n'
    b'data: {"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},'
    b'"delta":{"content":"Paris"},"finish_reason":null,"index":0}],"created":1,"id":"chatcmpl-1",'
    b'"model":"gpt-4o-2024-11-20","object":"chat.completion.chunk"}\n\n'
    # the asynchronous filter: offsets in a chunk without a delta
    b'data: {"choices":[{"content_filter_offsets":{"check_offset":5,"start_offset":0,"end_offset":5},'
    b'"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"finish_reason":null,"index":0}],'
    b'"created":0,"id":"","model":"","object":""}\n\n'
    b'data: {"choices":[{"content_filter_results":{},"delta":{},"finish_reason":"stop","index":0}],"created":1,'
    b'"id":"chatcmpl-1","model":"gpt-4o-2024-11-20","object":"chat.completion.chunk"}\n\n'
    b'data: {"choices":[],"created":1,"id":"chatcmpl-1","model":"gpt-4o-2024-11-20","object":"chat.completion.chunk",'
    b'"usage":{"completion_tokens":1,"prompt_tokens":9,"total_tokens":10}}\n\n'
    b"data: [DONE]\n\n"
)
"""A stream of Azure with the chunks of its content filter, as its documentation describes them."""


@every_case("size", [1, 7, 10_000])
def test_chunks_of_the_azure_content_filter_do_not_disturb_a_stream(size):
    decoder = get("openai_chat").stream_decoder()
    events = []
    for start in range(0, len(AZURE_STREAM), size):
        events += decoder.feed(AZURE_STREAM[start : start + size])
    response = toolwire.fold([*events, *decoder.close()])
    assert [part.text for part in response.parts] == ["Paris"]
    assert (response.stop.reason, response.usage.output) == ("stop", 1)
    assert response.id == "chatcmpl-1"
    assert response.model == "gpt-4o-2024-11-20"
