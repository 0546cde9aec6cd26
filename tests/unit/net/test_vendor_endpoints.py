"""Azure OpenAI and Vertex AI: from settings and environment to URLs, headers and bodies."""

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Text
from toolwire.ir.request import Message, Params, Request
from toolwire.net.endpoint import resolve
from toolwire.net.endpoint_request import EndpointRequest
from toolwire.stream.strict import parse_object

KEY = "secret-0123456789"
AZURE = "https://r.openai.azure.com"
MODELS = "publishers/google/models/gemini-2.5-flash"
CLAUDE = "publishers/anthropic/models/claude-sonnet-4-5@20250929"


@pytest.mark.parametrize(
    ("model", "options", "url"),
    [
        ("azure/d", {}, f"{AZURE}/openai/v1/chat/completions"),
        ("azure/d", {"api_version": "v1"}, f"{AZURE}/openai/v1/chat/completions?api-version=v1"),
        ("azure/d", {"api_version": "preview"}, f"{AZURE}/openai/v1/chat/completions?api-version=preview"),
        (
            "azure/d",
            {"api_version": "2024-10-21"},
            f"{AZURE}/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (
            "azure/my dep/ä",
            {"api_version": "2024-12-01-preview"},
            f"{AZURE}/openai/deployments/my%20dep%2F%C3%A4/chat/completions?api-version=2024-12-01-preview",
        ),
        ("azure-responses/d", {}, f"{AZURE}/openai/v1/responses"),
        ("azure/d", {"wire": "openai_responses"}, f"{AZURE}/openai/v1/responses"),
        (
            "azure-responses/d",
            {"api_version": "2025-04-01-preview"},
            f"{AZURE}/openai/responses?api-version=2025-04-01-preview",
        ),
    ],
)
def test_azure_api_version_decides_the_surface(model, options, url):
    endpoint = resolve(model, {"AZURE_OPENAI_ENDPOINT": f"{AZURE}/", "AZURE_OPENAI_API_KEY": KEY}, **options)
    assert endpoint.url(stream=False) == endpoint.url(stream=True) == url
    assert endpoint.secrets == {"api-key": KEY}


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("2023-05-15", True), ("2024-02-01", True), ("2024-08-01-preview", True), ("2024-09-01-preview", False)],
)
def test_old_azure_versions_get_no_field_that_they_do_not_know(version, is_old):
    endpoint = resolve("azure/d", {}, base_url=AZURE, key=KEY, api_version=version)
    params = Params(max_tokens=9, include_usage=True)
    request = Request(messages=(Message("user", (Text("hi"),)),), params=params)
    sent = parse_object(EndpointRequest(request, endpoint, stream=True, text=None, losses=Losses()).body)
    new = {"max_completion_tokens": 9, "stream_options": {"include_usage": True}}
    expected = {"max_tokens": 9} if is_old else new
    messages = [{"role": "user", "content": "hi"}]
    assert sent == {"model": "d", "messages": messages, "stream": True, **expected}
    assert f"/deployments/d/chat/completions?api-version={version}" in endpoint.url(stream=True)


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("gpt-5", "max_completion_tokens"),
        ("o3-mini", "max_completion_tokens"),
        ("gpt-4o", "max_tokens"),
        ("qwen3", "max_tokens"),
    ],
)
def test_reasoning_model_at_a_base_url_gets_the_limit_that_it_accepts(model, field):
    endpoint = resolve(model, {}, base_url="https://proxy.example/v1", wire="openai_chat")
    request = Request(messages=(Message("user", (Text("hi"),)),), params=Params(max_tokens=99))
    sent = parse_object(EndpointRequest(request, endpoint, stream=False, text=None, losses=Losses()).body)
    assert sent == {"model": model, "messages": [{"role": "user", "content": "hi"}], field: 99}


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (AZURE, f"{AZURE}/openai/deployments/d/chat/completions?api-version=2024-10-21"),
        (f"{AZURE}/openai", f"{AZURE}/openai/deployments/d/chat/completions?api-version=2024-10-21"),
        (f"{AZURE}/openai/deployments/d", f"{AZURE}/openai/deployments/d/chat/completions?api-version=2024-10-21"),
        # the URL that Azure's console shows
        (
            f"{AZURE}/openai/deployments/d/chat/completions?api-version=2025-01-01-preview",
            f"{AZURE}/openai/deployments/d/chat/completions?api-version=2025-01-01-preview",
        ),
        (f"{AZURE}/openai/v1/", f"{AZURE}/openai/v1/chat/completions"),  # the variable is for deployments
        (f"{AZURE}/openai/v1?api-version=preview", f"{AZURE}/openai/v1/chat/completions?api-version=preview"),
        ("https://apim.example/team/openai/v1?x=1", "https://apim.example/team/openai/v1/chat/completions?x=1"),
    ],
)
def test_azure_base_url_may_contain_the_surface(base_url, url):
    endpoint = resolve("azure/d", {"OPENAI_API_VERSION": "2024-10-21"}, base_url=base_url, key=KEY)
    assert endpoint.url(stream=False) == url


