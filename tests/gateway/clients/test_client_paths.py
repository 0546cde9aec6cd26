"""Paths of clients for clouds and other gateways, compressed bodies, and pages of other origins."""

import gzip
import json

import anthropic
import brotli
import openai
import pytest
from google import genai
from google.oauth2.credentials import Credentials

from gateway_client import send
from hostile import TEXT_ANSWER, body_of, gateway_to, path_of, run
from relay_upstream import document, relaying
from toolwire.gateway.keys import hash_key
from toolwire.gateway.request.routes import match_route, resolve_client_path
from toolwire.ir.text import to_bytes

KEY = "sk-client"
KEYS = {"keys": {"client": {"hash": hash_key(KEY)}}}
BEARER = {"authorization": f"Bearer {KEY}"}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("path", "action", "wire", "model"),
    [
        ("/openai/deployments/gpt/chat/completions", "generate", "openai_chat", "gpt"),
        ("/openai/v1/chat/completions", "generate", "openai_chat", ""),
        ("/openai/v1/responses", "generate", "openai_responses", ""),
        ("/openai/responses", "generate", "openai_responses", ""),
        ("/v1beta/openai/chat/completions", "generate", "openai_chat", ""),
        ("/anthropic/v1/messages", "generate", "anthropic", ""),
        ("/anthropic/v1/messages/count_tokens", "count", "anthropic", ""),
        ("/gemini/v1beta/models/g:streamGenerateContent", "generate", "gemini", ""),
        ("/v1/projects/p/locations/l/publishers/google/models/g:generateContent", "generate", "gemini", ""),
        ("/v1beta1/projects/p/locations/l/publishers/google/models/g:countTokens", "count", "gemini", ""),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/c:rawPredict", "generate", "anthropic", "c"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict", "count", "anthropic", ""),
        ("//v1//chat/completions/", "generate", "openai_chat", ""),
        ("/v1/messages/", "generate", "anthropic", ""),
    ],
)
def test_path_of_a_client(path, action, wire, model):
    route = match_route("POST", path, {})
    assert (route.action, route.ingress.wire, route.path_model) == (action, wire, model)


@pytest.mark.parametrize(
    "path", ["/openai", "/openai/", "/anthropic", "/openai/deployments/x", "/gemini/metricsx", "/x/"]
)
def test_other_paths_stay_unknown(path):
    assert match_route("POST", path, {}) is None


def test_prefix_is_removed_once():
    assert resolve_client_path("/anthropic/anthropic/v1/messages").path == "/anthropic/v1/messages"
    assert match_route("POST", "/anthropic/anthropic/v1/messages", {}) is None


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
@run
async def test_azure_client(wire):
    models = {"models": {"deployed": {"upstream": wire, "model": "m"}}}
    async with gateway_to(TEXT_ANSWER, TEXT_ANSWER, document={**KEYS, **models}) as (gateway, upstream):
        async with openai.AsyncAzureOpenAI(
            azure_endpoint=gateway.url, api_key=KEY, api_version="2024-10-21", max_retries=0
        ) as client:
            answer = await client.chat.completions.create(model="deployed", messages=CHAT["messages"])
            assert answer.choices[0].message.content == "It will rain in Paris."
        status, _, data = await send(
            "POST", f"{gateway.url}/openai/deployments/deployed/chat/completions", to_bytes(CHAT), {"api-key": KEY}
        )
        assert (status, json.loads(data)["object"]) == (200, "chat.completion")
        assert [json.loads(request.body)["model"] for request in upstream.requests] == ["m", "m"]
        assert gateway.turns[0].model == "deployed"


@run
async def test_azure_client_of_relayed_endpoints():
    models = {"models": {"deployed": {"upstream": "openai_chat", "model": "m"}}}
    answer = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"}
    async with relaying(lambda _: document(answer), more={**KEYS, **models}) as (gateway, upstream):
        async with openai.AsyncAzureOpenAI(
            azure_endpoint=gateway.url, api_key=KEY, api_version="2024-10-21", max_retries=0
        ) as client:
            made = await client.embeddings.create(model="deployed", input="a", encoding_format="float")
        assert made.data[0].embedding == [0.5]
        assert upstream.requests[0].document["model"] == "m"
        assert "api-version" not in upstream.requests[0].query


