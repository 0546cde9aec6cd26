"""From what a user writes to where it goes."""

import pytest

from tables import every_case
from toolwire.ir.errors import ConfigError
from toolwire.net.model.endpoint import resolve

KEY = "sk-secret-0123456789"
ENVIRONMENT = {"OPENAI_API_KEY": KEY, "GROQ_API_KEY": f" {KEY}\n", "ANTHROPIC_AUTH_TOKEN": KEY, "GEMINI_API_KEY": KEY}


@pytest.mark.parametrize(
    ("model", "url", "header"),
    [
        ("openai/gpt-5", "https://api.openai.com/v1/responses", ("authorization", f"Bearer {KEY}")),
        ("openai:gpt-5", "https://api.openai.com/v1/responses", ("authorization", f"Bearer {KEY}")),
        ("OpenAI-Chat/gpt-5", "https://api.openai.com/v1/chat/completions", ("authorization", f"Bearer {KEY}")),
        ("groq/a/b", "https://api.groq.com/openai/v1/chat/completions", ("authorization", f"Bearer {KEY}")),
        ("anthropic/claude", "https://api.anthropic.com/v1/messages", ("authorization", f"Bearer {KEY}")),
        (
            "google/gemini-3",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-3:generateContent",
            ("x-goog-api-key", KEY),
        ),
        ("ollama/qwen3:8b", "http://localhost:11434/api/chat", None),
        ("ollama-chat/qwen3:8b", "http://localhost:11434/v1/chat/completions", None),
    ],
)
def test_provider_and_model_give_url_and_key_header(model, url, header):
    endpoint = resolve(model, ENVIRONMENT)
    assert endpoint.url(stream=False) == url
    assert endpoint.secrets == ({} if header is None else dict([header]))
    assert KEY not in repr(endpoint)


@pytest.mark.parametrize(
    ("model", "name"), [("groq/a/b", "a/b"), ("ollama/qwen3:8b", "qwen3:8b"), ("ollama:qwen3:8b", "qwen3:8b")]
)
def test_model_name_is_the_part_after_the_provider(model, name):
    assert resolve(model, ENVIRONMENT).model == name


@every_case(
    "model, vendor, name",
    [
        *(
            (f"mistral:{tag}", "compatible", f"mistral:{tag}")
            for tag in ("7b", "7B", "1.5b", "e2b", "8x7b", "135m", "latest", "instruct", "v0.3", "7b-instruct-q4_K_M")
        ),
        ("mistral/7b", "mistral", "7b"),
        ("mistral:mistral-large-latest", "mistral", "mistral-large-latest"),
        ("openai:o3", "openai", "o3"),
        ("azure:4o", "azure", "4o"),
        ("azure:v2-prod", "azure", "v2-prod"),
        ("vLLM:latest", "vllm", "latest"),
        ("llama3:8b", "compatible", "llama3:8b"),
        ("ollama:mistral:7b", "ollama", "mistral:7b"),
    ],
)
def test_tag_after_a_colon_belongs_to_the_name_of_the_model(model, vendor, name):
    endpoint = resolve(model, {"AZURE_OPENAI_API_KEY": KEY}, base_url="http://localhost:1/v1", key=KEY)
    assert (endpoint.vendor.name, endpoint.model) == (vendor, name)


def test_wire_version_is_sent_as_a_header():
    new = resolve("anthropic/c", {}, key=KEY)
    old = resolve("anthropic/c", {}, key=KEY, wire="anthropic@2023-06-01")
    assert [endpoint.headers["anthropic-version"] for endpoint in (new, old)] == ["2026-10-21", "2023-06-01"]
    assert new.secrets == {"x-api-key": KEY}


def test_environment_key_is_not_sent_to_another_host():
    assert resolve("openai/m", ENVIRONMENT, base_url="https://elsewhere.example/v1").secrets == {}
    assert resolve("some-model", ENVIRONMENT, base_url="https://api.openai.com/v1").secrets == {}
    assert resolve("openai/m", ENVIRONMENT, base_url="https://api.openai.com/v1/").secrets
    there = resolve("openai/m", {**ENVIRONMENT, "OPENAI_BASE_URL": "https://gateway.example/v1"})
    assert (there.origin, bool(there.secrets)) == ("https://gateway.example", True)


def test_missing_key_error_names_the_variable():
    with pytest.raises(ConfigError, match="set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"):
        resolve("anthropic/claude", {})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("opnai/gpt-5", "did you mean 'openai'"),
        ("gpt-5", "has no provider"),
        ("", "has no provider"),
        ("openai/", "no model"),
        ("zzz/m", "`toolwire models` lists the providers"),
        ("mistral:7b", "as in ollama/mistral:7b"),
        ("qwen3:8b", "as in ollama/qwen3:8b"),
    ],
)
def test_unknown_model_names_are_rejected(model, words):
    with pytest.raises(ConfigError, match=words):
        resolve(model, ENVIRONMENT)


@pytest.mark.parametrize("key", ["", "  ", "a\nb", "schlüssel", "a b"])
def test_invalid_key_is_rejected_without_showing_it(key):
    with pytest.raises(ConfigError) as raised:
        resolve("openai/m", {}, key=key)
    assert not key.strip() or key not in str(raised.value)