def test_azure_token_is_sent_as_bearer_and_has_precedence():
    environment = {"AZURE_OPENAI_ENDPOINT": AZURE, "AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_AD_TOKEN": "entra-token"}
    assert resolve("azure/d", environment).secrets == {"authorization": "Bearer entra-token"}
    assert resolve("azure/d", environment, key=KEY).secrets == {"api-key": KEY}
    assert resolve("azure/d", environment, key=KEY, auth="bearer").secrets == {"authorization": f"Bearer {KEY}"}
    assert resolve("azure/d", {**environment, "AZURE_OPENAI_AD_TOKEN": ""}, auth="bearer").secrets == {
        "authorization": f"Bearer {KEY}"
    }
    assert resolve("openai/m", {}, key=KEY, auth="key").secrets == {"authorization": f"Bearer {KEY}"}
    assert resolve("anthropic/m", {}, key=KEY, auth="bearer").secrets == {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("base_url", "sent"),
    [
        (AZURE, True),
        ("https://r.services.ai.azure.com", True),
        ("https://vm.westeurope.cloudapp.azure.com", False),  # a machine of any customer
        ("https://openai.azure.com.example", False),
        ("https://evilopenai.azure.com", False),
    ],
)
def test_azure_key_of_the_environment_is_sent_to_azure_only(base_url, sent):
    endpoint = resolve("azure/d", {"AZURE_OPENAI_API_KEY": KEY}, base_url=base_url)
    assert endpoint.secrets == ({"api-key": KEY} if sent else {})


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_vertex_location_decides_the_host(location, host):
    environment = {"GOOGLE_CLOUD_PROJECT": "p-1", "GOOGLE_CLOUD_LOCATION": location}
    gemini = resolve("vertex/gemini-2.5-flash", environment, key=KEY)
    prefix = f"https://{host}/v1beta1/projects/p-1/locations/{location}"
    assert gemini.url(stream=False) == f"{prefix}/{MODELS}:generateContent"
    assert gemini.url(stream=True) == f"{prefix}/{MODELS}:streamGenerateContent?alt=sse"
    claude = resolve("vertex-anthropic/claude-sonnet-4-5@20250929", {}, key=KEY, project="p-1", location=location)
    prefix = f"https://{host}/v1/projects/p-1/locations/{location}"
    assert claude.url(stream=False) == f"{prefix}/{CLAUDE}:rawPredict"
    assert claude.url(stream=True) == f"{prefix}/{CLAUDE}:streamRawPredict"
    assert gemini.secrets == claude.secrets == {"authorization": f"Bearer {KEY}"}


