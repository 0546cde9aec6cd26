"""google-genai's client of the Interactions API before the gateway: continuation, stored interactions, errors.

The calls and results of this client before every upstream are in test_matrix.py.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from google import genai
from google.genai import types
from google.genai._gaos.lib import compat_errors

from hostile import CALL_ANSWER, SECRET, TEXT_ANSWER, decode_answer, exchange, gateway_to, post, request_bytes, run
from serving import WIRES
from toolwire import ModelClient, Response, Text
from toolwire.ir.response import Fault, Stop
from toolwire.testing import RawReply, Upstream

PATH = "/v1beta/interactions"
OTHERS = [wire for wire in WIRES if wire != "gemini_interactions"]


@asynccontextmanager
async def client_of(url):
    options = types.HttpOptions(base_url=url, retry_options=types.HttpRetryOptions(attempts=1))
    async with genai.Client(api_key=SECRET, http_options=options).aio as client:
        yield client.interactions


@pytest.mark.parametrize("version", ["v1", "v1beta", "v1alpha"])
@run
async def test_every_version_of_the_path_is_served(version):
    async with gateway_to(TEXT_ANSWER) as (gateway, _):
        body = json.dumps({"model": "openai_chat/m", "input": "hi"}).encode()
        answer = await post(gateway, f"/{version}/interactions", body)
    assert answer.document["object"] == "interaction"
    assert decode_answer(answer, "gemini_interactions").text == TEXT_ANSWER.text


@run
async def test_input_as_text_and_output_text_of_the_sdk():
    async with gateway_to(TEXT_ANSWER) as (gateway, _), client_of(gateway.url) as interactions:
        answer = await interactions.create(model="openai_chat/m", input="Weather in Paris?", store=False)
    assert answer.output_text == TEXT_ANSWER.text
    assert (answer.status, answer.id[:3]) == ("completed", "v1_")
    assert (answer.usage.total_input_tokens, answer.usage.total_output_tokens) == (12, 5)


@pytest.mark.parametrize("upstream", OTHERS)
@run
async def test_stored_interaction_is_refused_on_another_wire(upstream):
    """Another provider cannot read it, and would answer without the conversation."""
    async with gateway_to(TEXT_ANSWER) as (gateway, provider), client_of(gateway.url) as interactions:
        with pytest.raises(compat_errors.BadRequestError, match="refers to an earlier interaction"):
            await interactions.create(model=f"{upstream}/m", input="And now?", previous_interaction_id="v1_a")
        assert not provider.requests


@run
async def test_stored_interaction_is_continued_by_an_upstream_of_the_same_wire():
    async with gateway_to(TEXT_ANSWER) as (gateway, provider), client_of(gateway.url) as interactions:
        await interactions.create(model="gemini_interactions/m", input="And now?", previous_interaction_id="v1_a")
    sent = json.loads(provider.requests[0].body)
    assert sent == {"model": "m", "input": "And now?", "previous_interaction_id": "v1_a"}


@run
async def test_long_decode_is_continued_by_the_sdk():
    """The SDK sends the token of an answer that requires continuation, and joins the texts."""
    first = {"id": "v1_a", "status": "requires_continuation", "continuation_token": "tok_1", "model": "m"}
    first["steps"] = [{"type": "model_output", "content": [{"type": "text", "text": "Once upon"}]}]
    last = Response("v1_b", "m", (Text(" a time."),), Stop("stop"))
    async with (
        gateway_to(RawReply(json.dumps(first).encode()), last) as (gateway, provider),
        client_of(gateway.url) as interactions,
    ):
        answer = await interactions.create(model="gemini_interactions/m", input="A story")
    assert "Once upon" in str(answer.steps) and " a time." in str(answer.steps)
    assert answer.continuation_ids == ["v1_a", "v1_b"]
    second = json.loads(provider.requests[1].body)
    assert (second["continuation_token"], second["previous_interaction_id"]) == ("tok_1", "v1_a")


@pytest.mark.parametrize("action", ["get", "delete", "cancel"])
@run
async def test_stored_interactions_are_not_found(action):
    async with gateway_to() as (gateway, _), client_of(gateway.url) as interactions:
        with pytest.raises(compat_errors.NotFoundError, match="the gateway stores no interactions"):
            await getattr(interactions, action)(id="v1_a")


@run
async def test_other_method_of_the_path_is_refused_in_the_form_of_the_protocol():
    async with gateway_to() as (gateway, _):
        answer = await exchange(gateway, request_bytes(PATH, b"", method="GET"))
    assert answer.status == 405
    assert answer.document["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("upstream", WIRES)
@run
async def test_error_of_an_upstream_is_an_error_of_the_sdk(upstream, stream):
    async with (
        gateway_to(Fault("rate_limit", "slow down", 429)) as (gateway, _),
        client_of(gateway.url) as interactions,
    ):
        with pytest.raises(compat_errors.RateLimitError, match="rate_limit_exceeded"):
            await interactions.create(model=f"{upstream}/m", input="hi", stream=stream)


@pytest.mark.parametrize("stream", [False, True])
@run
async def test_model_client_calls_the_api(stream):
    """The vendor's base URL, the key's header and the revision are those of the API."""
    async with Upstream(CALL_ANSWER) as provider:
        options = {"wire": "gemini_interactions", "base_url": provider.url, "key": SECRET}
        async with ModelClient("gemini/gemini-3.8-flash", **options) as client:
            if stream:
                events = [event async for event in client.stream("Weather in Paris?")]
                assert events
            else:
                answer = await client.ask("Weather in Paris?")
                assert [call.arguments for call in answer.calls] == [{"city": "Paris"}]
    (request,) = provider.requests
    assert request.path == PATH and request.wire == "gemini_interactions"
    assert (request.headers["x-goog-api-key"], request.headers["api-revision"]) == (SECRET, "2026-05-20")
    assert json.loads(request.body)["store"] is False
