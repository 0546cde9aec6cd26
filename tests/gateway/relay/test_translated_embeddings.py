"""Embeddings of official clients in front of upstreams of every wire."""

import json
import threading

import pytest
from google import genai
from openai import AsyncOpenAI

from gateway_client import post
from hostile import run
from relay_upstream import document, relaying
from toolwire.gateway.relay import upstream_form
from toolwire.ir.response import Usage
from toolwire.wire.embeddings import EmbeddingRequest, Embeddings, decode_embeddings, encode_embeddings

WIRES = ("openai_chat", "gemini", "ollama")
VECTORS = ((0.25, -1.5), (1.0, 2.0))
PATHS = {"openai_chat": "/embeddings", "gemini": "/v1beta/models/m:batchEmbedContents", "ollama": "/api/embed"}


def upstream_of(wire):
    def answer(received):
        assert received.path == PATHS[wire]
        return document(
            encode_embeddings(wire, Embeddings(VECTORS, "up", Usage(9, 0)), EmbeddingRequest("m", ("a", "b")))
        )

    return answer


def models(wire):
    return {"models": {"embed": {"upstream": wire, "model": "m"}}}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("encoding", ["float", "base64"])
@run
async def test_openai_client(wire, encoding):
    async with relaying(upstream_of(wire), (wire,), models(wire)) as (gateway, _):
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=0) as client:
            answer = await client.embeddings.create(model="embed", input=["a", "b"], encoding_format=encoding)
        if wire == "openai_chat" or encoding == "float":
            assert [tuple(item.embedding) for item in answer.data] == [*VECTORS]
        else:
            assert [item.embedding for item in answer.data] == ["AACAPgAAwL8=", "AACAPwAAAEA="]
        assert answer.usage.prompt_tokens == 9
        assert gateway.turns[0].usage.input == 9


@pytest.mark.parametrize("wire", WIRES)
@run
async def test_google_client(wire):
    async with relaying(upstream_of(wire), (wire,), models(wire)) as (gateway, _):
        client = genai.Client(api_key="x", http_options=genai.types.HttpOptions(base_url=gateway.url))
        async with client.aio as asynchronous:
            answer = await asynchronous.models.embed_content(
                model="embed", contents=["a", "b"], config={"task_type": "RETRIEVAL_QUERY"}
            )
        assert [tuple(item.values) for item in answer.embeddings] == [*VECTORS]
        lost = [loss.concept for loss in gateway.turns[0].losses]
        assert lost == ([] if wire == "gemini" else ["embedding_task"])


@run
async def test_losses_are_counted_and_can_be_refused():
    async with relaying(upstream_of("ollama"), ("ollama",), models("ollama")) as (gateway, upstream):
        body = {"model": "embed", "input": ["a", "b"], "user": "u"}
        status, headers, _ = await post(gateway.url, "/v1/embeddings", body)
        assert (status, headers["x-toolwire-losses"]) == (200, "1")
        status, _, _ = await post(gateway.url, "/v1/embeddings", body, {"x-toolwire-strict": "1"})
        assert (status, len(upstream.requests)) == (400, 1)


@pytest.mark.parametrize(
    "answer",
    [
        {"embeddings": []},
        {"embeddings": [[1.0]]},
        {"embeddings": [[1.0] * 20_000]},
        {"error": "x"},
        {"embeddings": [["x"], [1]]},
    ],
)
@run
async def test_wrong_answer_of_the_upstream_is_an_error(answer):
    async with relaying(lambda _: document(answer), ("ollama",), models("ollama")) as (gateway, _):
        status, _, data = await post(gateway.url, "/v1/embeddings", {"model": "embed", "input": ["a", "b"]})
        assert status == 502 and "error" in json.loads(data)


@pytest.mark.parametrize(("numbers", "in_loop"), [(10, True), (20_000, False)])
@run
async def test_large_answer_is_translated_outside_the_event_loop(monkeypatch, numbers, in_loop):
    threads = []

    def decode(wire, answer):
        threads.append(threading.get_ident())
        return decode_embeddings(wire, answer)

    monkeypatch.setattr(upstream_form, "decode_embeddings", decode)
    vectors = [[0.25] * numbers, [0.5] * numbers]
    async with relaying(lambda _: document({"embeddings": vectors}), ("ollama",), models("ollama")) as (gateway, _):
        status, _, data = await post(gateway.url, "/v1/embeddings", {"model": "embed", "input": ["a", "b"]})
    assert status == 200
    assert [item["embedding"] for item in json.loads(data)["data"]] == vectors
    assert [thread == threading.get_ident() for thread in threads] == [in_loop]


@run
async def test_large_request_is_translated_too():
    more = {**models("ollama"), "limits": {"stream_body": 1000}}
    async with relaying(upstream_of("ollama"), ("ollama",), more) as (gateway, upstream):
        status, _, _ = await post(gateway.url, "/v1/embeddings", {"model": "embed", "input": ["a" * 5000, "b"]})
        assert status == 200
        assert upstream.requests[0].document["input"][0] == "a" * 5000