def test_vertex_settings_come_before_the_environment_and_defaults():
    environment = {"GOOGLE_CLOUD_PROJECT": "p-1", "CLOUDSDK_AUTH_ACCESS_TOKEN": KEY}
    assert "projects/p-1/locations/global/" in resolve("vertex/m", environment).url(stream=False)
    url = resolve("vertex/m", environment, project="example.com:p", location="us-east5", api_version="v1").url(
        stream=False
    )
    assert url.startswith("https://us-east5-aiplatform.googleapis.com/v1/projects/example.com:p/locations/us-east5/")
    proxied = resolve("vertex/m", environment, base_url="https://proxy.example/vertex/v1", key="k")
    assert proxied.url(stream=False).startswith("https://proxy.example/vertex/v1beta1/projects/p-1/")
    assert resolve("vertex/m", environment, base_url="https://proxy.example").secrets == {}
    other = {"ANTHROPIC_VERTEX_PROJECT_ID": "p-2", "CLOUD_ML_REGION": "us-east5", "GOOGLE_CLOUD_PROJECT": "p-1"}
    assert "/projects/p-2/locations/us-east5/" in resolve("vertex-anthropic/m", other, key=KEY).url(stream=False)


@pytest.mark.parametrize(
    ("wire", "version"),
    [(None, "vertex-2023-10-16"), ("anthropic@2023-06-01", "vertex-2023-10-16"), ("anthropic", "2026-10-21")],
)
def test_vertex_body_has_the_version_and_no_model(wire, version):
    endpoint = resolve("vertex-anthropic/claude", {}, key=KEY, project="p", wire=wire)
    body = {"model": "claude", "max_tokens": 5, "messages": []}
    assert endpoint.finish_body(body) == {"max_tokens": 5, "messages": [], "anthropic_version": version}
    assert "anthropic-version" not in endpoint.headers
    assert endpoint.changes_body
    assert endpoint.finish_body(body, "2026-10-21")["anthropic_version"] == "2026-10-21"  # the client's version
    assert resolve("anthropic/claude", {}, key=KEY).finish_body(body) == body


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("azure/d", {}, "azure has no common address.*AZURE_OPENAI_ENDPOINT"),
        ("azure/d", {"base_url": AZURE}, "no key for azure.*AZURE_OPENAI_API_KEY"),
        ("azure/d", {"base_url": AZURE, "api_version": "soon"}, "azure has no API version 'soon'"),
        ("azure/d", {"base_url": f"{AZURE}/openai/deployments/d"}, "needs an api_version.*OPENAI_API_VERSION"),
        ("azure/..", {"base_url": AZURE, "api_version": "2024-10-21"}, "invalid model name"),
        ("azure/d", {"base_url": AZURE, "project": "p"}, "azure takes no project"),
        ("openai/m", {"api_version": "2024-10-21"}, "openai takes no api_version"),
        ("vertex/m", {}, "vertex needs a project.*GOOGLE_CLOUD_PROJECT"),
        ("vertex/m", {"project": "p"}, "no key for vertex.*key_command"),
        ("vertex/m", {"project": "p/../x"}, "vertex: invalid project 'p/../x'"),
        ("vertex/m", {"project": "p", "location": "evil.example/"}, "vertex: invalid location"),
    ],
)
def test_missing_or_invalid_settings_are_explained(model, options, words):
    with pytest.raises(ConfigError, match=words):
        resolve(model, {}, **options)


