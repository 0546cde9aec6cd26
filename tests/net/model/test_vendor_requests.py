"""Requests to Azure OpenAI and Vertex AI, compared with those of the official SDKs, and key commands over real sockets."""

import asyncio
import json
import sys
from functools import wraps

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials

from toolwire import Message, Request, Response, Text, UpstreamError
from toolwire.ir.losses import Losses
from toolwire.ir.request import Params
from toolwire.ir.response import Fault, Stop
from toolwire.net.model.client import ModelClient
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.net.model.key_command import KeyCommand, KeyCommandError
from toolwire.testing import RawReply, Upstream

KEY = "secret-key-0123456789"
HELLO = Response(parts=(Text("Hello"),), stop=Stop("stop"))
REQUEST = Request(messages=(Message("user", (Text("hi"),)),), params=Params(max_tokens=99))
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 99}
AUTHENTICATION = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "anthropic-version")


def in_loop(test):
    @wraps(test)
    def run(*arguments, **keywords):
        return asyncio.run(test(*arguments, **keywords))

    return run


def captured(ask):
    """The request that an SDK sends: its URL, its authentication headers and its body."""
    requests = []

    def answer(request):
        requests.append(request)
        return httpx2.Response(400, json={"error": {"message": "captured", "code": 400, "status": "INVALID_ARGUMENT"}})

    with pytest.raises(Exception, match="captured"):
        ask(httpx2.Client(transport=httpx2.MockTransport(answer)))
    (request,) = requests
    headers = {name: value for name, value in request.headers.items() if name in AUTHENTICATION}
    return str(request.url), headers, json.loads(request.content)


def ours(model, *, stream=False, **options):
    """Return the URL, headers and body that toolwire's client sends."""
    endpoint = resolve(model, {}, **options)
    body = EndpointRequest(REQUEST, endpoint, stream=stream, text=None, losses=Losses()).body
    headers = {
        name: value for name, value in {**endpoint.headers, **endpoint.secrets}.items() if name in AUTHENTICATION
    }
    return endpoint.url(stream=stream), headers, json.loads(body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("theirs", "auth"), [({"api_key": KEY}, None), ({"azure_ad_token": KEY}, "bearer")])
@pytest.mark.parametrize("deployment", ["gpt-4o", "my dep/ä"])
def test_chat_request_equals_that_of_the_azure_sdk(deployment, theirs, auth, stream):
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}

    def ask(client):
        azure = openai.AzureOpenAI(
            azure_endpoint="https://r.openai.azure.com",
            api_version="2024-12-01-preview",
            http_client=client,
            max_retries=0,
            **theirs,
        )
        azure.chat.completions.create(model=deployment, **CHAT, **options)

    expected = captured(ask)
    settings = {"base_url": "https://r.openai.azure.com", "api_version": "2024-12-01-preview"}
    assert ours(f"azure/{deployment}", key=KEY, auth=auth, stream=stream, **settings) == expected


def test_responses_request_equals_that_of_the_azure_sdk():
    def ask(client):
        azure = openai.AzureOpenAI(
            azure_endpoint="https://r.openai.azure.com",
            api_version="2025-04-01-preview",
            api_key=KEY,
            http_client=client,
            max_retries=0,
        )
        items = [{"role": "user", "content": "hi"}]
        azure.responses.create(model="d", input=items, max_output_tokens=99, store=False)

    settings = {"base_url": "https://r.openai.azure.com", "api_version": "2025-04-01-preview"}
    assert ours("azure-responses/d", key=KEY, **settings) == captured(ask)


def test_v1_request_equals_that_of_the_openai_sdk():
    def ask(client):
        base_url = "https://r.openai.azure.com/openai/v1/"
        azure = openai.OpenAI(base_url=base_url, api_key=KEY, http_client=client, max_retries=0)
        azure.chat.completions.create(model="d", **CHAT)

    assert ours("azure/d", base_url="https://r.openai.azure.com", key=KEY, auth="bearer") == captured(ask)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("location", ["global", "us", "eu", "europe-west4"])
def test_gemini_request_equals_that_of_the_vertex_sdk(location, stream):
    def ask(client):
        options = types.HttpOptions(httpx_client=client)
        vertex = genai.Client(
            vertexai=True, project="p-1", location=location, credentials=Credentials(KEY), http_options=options
        )
        config = types.GenerateContentConfig(max_output_tokens=99)
        if stream:
            list(vertex.models.generate_content_stream(model="gemini-2.5-flash", contents="hi", config=config))
        else:
            vertex.models.generate_content(model="gemini-2.5-flash", contents="hi", config=config)

    theirs = captured(ask)
    assert ours("vertex/gemini-2.5-flash", project="p-1", location=location, key=KEY, stream=stream) == theirs


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("location", ["global", "us", "eu", "europe-west4"])
def test_claude_request_equals_that_of_the_vertex_sdk(location, stream):
    """The SDK's version of the wire is the newest one; Google documents `vertex-2023-10-16`, which is our default."""
    model = "claude-sonnet-4-5@20250929"

    def ask(client):
        vertex = anthropic.AnthropicVertex(
            region=location, project_id="p-1", access_token=KEY, http_client=client, max_retries=0
        )
        options = {"stream": True} if stream else {}
        vertex.messages.create(model=model, max_tokens=99, messages=[{"role": "user", "content": "hi"}], **options)

    url, headers, body = captured(ask)
    settings = {"project": "p-1", "location": location, "key": KEY, "stream": stream}
    assert ours(f"vertex-anthropic/{model}", wire="anthropic", **settings) == (url, headers, body)
    documented = {**body, "anthropic_version": "vertex-2023-10-16"}
    assert ours(f"vertex-anthropic/{model}", **settings) == (url, headers, documented)


