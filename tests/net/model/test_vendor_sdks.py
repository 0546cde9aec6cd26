"""Rows of vendors against the newest SDKs: from the same environment, both send to one URL with one authentication."""

import os
from importlib import import_module

import anthropic
import cohere
import httpx
import httpx2
import openai
import pytest
from anthropic.lib.google_cloud._client import AnthropicGoogleCloud
from google import genai
from google.oauth2.credentials import Credentials
from openai.providers.bedrock import _runtime_dns_suffixes, bedrock

from toolwire.net.model.aws.credentials import AwsSigning
from toolwire.net.model.endpoint import resolve
from toolwire.wire.models.vendors import find, names

KEY = "secret-key-0123456789"
HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "anthropic-version", "anthropic-workspace-id")
REGION = {"AWS_REGION": "us-east-1"}
BEARER = {**REGION, "AWS_BEARER_TOKEN_BEDROCK": KEY}
ACCESS_KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret-0123456789"}
WORKSPACE = {**REGION, "ANTHROPIC_AWS_WORKSPACE_ID": "wrkspc_1"}
GOOGLE = {"ANTHROPIC_GOOGLE_CLOUD_PROJECT": "p-1", "ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID": "wrkspc_1"}
FOUNDRY = {"ANTHROPIC_FOUNDRY_API_KEY": KEY}
VERTEX = {"ANTHROPIC_VERTEX_PROJECT_ID": "p-1", "CLOUDSDK_AUTH_ACCESS_TOKEN": KEY}


def messages(make, **options):
    def ask(client):
        sdk = make(http_client=client, max_retries=0, **options)
        sdk.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])

    return ask


def chat(make=openai.OpenAI, **options):
    def ask(client):
        sdk = make(http_client=client, max_retries=0, **options)
        sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

    return ask


def responses(make=openai.OpenAI, **options):
    def ask(client):
        make(http_client=client, max_retries=0, **options).responses.create(model="m", input="hi")

    return ask


def at_bedrock(ask, endpoint="mantle"):
    """Make the provider with the environment of the test."""
    return lambda client: ask(provider=bedrock(endpoint=endpoint))(client)


def gemini(**options):
    def ask(client):
        sdk = genai.Client(http_options={"httpx_client": client}, **options)
        sdk.models.generate_content(model="m", contents="hi")

    return ask


def cohere_chat(client):
    cohere.ClientV2(httpx_client=client).chat(model="m", messages=[{"role": "user", "content": "hi"}])


def captured(ask):
    """The URL and the headers of the request that an SDK sends."""
    requests = []

    def answer(request):
        requests.append(request)
        return httpx2.Response(400, json={"error": {"message": "captured", "code": 400, "status": "INVALID_ARGUMENT"}})

    with pytest.raises(Exception, match="captured"):
        ask(httpx2.Client(transport=httpx2.MockTransport(answer)))
    (request,) = requests
    headers = {name: value for name, value in request.headers.items() if name in HEADERS}
    return str(request.url), headers


def token_provider():
    return KEY


