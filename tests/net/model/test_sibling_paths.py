"""The addresses of endpoints besides chats, at vendors with paths and versions of their own."""

import pytest

from toolwire.net.model.endpoint import resolve

ENVIRONMENT = {
    "AZURE_OPENAI_API_KEY": "k",
    "AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com",
    "OPENAI_API_KEY": "k",
    "ANTHROPIC_API_KEY": "k",
    "GOOGLE_API_KEY": "k",
    "CLOUDSDK_AUTH_ACCESS_TOKEN": "k",
    "GOOGLE_CLOUD_PROJECT": "p",
}
DATED = {"api_version": "2024-10-21"}
VERTEX = (
    "https://us-central1-aiplatform.googleapis.com/v1beta1/projects/p/locations/us-central1/publishers/google/models"
)


@pytest.mark.parametrize(
    ("model", "path", "of_model", "options", "url"),
    [
        ("openai/m", "/embeddings", True, {}, "https://api.openai.com/v1/embeddings"),
        ("azure/d", "/embeddings", True, {}, "https://r.openai.azure.com/openai/v1/embeddings"),
        (
            "azure/d",
            "/embeddings",
            True,
            DATED,
            "https://r.openai.azure.com/openai/deployments/d/embeddings?api-version=2024-10-21",
        ),
        ("azure/d", "/files", False, DATED, "https://r.openai.azure.com/openai/files?api-version=2024-10-21"),
        ("anthropic/m", "/v1/messages/batches", False, {}, "https://api.anthropic.com/v1/messages/batches"),
        (
            "gemini/m",
            "/v1beta/models/m:embedContent",
            True,
            {},
            "https://generativelanguage.googleapis.com/v1beta/models/m:embedContent",
        ),
        ("vertex/m", "/v1beta/models/m:embedContent", True, {"location": "us-central1"}, f"{VERTEX}/m:embedContent"),
        ("ollama/m", "/api/embed", True, {}, "http://localhost:11434/api/embed"),
        (
            "m",
            "/embeddings",
            True,
            {"base_url": "https://x.example/v1/chat/completions"},
            "https://x.example/v1/embeddings",
        ),
        ("m", "/v2/rerank", True, {"base_url": "https://x.example/v1"}, "https://x.example/v1/rerank"),
    ],
)
def test_address_of_another_endpoint(model, path, of_model, options, url):
    endpoint = resolve(model, ENVIRONMENT, **options)
    assert endpoint.at_path(path, of_model=of_model).url(stream=False) == url
    assert endpoint.url(stream=False) != url