@pytest.mark.parametrize(
    ("model", "options", "path"),
    [
        ("azure/d", {"api_version": "2024-10-21"}, "/openai/deployments/d/chat/completions?api-version=2024-10-21"),
        ("azure-responses/d", {}, "/openai/v1/responses"),
        (
            "vertex/gemini-3",
            {"project": "p"},
            "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-3:",
        ),
        ("vertex-anthropic/c", {"project": "p"}, "/v1/projects/p/locations/global/publishers/anthropic/models/c:"),
    ],
)
@in_loop
async def test_answers_arrive_whole_and_streamed(model, options, path):
    async with (
        Upstream(HELLO, HELLO) as upstream,
        ModelClient(model, base_url=upstream.url, key=KEY, **options) as client,
    ):
        assert [part.text for part in (await client.ask(REQUEST)).parts] == ["Hello"]
        texts = [event.text async for event in client.stream(REQUEST) if hasattr(event, "text")]
    assert "".join(texts) == "Hello"
    assert all(heard.path.startswith(path) for heard in upstream.requests)
    assert [heard.stream for heard in upstream.requests] == [False, True]


@in_loop
async def test_options_of_the_client_reach_the_request(monkeypatch):
    monkeypatch.setenv("TEAM_TOKEN", "team-secret-value")
    async with (
        Upstream(HELLO) as upstream,
        ModelClient(
            "groq/m",
            base_url=upstream.url,
            key=KEY,
            headers={"X-Team": "${TEAM_TOKEN}", "X-Title": "tests"},
            extra_body={"provider": {"sort": "price"}},
            defaults={"temperature": 0.25, "max_tokens": 1},
        ) as client,
    ):
        await client.ask(REQUEST)
    (heard,) = upstream.requests
    assert (heard.headers["x-team"], heard.headers["x-title"]) == ("team-secret-value", "tests")
    assert json.loads(heard.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 99,
        "temperature": 0.25,
        "provider": {"sort": "price"},
    }


def numbered_keys(path):
    """A command that prints `key-number-1-…`, then `key-number-2-…`, and so on."""
    code = (
        "import sys, pathlib\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "log.write_text((log.read_text() if log.exists() else '') + 'x')\n"
        "print(f'key-number-{len(log.read_text())}-0123456789')\n"
    )
    return [sys.executable, "-c", code, str(path)]


def keys_sent(upstream, header="authorization"):
    return [heard.headers[header].removeprefix("Bearer ").split("-0123")[0] for heard in upstream.requests]


@in_loop
async def test_key_command_runs_once_for_many_requests(tmp_path):
    async with (
        Upstream(*[HELLO] * 8) as upstream,
        ModelClient(
            "vertex/m", project="p", base_url=upstream.url, key_command=numbered_keys(tmp_path / "log")
        ) as client,
    ):
        await asyncio.gather(*(client.ask(REQUEST) for _ in range(8)))
    assert keys_sent(upstream) == ["key-number-1"] * 8


@in_loop
async def test_refused_key_is_replaced_once(tmp_path):
    refusal = Fault("authentication", "expired", 401)
    command = numbered_keys(tmp_path / "log")
    async with (
        Upstream(refusal, HELLO, HELLO, refusal, refusal) as upstream,
        ModelClient("azure/d", base_url=upstream.url, key_command=command) as client,
    ):
        assert (await client.ask(REQUEST)).parts == HELLO.parts
        assert (await client.ask(REQUEST)).parts == HELLO.parts
        with pytest.raises(UpstreamError) as caught:
            await client.ask(REQUEST)
    assert caught.value.fault.status == 401
    numbers = [1, 2, 2, 2, 3]
    assert keys_sent(upstream) == [f"key-number-{number}" for number in numbers]


@in_loop
async def test_key_of_a_command_is_not_in_errors_or_logs(tmp_path, caplog):
    caplog.set_level("DEBUG")
    key = "key-number-1-0123456789"
    echo = RawReply(json.dumps({"error": {"message": f"bad key {key}"}}).encode(), status=400)
    async with (
        Upstream(echo) as upstream,
        ModelClient("azure/d", base_url=upstream.url, key_command=numbered_keys(tmp_path / "log")) as client,
    ):
        with pytest.raises(UpstreamError) as caught:
            await client.ask(REQUEST)
    assert "bad key [key]" in str(caught.value)
    assert upstream.requests[0].headers["authorization"] == f"Bearer {key}"
    assert key not in caplog.text + repr(client) + repr(client.endpoint)


@in_loop
async def test_failed_key_command_sends_nothing():
    command = KeyCommand([sys.executable, "-c", "import sys; sys.exit('not logged in')"])
    async with (
        Upstream(HELLO) as upstream,
        ModelClient("azure/d", base_url=upstream.url, key_command=command) as client,
    ):
        with pytest.raises(KeyCommandError, match="failed with status 1: not logged in"):
            await client.ask(REQUEST)
    assert not upstream.requests


@in_loop
async def test_key_command_of_a_vendor_without_tokens_uses_its_key_header(tmp_path):
    command = numbered_keys(tmp_path / "log")
    async with (
        Upstream(HELLO, HELLO) as upstream,
        ModelClient("anthropic/m", base_url=upstream.url, key_command=command) as first,
        ModelClient("azure/m", base_url=upstream.url, key_command=command, auth="key") as second,
    ):
        await first.ask(REQUEST)
        await second.ask(REQUEST)
    assert upstream.requests[0].headers["x-api-key"].startswith("key-number-1")
    assert upstream.requests[1].headers["api-key"].startswith("key-number-2")
    assert not any("authorization" in heard.headers for heard in upstream.requests)