CASES = {
    "openai": (responses(), {"OPENAI_API_KEY": KEY}),
    "openai-chat": (chat(), {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://proxy.example/v1"}),
    "anthropic": (messages(anthropic.Anthropic), {"ANTHROPIC_API_KEY": KEY}),
    "anthropic-aws": (messages(anthropic.AnthropicAWS), {**WORKSPACE, "ANTHROPIC_AWS_API_KEY": KEY}),
    "anthropic-foundry": (
        messages(anthropic.AnthropicFoundry),
        {**FOUNDRY, "ANTHROPIC_FOUNDRY_RESOURCE": "my-resource"},
    ),
    "anthropic-google-cloud": (messages(AnthropicGoogleCloud, token_provider=token_provider), GOOGLE),
    "bedrock-mantle": (at_bedrock(chat), BEARER),
    "bedrock-mantle-responses": (at_bedrock(responses), BEARER),
    "bedrock-anthropic": (messages(anthropic.AnthropicBedrock), BEARER),
    "bedrock-mantle-anthropic": (messages(anthropic.AnthropicBedrockMantle), BEARER),
    "bedrock-openai": (at_bedrock(chat, "runtime"), BEARER),
    "bedrock-openai-responses": (at_bedrock(responses, "runtime"), BEARER),
    "cohere": (cohere_chat, {"CO_API_KEY": KEY}),
    "gemini": (gemini(), {"GEMINI_API_KEY": KEY}),
    "google": (gemini(), {"GOOGLE_API_KEY": KEY, "GEMINI_API_KEY": "another"}),
    "vertex": (
        gemini(vertexai=True, credentials=Credentials(KEY)),
        {"GOOGLE_CLOUD_PROJECT": "p-1", "GOOGLE_CLOUD_LOCATION": "eu"},
    ),
    "vertex-anthropic": (messages(anthropic.AnthropicVertex, access_token=KEY), {**VERTEX, "CLOUD_ML_REGION": "eu"}),
}
MORE_CASES = [
    ("anthropic", messages(anthropic.Anthropic), {"ANTHROPIC_AUTH_TOKEN": KEY, "ANTHROPIC_BASE_URL": "https://p.example"}),
    ("anthropic-aws", messages(anthropic.AnthropicAWS), {**WORKSPACE, "ANTHROPIC_AWS_API_KEY": KEY, "ANTHROPIC_AWS_BASE_URL": "https://p.example/x"}),
    ("anthropic-foundry", messages(anthropic.AnthropicFoundry), {**FOUNDRY, "ANTHROPIC_FOUNDRY_BASE_URL": "https://p.example/anthropic"}),
    ("anthropic-foundry", messages(anthropic.AnthropicFoundry, azure_ad_token_provider=token_provider), {"ANTHROPIC_FOUNDRY_RESOURCE": "r"}),
    ("anthropic-google-cloud", messages(AnthropicGoogleCloud, token_provider=token_provider), {**GOOGLE, "ANTHROPIC_GOOGLE_CLOUD_LOCATION": "us-east5"}),
    ("anthropic-google-cloud", messages(AnthropicGoogleCloud, token_provider=token_provider), {**GOOGLE, "ANTHROPIC_GOOGLE_CLOUD_BASE_URL": "https://p.example/x"}),
    ("bedrock-mantle-anthropic", messages(anthropic.AnthropicBedrockMantle), {"ANTHROPIC_AWS_API_KEY": KEY, "AWS_DEFAULT_REGION": "eu-west-1"}),
    ("bedrock-mantle-anthropic", messages(anthropic.AnthropicBedrockMantle), {**BEARER, "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": "https://p.example/y"}),
    ("bedrock-mantle", at_bedrock(chat), {**BEARER, "AWS_BEDROCK_BASE_URL": "https://p.example/openai/v1"}),
    *(
        ("bedrock-openai", at_bedrock(chat, "runtime"), {"AWS_REGION": region, "AWS_BEARER_TOKEN_BEDROCK": KEY})
        for region in ("cn-north-1", "cn-northwest-1", "eusc-de-east-1", "us-gov-west-1", "ap-southeast-4")
    ),
    *(
        ("vertex-anthropic", messages(anthropic.AnthropicVertex, access_token=KEY), {**VERTEX, "CLOUD_ML_REGION": location})
        for location in ("global", "us", "europe-west1")
    ),
]  # fmt: skip
# Vendors without an SDK for this protocol, and servers without a common address; azure and azure-responses are
# compared in test_vendor_requests.py, and boto3 is the client of bedrock in the gateway's test_bedrock_clients.py.
WITHOUT_SDK = frozenset(
    "alibaba azure azure-responses bedrock cohere-chat compatible deepinfra deepseek huggingface llamacpp lmstudio local minimax "
    "moonshot nvidia ollama ollama-chat openrouter sglang tgi toolken vllm xai zai".split()
)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Set exactly these variables, and pass them on."""

    def set_all(variables):
        prefixes = ("AWS_", "ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "AZURE_", "CO_", "CLOUD_ML", "CLOUDSDK_")
        for name in [name for name in os.environ if name.startswith(prefixes)]:
            monkeypatch.delenv(name)
        variables = {"HOME": str(tmp_path), **variables}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return variables

    return set_all


def ours(name, variables):
    key = None
    if not any(variables.get(candidate.variable) for candidate in find(name).keys):
        key = KEY  # the SDK got a token as an argument
    auth = "bearer" if key is not None else None
    endpoint = resolve(f"{name}/m", variables, key=key, auth=auth)
    headers = {**endpoint.headers, **endpoint.secrets}
    return endpoint.url(stream=False), {name: value for name, value in headers.items() if name in HEADERS}


@pytest.mark.parametrize(("name", "ask", "variables"), [(name, *case) for name, case in CASES.items()] + MORE_CASES)
def test_row_sends_to_the_url_of_the_sdk_with_its_authentication(name, ask, variables, environment):
    variables = environment(variables)
    url, headers = captured(ask)
    if name == "anthropic-foundry":
        headers.pop("api-key", None)  # the SDK sends the key twice
    if "ANTHROPIC_API_KEY" in variables:
        # anthropic 2.10.0 sends keys as bearer tokens, too. `x-api-key` is the header of older SDKs, so every server
        # with this API accepts it.
        headers["x-api-key"] = headers.pop("authorization").removeprefix("Bearer ")
    if name in ("gemini", "google"):
        # google-genai 3.3.0 uses v1 by default. v1beta has all of its features, and more (`GOOGLE_GENAI_API_VERSION`).
        url = url.replace("/v1/", "/v1beta/")
    assert ours(name, variables) == (url, headers)


@pytest.mark.parametrize(
    ("name", "ask", "variables"),
    [
        ("anthropic-aws", messages(anthropic.AnthropicAWS), WORKSPACE),
        ("bedrock-mantle-anthropic", messages(anthropic.AnthropicBedrockMantle), REGION),
        ("bedrock-mantle", at_bedrock(chat), REGION),
        ("bedrock-mantle-responses", at_bedrock(responses), {"AWS_DEFAULT_REGION": "eu-west-1"}),
        ("bedrock-openai", at_bedrock(chat, "runtime"), REGION),
    ],
)
def test_row_signs_for_the_service_and_region_of_the_sdk(name, ask, variables, environment):
    variables = environment({**variables, **ACCESS_KEYS})
    url, headers = captured(ask)
    endpoint = resolve(f"{name}/m", variables)
    assert isinstance(endpoint.signing, AwsSigning)
    assert endpoint.url(stream=False) == url
    access_key, _, region, service, _ = headers["authorization"].partition("Credential=")[2].split(",")[0].split("/")
    assert (access_key, endpoint.signing.scope) == (ACCESS_KEYS["AWS_ACCESS_KEY_ID"], (region, service))


def test_every_row_is_compared_or_has_no_sdk():
    assert set(names()) == CASES.keys() | OPTIONAL_SDKS.keys() | WITHOUT_SDK - {"compatible"}
    assert not (CASES.keys() | OPTIONAL_SDKS.keys()) & WITHOUT_SDK


def test_domains_of_bedrock_are_those_of_the_sdk():
    for region, url in find("bedrock-openai").base_urls.items():
        assert url == f"https://bedrock-runtime.{region}.{_runtime_dns_suffixes(region)[0]}/openai/v1"


def complete(sdk):
    sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


# SDKs that only some installations have: the row, the module, the class, its arguments, and a request.
OPTIONAL_SDKS = {
    "groq": ("groq", "Groq", {"max_retries": 0}, complete),
    "together": ("together", "Together", {"max_retries": 0}, complete),
    "cerebras": ("cerebras.cloud.sdk", "Cerebras", {"max_retries": 0, "warm_tcp_connection": False}, complete),
    "fireworks": ("fireworks", "Fireworks", {"max_retries": 0}, complete),
    "perplexity": ("perplexity", "Perplexity", {"max_retries": 0}, complete),
    "mistral": (
        "mistralai.client",
        "Mistral",
        {},
        lambda sdk: sdk.chat.complete(model="m", messages=[{"role": "user", "content": "hi"}]),
    ),
    "mistral-responses": (
        "mistralai.client",
        "Mistral",
        {},
        lambda sdk: sdk.responses.create(model="m", input="hi"),
    ),
}


@pytest.mark.parametrize("name", OPTIONAL_SDKS)
def test_row_sends_to_the_url_of_an_optional_sdk(name, environment, monkeypatch):
    module, kind, options, ask = OPTIONAL_SDKS[name]
    try:
        sdk = import_module(module)
    except ImportError as error:
        pytest.skip(f"cannot import {module}: {error}")
    variable = find(name).keys[0].variable
    monkeypatch.setenv(variable, KEY)
    requests = []

    def answer(request):
        requests.append(request)
        return httpx.Response(400, json={})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    argument = "client" if module.startswith("mistralai") else "http_client"
    with pytest.raises(Exception, match="400"):
        ask(getattr(sdk, kind)(**{argument: client}, **options))
    (request,) = requests
    endpoint = resolve(f"{name}/m", {variable: KEY})
    assert endpoint.url(stream=False) == str(request.url)
    assert endpoint.secrets == {"authorization": request.headers["authorization"]}
