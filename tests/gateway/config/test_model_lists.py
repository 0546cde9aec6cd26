"""Lists and descriptions of models, as the official clients and the types of Ollama and Codex read them."""

import asyncio
import datetime as dt
import time
from contextlib import asynccontextmanager
from typing import Any, Literal

import anthropic
import msgspec
import openai
import pytest
from google import genai

from plain_http import Http
from serving import serving

NAMES = ["a", "b", "c", "d", "e"]
FACTS = {"window": 65_536, "max_output": 8_192, "media": ["image"], "thinking": True}
DOCUMENT = {
    "upstreams": {"up": {"base_url": "http://127.0.0.1:9", "wire": "openai_chat"}},
    "models": {
        **{name: {"upstream": "up", "model": "m"} for name in NAMES[1:]},
        "a": {"upstream": "up", "model": "m", "capabilities": FACTS},
    },
}
A_DAY = 24 * 3600
MODEL_OBJECT = {"id", "object", "created", "owned_by"}


@asynccontextmanager
async def gateway_and_http(headers=None):
    async with serving(DOCUMENT) as gateway, Http(headers or {}) as http:
        yield gateway.url, http


def get(path, headers=None):
    async def ask():
        async with gateway_and_http(headers) as (url, http):
            return await http.get(url + path)

    return asyncio.run(ask())


def with_url(use):
    async def ask():
        async with serving(DOCUMENT) as gateway:
            return await asyncio.to_thread(use, gateway.url)

    return asyncio.run(ask())


@pytest.mark.finding("GA6")
@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_google_genai_lists_and_gets_models_at_every_version(version):
    def use(url):
        options = {"base_url": url, "api_version": version}
        client = genai.Client(api_key="k", http_options=options)
        return list(client.models.list()), client.models.get(model="a")

    listed, described = with_url(use)
    assert [model.name for model in listed] == [f"models/{name}" for name in NAMES]
    assert (described.input_token_limit, described.output_token_limit) == (65_536, 8_192)


@pytest.mark.finding("GA6")
@pytest.mark.parametrize("header", ["x-goog-api-key", "x-goog-api-client"])
def test_either_header_of_google_selects_its_list(header):
    assert [model["name"] for model in get("/v1/models", {header: "x"}).json()["models"]][:1] == ["models/a"]
    assert get("/v1/models/a", {header: "x"}).json()["name"] == "models/a"
    assert get("/v1/nothing", {header: "x"}).json()["error"]["status"] == "NOT_FOUND"


@pytest.mark.finding("GA13")
def test_listed_models_have_a_date():
    def use(url):
        return (
            openai.OpenAI(base_url=f"{url}/v1", api_key="k").models.list().data[0].created,
            anthropic.Anthropic(base_url=url, api_key="k").models.list().data[0].created_at,
        )

    created, created_at = with_url(use)
    assert time.time() - 2 * A_DAY < created <= time.time()
    assert created_at == dt.datetime.fromtimestamp(created, dt.UTC)
    ollama = get("/api/tags").json()["models"][0]
    assert dt.datetime.fromisoformat(ollama["modified_at"]) == created_at


@pytest.mark.finding("GA13")
def test_anthropic_sdk_reads_every_page():
    def use(url):
        client = anthropic.Anthropic(base_url=url, api_key="k")
        first = client.models.list(limit=2)
        middle = client.models.list(limit=2, before_id="d")
        return first, list(first), middle, client.models.list()

    first, all_pages, middle, default = with_url(use)
    assert [model.id for model in all_pages] == NAMES
    assert [model.id for model in first.data] == ["a", "b"] and first.has_more
    assert [model.id for model in middle.data] == ["b", "c"] and middle.has_more
    assert (middle.first_id, middle.last_id) == ("b", "c")
    assert [model.id for model in default.data] == NAMES and not default.has_more
    assert (default.data[0].max_input_tokens, default.data[0].max_tokens) == (65_536, 8_192)


@pytest.mark.finding("GA13")
def test_gemini_sdk_reads_every_page():
    def use(url):
        client = genai.Client(api_key="k", http_options={"base_url": url})
        pager = client.models.list(config={"page_size": 2})
        return len(pager.page), [model.name for model in pager]

    assert with_url(use) == (2, [f"models/{name}" for name in NAMES])


