"""Keys as real clients send them, and what each protocol says to those who may not."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest

from plain_http import Http
from serving import serving, upstream_rows
from tables import every_case
from toolwire.gateway import Gateway
from toolwire.gateway.config.settings import ServerRow, Settings
from toolwire.gateway.keys import hash_key
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text
from toolwire.ir.response import Response, Stop, Usage
from toolwire.testing.upstream import RawReply, Upstream
from toolwire.wire import get

KEY = "sk-tw-of-ann"
MESSAGES = [{"role": "user", "content": "hi"}]
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
FRONTS = {
    "openai_chat": ("/v1/chat/completions", {"messages": MESSAGES}),
    "openai_responses": ("/v1/responses", {"input": "hi"}),
    "anthropic": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}),
    "gemini": ("/v1beta/models/{model}:generateContent", GEMINI),
    "ollama": ("/api/chat", {"messages": MESSAGES, "stream": False}),
}
AUTH = {
    "authorization": ({"authorization": f"Bearer {KEY}"}, ""),
    "authorization, in small letters": ({"authorization": f"bearer  {KEY}"}, ""),
    "x-api-key": ({"x-api-key": KEY}, ""),
    "x-goog-api-key": ({"x-goog-api-key": KEY}, ""),
    "api-key": ({"api-key": KEY}, ""),
    "?key=": ({}, f"?key={KEY}"),
    "two, of which one is ours": ({"authorization": "Bearer of-another", "x-api-key": KEY}, ""),
}
WRONG = {
    "none": ({}, ""),
    "empty": ({"authorization": "Bearer "}, ""),
    "unknown": ({"x-api-key": "sk-tw-of-nobody"}, ""),
    "almost": ({"x-api-key": KEY[:-1]}, ""),
    "its hash": ({"x-api-key": hash_key(KEY)}, ""),
    "no bearer": ({"authorization": f"Basic {KEY}"}, ""),
    "in the query": ({}, "?key=sk-tw-of-nobody"),
    "not ASCII": ({"x-api-key": "schlüssel"}, "?key=%00%ff"),
}


def hello(**usage):
    return Response(parts=(Text("Hello"),), stop=Stop("stop"), usage=Usage(**usage) if usage else Usage(7, 5))


@asynccontextmanager
async def gateway_for(*script, **limits):
    async with Upstream(*script) as upstream, Http() as http:
        models = {name: {"upstream": "openai_chat", "model": "m"} for name in ("small", "large", "huge")}
        keys = {"ann": {"hash": hash_key(KEY), **limits}, "bob": {"hash": hash_key("sk-tw-of-bob")}}
        async with serving({"upstreams": upstream_rows(upstream.url), "models": models, "keys": keys}) as gateway:
            yield gateway, http, upstream


async def ask(gateway, http, front, model="small", headers=None, query="", **more):
    path, body = FRONTS[front]
    url = gateway.url + path.format(model=model) + query
    return await http.post(url, {"model": model, **body, **more}, {"x-api-key": KEY} if headers is None else headers)


def fault_of(front, reply):
    return get(front).decode_error(reply.status, reply.json(), reply.headers)


@pytest.mark.one_in(5)
@pytest.mark.case("19")
@pytest.mark.parametrize("how", AUTH)
@pytest.mark.parametrize("front", FRONTS)
def test_key_is_accepted_in_every_header_that_clients_send(front, how):
    async def run():
        async with gateway_for(hello()) as (gateway, http, upstream):
            headers, query = AUTH[how]
            reply = await ask(gateway, http, front, headers=headers, query=query)
            assert reply.status == 200, reply.text
            assert [turn.caller for turn in gateway.turns] == ["ann"]
            assert KEY not in str(upstream.requests)  # ours, and not the upstream's business

    asyncio.run(run())


@pytest.mark.one_in(5)
@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("front", FRONTS)
def test_request_without_a_valid_key_is_rejected(front, how):
    async def run():
        async with gateway_for(hello()) as (gateway, http, upstream):
            headers, query = WRONG[how]
            reply = await ask(gateway, http, front, headers=headers, query=query)
            assert (reply.status, fault_of(front, reply).kind) == (401, "authentication")
            assert KEY not in reply.text
            assert not upstream.requests

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/models", "/v1beta/models", "/api/tags", "/v1/models/small", "/metrics"])
def test_only_health_endpoints_are_open_without_a_key(path):
    async def run():
        async with gateway_for() as (gateway, http, _):
            assert (await http.get(gateway.url + path)).status == 401
            for probe in ("/health", "/ready", "/"):
                assert (await http.get(gateway.url + probe)).status == 200

    asyncio.run(run())


@pytest.mark.parametrize("front", FRONTS)
def test_key_is_limited_to_its_models(front):
    async def run():
        async with gateway_for(hello(), hello(), models=["sm*", "large"]) as (gateway, http, upstream):
            assert (await ask(gateway, http, front, "small")).status == 200
            assert (await ask(gateway, http, front, "large")).status == 200
            for model in ("huge", "anthropic/m", "nowhere"):
                reply = await ask(gateway, http, front, model)
                assert (reply.status, fault_of(front, reply).kind) == (403, "permission")
            assert len(upstream.requests) == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "headers", "names"),
    [
        ("/v1/models", {}, lambda body: [one["id"] for one in body["data"]]),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, lambda body: [one["id"] for one in body["data"]]),
        ("/v1beta/models", {}, lambda body: [one["name"].removeprefix("models/") for one in body["models"]]),
        ("/api/tags", {}, lambda body: [one["name"] for one in body["models"]]),
    ],
)
def test_model_lists_contain_only_the_models_of_the_key(path, headers, names):
    async def run():
        async with gateway_for(models=["sm*", "large"]) as (gateway, http, _):
            mine = await http.get(gateway.url + path, {**headers, "x-api-key": KEY})
            all_there_are = await http.get(gateway.url + path, {**headers, "x-api-key": "sk-tw-of-bob"})
            assert names(mine.json()) == ["large", "small"]
            assert names(all_there_are.json()) == ["huge", "large", "small"]
            assert (await http.get(gateway.url + "/v1/models/huge", {"x-api-key": KEY})).status == 403

    asyncio.run(run())


@pytest.mark.parametrize("front", FRONTS)
def test_request_limit_of_a_key_returns_429(front):
    async def run():
        async with gateway_for(hello(), hello(), hello(), requests_per_minute=2) as (gateway, http, upstream):
            began = time.monotonic()
            statuses = [(await ask(gateway, http, front)).status for _ in range(2)]
            reply = await ask(gateway, http, front)
            elapsed = time.monotonic() - began
            assert (*statuses, reply.status) == (200, 200, 429)
            assert fault_of(front, reply).kind == "rate_limit"
            assert 60 - elapsed <= fault_of(front, reply).retry_after <= 61
            assert 60 - elapsed <= int(reply.headers["retry-after"]) <= 61
            other = await ask(gateway, http, front, headers={"x-api-key": "sk-tw-of-bob"})
            assert other.status == 200
            assert len(upstream.requests) == 3

    asyncio.run(run())


@every_case("limit", ["tokens_per_minute", "tokens_per_day"])
@every_case("front", FRONTS)
def test_token_limit_of_a_key_returns_429(front, limit):
    async def run():
        async with gateway_for(*[hello(input=60, output=30)] * 2, **{limit: 100}) as (gateway, http, upstream):
            statuses = [(await ask(gateway, http, front)).status for _ in range(3)]
            assert statuses == [200, 200, 429]
            assert len(upstream.requests) == 2

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", ["openai_chat", "anthropic"])
def test_usage_is_estimated_when_the_upstream_reports_none(front, stream):
    """Chat streams say what they used only to those who ask: no way around a budget."""

    async def run():
        words = Response(parts=(Text("word " * 80),), stop=Stop("stop"))
        async with gateway_for(words, words, tokens_per_minute=100) as (gateway, http, _):
            assert (await ask(gateway, http, front, stream=stream)).status == 200
            [turn] = gateway.turns
            assert turn.is_estimated
            assert turn.usage.output == 100
            assert (await ask(gateway, http, front, stream=stream)).status == 429

    asyncio.run(run())


def test_usage_of_an_unstreamed_answer_to_a_stream_is_counted():
    async def run():
        body = b'{"id":"1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":90,"completion_tokens":20,"total_tokens":110}}'
        async with gateway_for(RawReply(body)) as (gateway, http, _):
            reply = await ask(gateway, http, "openai_chat", stream=True)
            assert "[DONE]" in reply.text
            assert gateway.turns[0].usage.total == 110
            assert not gateway.turns[0].is_estimated

    asyncio.run(run())


def test_a_request_that_fails_before_the_upstream_costs_no_tokens():
    async def run():
        async with gateway_for(hello(), tokens_per_minute=100) as (gateway, http, _):
            for _ in range(20):
                assert (await ask(gateway, http, "anthropic", messages=5)).status == 400
            assert (await ask(gateway, http, "openai_chat")).status == 200

    asyncio.run(run())


def test_duplicate_key_header_is_rejected():
    async def run():
        async with gateway_for() as (gateway, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
            writer.write(
                f"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\napi-key: a\r\napi-key: {KEY}\r\n\r\n".encode()
            )
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 400 ")

    asyncio.run(run())


ROUTING = [
    "models",
    "route",
    "provider",
    "fallbacks",
    "preset",
    "plugins",
    "providerOptions",
    "extra_body",
    "model_list",
    "MODEL",  # servers in Go ignore case
    "Models",
    "model\u017f",  # U+017F is the letter s in another case, and U+212A is k
    "fallbac\u212as",
]


@pytest.mark.finding("SE5")
@every_case("padding", [0, 40_000], ids=["small", "large"])
@every_case("front", FRONTS)
def test_fields_that_choose_another_model_are_refused_for_a_key_with_some_models(front, padding):
    async def run():
        async with gateway_for(hello(), models=["small"]) as (gateway, http, upstream):
            path, document = FRONTS[front]
            url, headers = gateway.url + path.format(model="small"), {"x-api-key": KEY}
            for field in ROUTING:
                body = {"model": "small", **document, "metadata": {"x": "y" * padding}, field: ["huge"]}
                spellings = [
                    json.dumps(body, ensure_ascii=False),
                    json.dumps(body),
                    json.dumps(body, ensure_ascii=False).replace(f'"{field}"', f'"\\u00{ord(field[0]):x}{field[1:]}"'),
                ]
                for text in spellings:
                    reply = await http._send("POST", url, text.encode(), headers)
                    assert (reply.status, fault_of(front, reply).kind) == (403, "permission"), (field, reply.text)
                    assert f"{field} could choose another one" in reply.text
            assert not upstream.requests

    asyncio.run(run())


@pytest.mark.finding("SE5")
def test_fields_that_choose_a_model_pass_for_a_key_with_all_models():
    async def run():
        async with gateway_for(hello()) as (gateway, http, upstream):
            body = {"model": "small", "messages": MESSAGES, "models": ["huge"], "route": "fallback"}
            reply = await http.post(f"{gateway.url}/v1/chat/completions", body, {"x-api-key": KEY})
            assert reply.status == 200
            assert json.loads(upstream.requests[0].body)["models"] == ["huge"]

    asyncio.run(run())


METRICS_KEY = "sk-metrics-0123456789abcdef0123456789abcdef"


@pytest.mark.finding("SE6")
def test_metrics_need_a_key_of_their_own():
    async def run():
        async with Http() as http:
            settings = {"keys": {"ann": {"hash": hash_key(KEY)}}, "server": {"metrics_key_env": "METRICS_KEY"}}
            environment = {"METRICS_KEY": METRICS_KEY}
            async with serving(settings, environment=environment, metrics=lambda: b"toolwire_x 1\n") as gateway:
                url = f"{gateway.url}/metrics"
                for headers in (
                    {},
                    {"x-api-key": KEY},
                    {"x-api-key": METRICS_KEY[:-1]},
                    {"x-forwarded-for": "127.0.0.1"},
                ):
                    assert (await http.get(url, headers)).status == 401
                reply = await http.get(url, {"authorization": f"Bearer {METRICS_KEY}"})
                assert (reply.status, reply.text) == (200, "toolwire_x 1\n")
                reply = await http.get(f"{gateway.url}/v1/models", {"authorization": f"Bearer {METRICS_KEY}"})
                assert reply.status == 401

    asyncio.run(run())


@pytest.mark.finding("SE6")
def test_metrics_are_refused_for_client_keys_with_a_message_that_names_the_setting():
    async def run():
        async with Http() as http:
            settings = {"keys": {"ann": {"hash": hash_key(KEY)}}}
            async with serving(settings, metrics=lambda: b"toolwire_x 1\n") as gateway:
                reply = await http.get(f"{gateway.url}/metrics", {"x-api-key": KEY})
                assert reply.status == 403
                assert "metrics_key_env" in reply.text
                reply = await http.get(f"{gateway.url}/metrics")
                assert (reply.status, "metrics_key_env" in reply.text) == (401, True)

    asyncio.run(run())


@pytest.mark.finding("SE6")
def test_short_metrics_key_is_an_error_of_the_settings():
    with pytest.raises(ConfigError, match="metrics_key must have at least"):
        Gateway(Settings(server=ServerRow(metrics_key="short")), environment={})
