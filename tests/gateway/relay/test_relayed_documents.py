"""JSON endpoints besides chats: requests and answers of official clients, models, keys, faults and usage."""

import json

import pytest
from openai import AsyncOpenAI

from gateway_client import post, send
from hostile import Answer, expect_error, run
from relay_upstream import UPSTREAM_KEY, Reply, document, relaying
from toolwire.gateway.keys import hash_key

KEY = "sk-client"
EMBEDDINGS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.5]}],
    "model": "up-model",
    "usage": {"prompt_tokens": 7, "total_tokens": 7},
}


def keys(**more):
    return {"keys": {"client": {"hash": hash_key(KEY), **more}}}


def openai_client(gateway, key=KEY):
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


@run
async def test_embeddings_of_the_openai_client():
    models = {"models": {"small": {"upstream": "openai_chat", "model": "up-model"}}}
    async with relaying(lambda _: document(EMBEDDINGS), more={**models, **keys()}) as (gateway, upstream):
        async with openai_client(gateway) as client:
            answer = await client.embeddings.create(model="small", input=["a"], encoding_format="float")
        assert answer.data[0].embedding == [0.25, -1.5]
        [received] = upstream.requests
        assert received.path == "/embeddings"  # below the base URL, as /chat/completions
        assert received.document == {"input": ["a"], "model": "up-model", "encoding_format": "float"}
        assert received.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
        [log] = gateway.turns
        assert (log.action, log.caller, log.model, log.upstream, log.status) == (
            "relay",
            "client",
            "small",
            "openai_chat",
            200,
        )
        assert log.usage.input == 7


@run
async def test_binary_answer_has_its_headers():
    def answer(received):
        assert received.document["voice"] == "alloy"
        return Reply(b"\x00ID3" * 100_000, {"content-type": "audio/mpeg", "x-internal": "no"})

    async with relaying(answer) as (gateway, _), openai_client(gateway) as client:
        speech = await client.audio.speech.create(model="openai_chat/tts", voice="alloy", input="hi")
        assert await speech.aread() == b"\x00ID3" * 100_000
        assert speech.response.headers["content-type"] == "audio/mpeg"
        assert "x-internal" not in speech.response.headers


@run
async def test_stream_of_completions_is_passed_on_with_its_usage():
    events = b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}\n\n'
    reply = Reply(events + b"data: [DONE]\n\n", {"content-type": "text/event-stream"})
    async with relaying(lambda _: reply) as (gateway, _):
        status, headers, data = await post(
            gateway.url, "/v1/completions", {"model": "openai_chat/m", "prompt": "x", "stream": True}
        )
        assert (status, data) == (200, reply.body)
        assert headers["content-type"] == "text/event-stream"
        assert (gateway.turns[0].usage.input, gateway.turns[0].usage.output) == (2, 3)


@run
async def test_model_that_the_key_does_not_allow_is_refused():
    async with relaying(lambda _: document(EMBEDDINGS), more=keys(models=["small"])) as (gateway, upstream):
        bearer = {"authorization": f"Bearer {KEY}"}
        for path, body in (
            ("/v1/embeddings", {"model": "openai_chat/m", "input": "a"}),
            ("/v1/moderations", {"input": "a"}),  # the upstream would choose a model
            ("/v1/embeddings", {"model": "small", "input": "a", "fallbacks": ["openai_chat/m"]}),
            ("/v1/embeddings", {"model": "small", "input": "a", "api_base": "http://x"}),
        ):
            status, _, data = await post(gateway.url, path, body, bearer)
            assert 400 <= status < 404, (status, data)
        status, _, _ = await post(gateway.url, "/v1/embeddings", {"model": "openai_chat/m"})
        assert status == 401
        assert upstream.requests == []


@run
async def test_requests_count_for_the_limits_of_the_key():
    more = keys(requests_per_minute=2, tokens_per_minute=7)
    async with relaying(lambda _: document(EMBEDDINGS), more=more) as (gateway, _):
        bearer = {"authorization": f"Bearer {KEY}"}
        body = {"model": "openai_chat/m", "input": "a"}
        first, _, _ = await post(gateway.url, "/v1/embeddings", body, bearer)
        second, _, data = await post(gateway.url, "/v1/embeddings", body, bearer)
        assert (first, second) == (200, 429)
        assert b"tokens per minute" in data


@pytest.mark.parametrize(
    ("reply", "status", "message"),
    [
        (document({"error": {"message": "no such model", "type": "invalid_request_error"}}, 400), 400, "no such model"),
        (document({"error": {"message": f"bad key {UPSTREAM_KEY}", "type": "x"}}, 401), 502, "[key]"),
        (Reply(b"<html>", {"content-type": "text/html"}, 500), 502, ""),
        (Reply(b"", {"location": "http://elsewhere"}, 302), 502, "redirects"),
    ],
)
@run
async def test_errors_of_the_upstream_reach_the_client(reply, status, message):
    async with relaying(lambda _: reply) as (gateway, _):
        answer = await _post(gateway, {"model": "openai_chat/m", "input": "a"})
        fault = expect_error(answer, "openai_chat", status)
        assert message in fault.message
        assert gateway.turns[0].error is not None


