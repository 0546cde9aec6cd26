"""The newest official SDKs judge what we send, over a loopback server where they insist on one."""

import pytest
from botocore.exceptions import ClientError

import toolwire
from loopback import loopback
from places import TESTS
from recordings import RECORDED, WIRES
from sdk_validation import calls_by_sdk, validate_chunks, validate_request, validate_response
from tables import every_case
from toolwire.bridge.translation.exchange import Exchange
from toolwire.testing import load_vectors
from toolwire.wire import get

VECTORS = TESTS / "vectors" / "wire"
MODEL = dict.fromkeys(WIRES) | {"gemini": "gemini-3-pro"}  # there it is in the URL
PAIRS = [(source, target) for source in WIRES for target in WIRES if source != target]


@pytest.fixture(scope="module")
def server():
    with loopback() as running:
        yield running


def vectors(kind):
    return [
        pytest.param(source, target, vector, id=f"{source} to {target}: {vector.name}")
        for source, target in PAIRS
        for vector in load_vectors(VECTORS / f"{source}.json")
        if vector.kind == kind
    ]


@pytest.mark.one_in(7)
@every_case(("source", "target", "vector"), vectors("request"))
def test_requests_match_the_provider_types(source, target, vector):
    try:
        # on Gemini and on Vertex AI the model is in the path
        model = MODEL[source] or (None if "model" in vector.body else "gpt-5.1")
        body = toolwire.translate(vector.body, source=source, target=target, model=model).body
    except toolwire.EncodeError:
        return
    validate_request(target, body)


@pytest.mark.one_in(7)
@every_case("target", WIRES)
@every_case("recorded", RECORDED, ids=repr)
def test_requests_of_real_clients_match_the_provider_types(recorded, target):
    if target == recorded.bare_wire:
        return
    model = MODEL[recorded.bare_wire]
    validate_request(target, toolwire.translate(recorded.body, source=recorded.wire, target=target, model=model).body)


@pytest.mark.one_in(7)
@every_case(("source", "target", "vector"), vectors("response"))
def test_responses_match_the_provider_types(source, target, vector):
    translated = toolwire.translate(vector.body, source=source, target=target, kind="response")
    if translated.status == 200:
        validate_response(target, translated.body)


@pytest.mark.one_in(5)
@every_case(("source", "target", "vector"), vectors("stream"))
def test_streams_match_the_provider_types(source, target, vector):
    translation = toolwire.translate_stream(source=source, target=target)
    validate_chunks(target, translation.feed(vector.data) + translation.close())


def runnable_calls(response):
    """What a client can see: complete function calls of the first choice."""
    made = Exchange().restore(response).calls
    return [(call.name, call.arguments) for call in made if call.kind == "function" and call.state == "complete"]


def decoded(source, vector):
    if vector.kind == "response":
        return get(source).decode_response(vector.body)
    decoder = get(source).stream_decoder()
    return toolwire.fold([*decoder.feed(vector.data), *decoder.close()])


def with_calls(kind):
    """The vectors in which every call is one that a client can run."""
    return [
        case
        for case in vectors(kind)
        if 0
        < len(runnable_calls(decoded(case.values[0], case.values[2])))
        == len(decoded(case.values[0], case.values[2]).calls)
    ]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("source", "target", "vector"), with_calls("stream"))
def test_the_official_client_reads_our_streams(source, target, vector, server):
    translation = toolwire.translate_stream(source=source, target=target)
    server.will_stream(translation.feed(vector.data) + translation.close())
    assert calls_by_sdk(target, server.url, stream=True) == runnable_calls(decoded(source, vector))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("source", "target", "vector"), with_calls("response"))
def test_the_official_client_reads_our_responses(source, target, vector, server):
    server.will_answer(toolwire.translate(vector.body, source=source, target=target, kind="response").body)
    assert calls_by_sdk(target, server.url, stream=False) == runnable_calls(decoded(source, vector))


@pytest.mark.parametrize("target", WIRES)
def test_official_client_raises_on_a_truncated_stream(target, server):
    source = "anthropic" if target != "anthropic" else "openai_chat"
    vector = next(v for v in load_vectors(VECTORS / f"{source}.json") if v.kind == "stream" and "two calls" in v.name)
    translation = toolwire.translate_stream(source=source, target=target)
    server.will_stream(translation.feed(vector.data[: len(vector.data) // 2]) + translation.close())
    with pytest.raises(Exception) as caught:
        calls_by_sdk(target, server.url, stream=True)
    # the Responses client only misses the final response; the others see our words
    assert "the stream stopped" in str(caught.value) or "response.completed" in str(caught.value)


@pytest.mark.parametrize("target", WIRES)
def test_the_official_client_understands_our_errors(target, server):
    fault = toolwire.ir.Fault("rate_limit", "slow down", 429, retry_after=1.0)
    status, body, _ = get(target).encode_error(fault)
    server.will_answer(body, status)
    with pytest.raises(Exception, match="slow down") as caught:
        calls_by_sdk(target, server.url, stream=False)
    assert _status_of(caught.value) == 429


def _status_of(error):
    if isinstance(error, ClientError):
        return error.response["ResponseMetadata"]["HTTPStatusCode"]
    return getattr(error, "status_code", None) or getattr(error, "code", None)