@every_case(
    "url",
    [
        "localhost:8000",
        "http:/x",
        "https://",
        "ftp://x",
        "https://u:p4ssw0rd@h/v1",
        "https://h/#x",
        "https://h:99999/",
        "https://[::1/",
        "https://h /v1",
        "https://h\\@evil/",
        "http://example.com/v1",
        "http://127.0.0.1.example.com",
        "http://0.0.0.0:8000",
    ],
)
def test_invalid_base_urls_are_rejected(url):
    with pytest.raises(ConfigError) as raised:
        resolve("m", {}, base_url=url)
    assert "p4ssw0rd" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.9.9.9/v1", "http://[::1]:8000/v1", "https://h.example"]
)
def test_valid_base_urls_are_accepted(url):
    assert resolve("m", {}, base_url=url).url(stream=True).startswith(url.removesuffix("/v1"))


def test_plain_http_to_another_host_is_allowed_with_insecure():
    assert resolve("m", {}, base_url="http://gpu:8000/v1", insecure=True).origin == "http://gpu:8000"


@pytest.mark.parametrize(
    ("wire", "base", "path"),
    [
        ("anthropic", "https://h", "/v1/messages"),
        ("anthropic", "https://h/v1", "/v1/messages"),
        ("anthropic", "https://h/v1/messages", "/v1/messages"),
        ("gemini", "https://h/v1beta/", "/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("gemini", "https://h/x?a=1", "/x/v1beta/models/m:streamGenerateContent?alt=sse&a=1"),
        ("openai_chat", "https://h/v1/chat/completions", "/v1/chat/completions"),
        ("openai_responses", "https://h/openai/v1/", "/openai/v1/responses"),
    ],
)
def test_redundant_path_in_a_base_url_is_accepted(wire, base, path):
    assert resolve("m", {}, base_url=base, wire=wire).url(stream=True) == "https://h" + path


@pytest.mark.parametrize("model", ["../../secret", "a/b", "x?y=1#z", "m%2f..", "ä b"])
def test_model_name_is_escaped_in_the_url_path(model):
    path = resolve(model, {}, base_url="https://h", wire="gemini").url(stream=False)
    assert path.startswith("https://h/v1beta/models/")
    assert path.removeprefix("https://h/v1beta/models/").removesuffix(":generateContent").isascii()
    assert not set("/?# ") & set(path.removeprefix("https://h/v1beta/models/"))


@pytest.mark.parametrize(
    ("model", "wire", "fields"),
    [
        ("qwen3", None, {"max_completion_tokens": "max_tokens"}),
        ("o3", None, {}),
        ("qwen3", "anthropic", {}),
        ("qwen3", "gemini", {}),
        ("qwen3", "ollama", {}),
        ("mistral/m", None, {"max_completion_tokens": "max_tokens", "seed": "random_seed"}),
    ],
)
def test_fields_are_renamed_only_on_the_wire_of_the_vendor(model, wire, fields):
    address = {} if "/" in model else {"base_url": "http://127.0.0.1:1/v1"}
    assert resolve(model, {"MISTRAL_API_KEY": "k"}, wire=wire, **address).renamed_fields == fields


LITELLM = {"TOGETHERAI_API_KEY": KEY, "HOSTED_VLLM_API_BASE": "http://127.0.0.1:9/v1"}


@every_case(
    ("model", "vendor", "url"),
    [
        ("together_ai/a/b", "together", "https://api.together.ai/v1/chat/completions"),
        ("hosted_vllm/a/b", "vllm", "http://127.0.0.1:9/v1/chat/completions"),
        ("ollama_chat/qwen3:8b", "ollama", "http://localhost:11434/api/chat"),
        ("lm_studio/a", "lmstudio", "http://localhost:1234/v1/chat/completions"),
        ("Together_AI/a", "together", "https://api.together.ai/v1/chat/completions"),
    ],
)
def test_prefix_and_variables_of_litellm_are_accepted(model, vendor, url):
    endpoint = resolve(model, LITELLM)
    assert (endpoint.vendor.name, endpoint.model, endpoint.url(stream=False)) == (vendor, model.partition("/")[2], url)
    assert endpoint.secrets == ({"authorization": f"Bearer {KEY}"} if vendor == "together" else {})
    assert resolve(model, LITELLM, base_url="https://example.com", key=KEY).model == model


@pytest.mark.parametrize("prefix", ["together_ai", "hosted_vllm", "openai", "OpenAI"])
def test_prefix_without_a_model_is_refused(prefix):
    with pytest.raises(ConfigError, match="names a provider but no model") as raised:
        resolve(f"{prefix}/", LITELLM)
    assert raised.value.hint == f"write {prefix}/MODEL"


@every_case(
    ("model", "message"),
    [
        ("sagemaker/claude", "sagemaker/claude: Amazon SageMaker is not supported"),
        ("azure_ai/m", "'azure_ai' has no address of its own"),
        ("vertex_ai/claude-sonnet-5", "vertex-anthropic needs a project"),
        ("fireworks_ai/m", "no key for fireworks"),
        ("gpt-5.6", "'gpt-5.6' has no provider"),
    ],
)
def test_prefix_of_litellm_without_an_equivalent_or_a_setting_is_refused(model, message):
    with pytest.raises(ConfigError) as raised:
        resolve(model, {})
    assert raised.value.message == message