@run
async def test_transient_failure_is_retried_at_another_target():
    def answer(received):
        is_first = received.document["model"] == "a"
        return document({"error": {"message": "busy"}}, 503) if is_first else document(EMBEDDINGS)

    models = {"m": {"upstream": "openai_chat", "model": "a", "fallbacks": ["n"]}, "n": {"upstream": "openai_chat"}}
    async with relaying(answer, more={"models": models}) as (gateway, upstream):
        status, _, _ = await post(gateway.url, "/v1/embeddings", {"model": "m", "input": "a"})
        assert status == 200
        assert [received.document["model"] for received in upstream.requests] == ["a", "n"]
        assert gateway.turns[0].attempts == 2


@run
async def test_wrong_method_unknown_path_and_wrong_wire():
    async with relaying(lambda _: document(EMBEDDINGS), ("openai_chat", "anthropic")) as (gateway, upstream):
        assert (await send("GET", f"{gateway.url}/v1/embeddings"))[0] == 405
        assert (await post(gateway.url, "/v1/ocr", {"model": "openai_chat/m"}))[0] == 404
        status, _, data = await post(gateway.url, "/v1/audio/speech", {"model": "anthropic/m", "input": "a"})
        assert status == 400 and b"anthropic" in data
        assert (await post(gateway.url, "/v1/embeddings", {"input": "a"}))[0] == 400
        assert (await post(gateway.url, "/v1/embeddings", b"{"))[0] == 400
        assert upstream.requests == []


@run
async def test_further_paths_are_those_of_the_settings():
    more = {"relay": {"paths": ["POST /v1/ocr*"]}}
    async with relaying(lambda received: document({"path": received.path}), more=more) as (gateway, _):
        status, _, data = await post(gateway.url, "/v1/ocr/fast?x=1", {"model": "openai_chat/m"})
        assert (status, json.loads(data)) == (200, {"path": "/ocr/fast"})
        for path in ("/v1/ocr/../files", "/v1/ocr/%2e%2e/files", "/v1/ocr//x"):
            assert (await post(gateway.url, path, {"model": "openai_chat/m"}))[0] == 404


@pytest.mark.parametrize(
    ("path", "headers", "wire", "expected"),
    [
        ("/v1beta/models/imagen-4:predict", {}, "gemini", "/v1beta/models/imagen-4:predict"),
        ("/v1/models/imagen-4:predict", {"x-goog-api-key": "x"}, "gemini", "/v1/models/imagen-4:predict"),
        ("/v1x/ocr", {}, "openai_chat", "/v1x/ocr"),
        ("/v1/skills", {"anthropic-version": "2023-06-01"}, "anthropic", "/v1/skills"),
    ],
)
@run
async def test_version_of_a_further_path_is_kept(path, headers, wire, expected):
    more = {"relay": {"paths": ["POST /v1*"]}}
    async with relaying(lambda received: document({"path": received.path}), (wire,), more) as (gateway, _):
        status, _, data = await post(gateway.url, path, {"instances": []}, headers)
        assert (status, json.loads(data)) == (200, {"path": expected})


@run
async def test_key_for_some_models_cannot_use_further_paths():
    more = {"relay": {"paths": ["POST /v1*"]}, "keys": {"small": {"hash": hash_key("sk-small"), "models": ["m"]}}}
    async with relaying(lambda _: document({}), ("openai_chat", "gemini"), more) as (gateway, upstream):
        for path in ("/v1/ocr?model=other", "/v1beta/models/other:predict"):
            body = {"model": "m"}
            status, _, _ = await post(gateway.url, path, body, {"authorization": "Bearer sk-small"})
            assert status == 403
        assert upstream.requests == []


@run
async def test_relay_can_be_disabled():
    async with relaying(lambda _: document(EMBEDDINGS), more={"relay": {"enabled": False}}) as (gateway, upstream):
        assert (await post(gateway.url, "/v1/embeddings", {"model": "openai_chat/m"}))[0] == 404
        assert upstream.requests == []


@run
async def test_native_endpoints_of_gemini_and_ollama():
    def answer(received):
        return document({"path": received.path, "body": received.document, "prompt_eval_count": 5})

    async with relaying(answer, ("gemini", "ollama")) as (gateway, upstream):
        part = {"model": "models/other", "content": {"parts": [{"text": "a"}]}}
        path = "/v1beta/models/gemini/embed-2:batchEmbedContents"
        status, _, data = await post(gateway.url, path, {"requests": [part]})
        assert status == 200
        found = json.loads(data)
        assert found["path"] == "/v1beta/models/embed-2:batchEmbedContents"
        assert found["body"]["requests"][0]["model"] == "models/embed-2"
        assert upstream.requests[0].headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
        status, _, data = await post(gateway.url, "/api/embed", {"model": "ollama/e", "input": "a"})
        assert (status, json.loads(data)["path"]) == (200, "/api/embed")
        assert gateway.turns[1].usage.input == 5


async def _post(gateway, body):
    return Answer(*await post(gateway.url, "/v1/embeddings", body))