@pytest.mark.finding("GA13")
@pytest.mark.parametrize("query", ["limit=2&after_id=bb", "limit=2&after_id=b"])
def test_page_after_a_removed_model_begins_at_its_position(query):
    page = get(f"/v1/models?{query}", {"anthropic-version": "2023-06-01"}).json()
    assert [model["id"] for model in page["data"]] == ["c", "d"] and page["has_more"]


@pytest.mark.finding("GA13")
@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/models?limit=0", {"anthropic-version": "2023-06-01"}),
        ("/v1/models?limit=x", {"anthropic-version": "2023-06-01"}),
        ("/v1beta/models?pageSize=-1", {}),
        (f"/v1beta/models?pageSize={'9' * 5000}", {}),
    ],
)
def test_invalid_page_size_is_refused(path, headers):
    assert get(path, headers).status == 400


class OllamaDetails(msgspec.Struct, forbid_unknown_fields=True):
    """ModelDetails of Ollama's api/types.go."""

    parent_model: str
    format: str
    family: str
    families: list[str] | None
    parameter_size: str
    quantization_level: str


class OllamaDescription(msgspec.Struct, forbid_unknown_fields=True):
    """ShowResponse of Ollama's api/types.go. The Python SDK (0.6) requires model_info."""

    details: OllamaDetails
    model_info: dict[str, Any]
    modelfile: str
    parameters: str
    template: str
    capabilities: list[str]
    modified_at: dt.datetime


class OllamaEntry(msgspec.Struct, forbid_unknown_fields=True):
    """ListModelResponse of Ollama's api/types.go."""

    name: str
    model: str
    modified_at: dt.datetime
    size: int
    digest: str
    details: OllamaDetails


@pytest.mark.finding("GA9")
def test_ollama_description_has_model_info():
    async def ask(model):
        async with gateway_and_http() as (url, http):
            return (await http.post(f"{url}/api/show", {"model": model})).json()

    described = msgspec.convert(asyncio.run(ask("a")), OllamaDescription)
    architecture = described.model_info["general.architecture"]
    assert described.model_info[f"{architecture}.context_length"] == 65_536
    assert described.capabilities == ["completion", "tools", "vision", "thinking"]
    unknown = msgspec.convert(asyncio.run(ask("b")), OllamaDescription)
    assert f"{architecture}.context_length" not in unknown.model_info


@pytest.mark.finding("GA9")
def test_ollama_lists_and_loaded_models():
    entries = msgspec.convert(get("/api/tags").json()["models"], list[OllamaEntry])
    assert [entry.name for entry in entries] == NAMES
    assert all(len(entry.digest) == 64 for entry in entries)  # `ollama ls` cuts it to 12 characters
    assert get("/api/ps").json() == {"models": []}


class CodexEffort(msgspec.Struct):
    effort: str
    description: str


class CodexTruncation(msgspec.Struct):
    mode: str
    limit: int


class CodexModel(msgspec.Struct):
    """The fields of ModelInfo without a default in Codex 0.169.0 (codex-rs/protocol/src/openai_models.rs)."""

    slug: str
    display_name: str
    description: str | None
    supported_reasoning_levels: list[CodexEffort]
    shell_type: str
    visibility: str
    supported_in_api: bool
    priority: int
    availability_nux: None
    upgrade: None
    base_instructions: str
    support_verbosity: bool
    default_verbosity: None
    apply_patch_tool_type: Literal["freeform"]
    truncation_policy: CodexTruncation
    supports_parallel_tool_calls: bool  # of earlier versions
    experimental_supported_tools: list[str]
    context_window: int | None = None
    input_modalities: list[str] = []


@pytest.mark.finding("CA8")
def test_list_of_openai_has_the_catalogue_of_codex():
    document = get("/v1/models?client_version=0.169.0").json()
    assert all(set(entry) == MODEL_OBJECT for entry in document["data"])
    models = msgspec.convert(document["models"], list[CodexModel])
    assert [model.slug for model in models] == NAMES
    assert models[0].context_window == 65_536 and models[1].context_window is None
    assert all(model.base_instructions for model in models)
    assert "models" not in get("/v1/models").json()  # other clients do not get its instructions