@pytest.mark.parametrize("wire", ["anthropic", "openai_chat"])
@run
async def test_anthropic_client_of_vertex(wire):
    models = {"models": {"claude": {"upstream": wire, "model": "m"}}}
    async with gateway_to(TEXT_ANSWER, TEXT_ANSWER, document={**KEYS, **models}) as (gateway, upstream):
        async with anthropic.AsyncAnthropicVertex(
            base_url=f"{gateway.url}/v1", access_token=KEY, project_id="p", region="r", max_retries=0
        ) as client:
            answer = await client.messages.create(model="claude", max_tokens=9, messages=CHAT["messages"])
            assert answer.content[0].text == "It will rain in Paris."
            async with client.messages.stream(model="claude", max_tokens=9, messages=CHAT["messages"]) as stream:
                assert (await stream.get_final_message()).content[0].text == "It will rain in Paris."
        assert all(b"vertex-2023" not in request.body for request in upstream.requests)


@run
async def test_google_client_of_vertex():
    models = {"models": {"deployed": {"upstream": "openai_chat", "model": "m"}}}
    async with gateway_to(TEXT_ANSWER, document={**KEYS, **models}) as (gateway, _):
        client = genai.Client(
            vertexai=True,
            project="p",
            location="l",
            credentials=Credentials(token=KEY),
            http_options=genai.types.HttpOptions(base_url=gateway.url),
        )
        async with client.aio as asynchronous:
            answer = await asynchronous.models.generate_content(model="deployed", contents="hi")
        assert answer.text == "It will rain in Paris."
        assert gateway.turns[0].caller == "client"


@pytest.mark.parametrize("front", ["openai_chat", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize("encoding", ["gzip", "br"])
@run
async def test_compressed_request(front, encoding):
    compress = gzip.compress if encoding == "gzip" else brotli.compress
    async with gateway_to(TEXT_ANSWER) as (gateway, upstream):
        headers = {"content-encoding": encoding}
        status, _, _ = await send("POST", gateway.url + path_of(front), compress(body_of(front)), headers)
        assert status == 200
        assert json.loads(upstream.requests[0].body)["model"] == "m"


@run
async def test_bomb_and_unknown_encoding_are_refused():
    async with gateway_to() as (gateway, upstream):
        for encoding, body, status in (
            ("gzip", gzip.compress(b" " * 100_000_000), 413),
            ("gzip", b"not gzip", 400),
            ("compress", b"x", 415),
        ):
            given, _, data = await send(
                "POST", gateway.url + path_of("openai_chat"), body, {"content-encoding": encoding}
            )
            assert (given, "error" in json.loads(data)) == (status, True)
        assert upstream.requests == []


@run
async def test_key_is_checked_before_a_body_is_decompressed():
    async with gateway_to(document=KEYS) as (gateway, _):
        status, _, _ = await send("POST", gateway.url + path_of("anthropic"), b"not gzip", {"content-encoding": "gzip"})
        assert status == 401


@run
async def test_pages_of_the_settings_may_read_answers():
    page = "https://app.example"
    document = {"server": {"origins": [page], "cors": True}, **KEYS}
    async with gateway_to(TEXT_ANSWER, document=document) as (gateway, _):
        url = gateway.url + path_of("openai_chat")
        preflight = {
            "origin": page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,x-stainless-os",
        }
        status, headers, _ = await send("OPTIONS", url, headers=preflight)
        assert status == 200
        assert headers["access-control-allow-origin"] == page
        assert headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        assert "POST" in headers["access-control-allow-methods"]
        status, headers, _ = await send("POST", url, body_of("openai_chat"), {"origin": page, **BEARER})
        assert (status, headers["access-control-allow-origin"]) == (200, page)
        status, headers, _ = await send("POST", url, body_of("openai_chat"), {"origin": page})
        assert (status, headers["access-control-allow-origin"]) == (401, page)
        for other in ("https://evil.example", "null"):
            status, headers, _ = await send("OPTIONS", url, headers={**preflight, "origin": other})
            assert status in (403, 405)
            assert "access-control-allow-origin" not in headers


@run
async def test_pages_get_no_headers_by_default():
    page = "https://app.example"
    async with gateway_to(TEXT_ANSWER, document={"server": {"origins": [page]}}) as (gateway, _):
        url = gateway.url + path_of("openai_chat")
        status, headers, _ = await send("POST", url, body_of("openai_chat"), {"origin": page})
        assert (status, "access-control-allow-origin" in headers) == (200, False)
        status, _, _ = await send("OPTIONS", url, headers={"origin": page, "access-control-request-method": "POST"})
        assert status == 405