def test_headers_are_added_and_variables_are_secrets():
    environment = {"OPENAI_API_KEY": KEY, "TEAM_TOKEN": "team-secret-value"}
    headers = {"X-Team": "search", "X-Team-Token": "Token ${TEAM_TOKEN}"}
    endpoint = resolve("openai/m", environment, headers=headers)
    assert endpoint.headers["x-team"] == "search"
    assert endpoint.secrets == {"x-team-token": "Token team-secret-value", "authorization": f"Bearer {KEY}"}
    assert endpoint.key == KEY
    assert "team-secret" not in repr(endpoint)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Authorization": "Bearer x"}, "is the header of the key.*key_env"),
        ({"Host": "x"}, "'Host' cannot be set"),
        ({"Content-Length": "5"}, "cannot be set"),
        ({"a b": "x"}, "not a valid name"),
        ({"x": "a\r\nb: c"}, "characters that are not allowed"),
        ({"x": "${NOT_SET}"}, "environment variable NOT_SET of 'x' is not set"),
        ({"x": "1", "X": "2"}, "set twice"),
    ],
)
def test_invalid_headers_are_rejected(headers, words):
    with pytest.raises(ConfigError, match=words):
        resolve("openai/m", {"OPENAI_API_KEY": KEY}, headers=headers)


def test_configured_headers_win_over_the_client_and_beta_lists_are_joined():
    endpoint = resolve("anthropic/m", {}, key=KEY, headers={"anthropic-beta": "a-1", "anthropic-version": "2023-06-01"})
    merged = endpoint.merge_headers({"anthropic-beta": "b-2", "anthropic-version": "2026-10-21", "openai-beta": "c"})
    assert merged["anthropic-beta"] == "a-1,b-2"
    assert merged["anthropic-version"] == "2023-06-01"
    assert merged["openai-beta"] == "c"
    vertex = resolve("vertex-anthropic/m", {}, key=KEY, project="p")
    assert vertex.merge_headers({"anthropic-version": "2023-06-01", "anthropic-beta": "b"}) == {
        "content-type": "application/json",
        "anthropic-beta": "b",
    }


@pytest.mark.parametrize(
    ("model", "options", "is_sent"),
    [
        ("openai-chat/gpt-5.6", {}, True),
        ("openai-chat/gpt-4o", {}, False),
        ("groq/m", {}, False),
        ("mistral/m", {}, False),
        ("m", {"base_url": "https://proxy.example/v1"}, False),
    ],
)
def test_cache_mark_is_sent_only_to_models_and_servers_that_have_it(model, options, is_sent):
    endpoint = resolve(model, {}, key=KEY, **options)
    request = Request(messages=(Message("user", (Text("hi", "default"),)),))
    sent = EndpointRequest(request, endpoint, stream=False, text=None, losses=Losses()).body
    assert (b"prompt_cache_breakpoint" in sent) == is_sent


@pytest.mark.parametrize(("provider", "wire"), [("vertex-anthropic", None), ("vertex", "anthropic")])
def test_cache_mark_of_the_body_is_not_sent_to_vertex(provider, wire):
    """ "cache_control: Extra inputs are not permitted" (UKGovernmentBEIS/inspect_ai#3851)."""
    mark = {"type": "ephemeral"}
    request = Request("m", (Message("user", (Text("hi"),)),), extra={"openai_chat": {"cache_control": mark}})
    for endpoint, is_sent in (
        (resolve(f"{provider}/claude", {}, key=KEY, project="p", wire=wire), False),
        (resolve("anthropic/claude", {}, key=KEY), True),
    ):
        losses = Losses()
        sent = EndpointRequest(request, endpoint, stream=False, text=None, losses=losses, mark_prefix=True).body
        assert (b"cache_control" in sent) == is_sent
        assert ("/cache_control" in [loss.path for loss in losses]) != is_sent


@pytest.mark.parametrize("wire", ["anthropic", "anthropic@2023-06-01"])
def test_cache_mark_of_the_body_in_the_settings_is_one_of_four(wire):
    mark = {"type": "ephemeral"}
    parts = tuple(Text(f"page {number}", cache="default") for number in range(5))
    request = Request("m", (Message("user", parts),))
    endpoint = resolve("anthropic/claude", {}, key=KEY, wire=wire, extra_body={"cache_control": mark})
    for version in ("2023-06-01", "2026-10-21"):
        pinned = endpoint.with_version(version)
        sent = EndpointRequest(request, pinned, stream=False, text=None, losses=Losses()).body
        assert sent.count(b"cache_control") == 4
