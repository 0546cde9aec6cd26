"""The headers of an answer that describe the upstream: its name and model, its rate limits, its request id."""

from __future__ import annotations

import pytest

from hostile import SECRET, TEXT_ANSWER, body_of, path_of, post, run
from serving import WIRES, serving, upstream_rows
from toolwire import Request
from toolwire.ir.text import to_bytes
from toolwire.testing import RawReply, Upstream
from toolwire.wire import get

LIMITS = {
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-requests": "6m0s",
    "anthropic-ratelimit-requests-reset": "2026-11-17T00:00:00Z",
}
REQUEST_ID = "req_0123"


def answer_with(headers, status=200):
    """An answer of an OpenAI Chat upstream, or an error of any."""
    document = get("openai_chat").encode_response(TEXT_ANSWER, Request()).body
    error = {"error": {"message": "slow down", "type": "rate_limit_error"}}
    body = to_bytes(document if status == 200 else error)
    return RawReply(body, status, {"content-type": "application/json", **headers})


async def ask(reply, front, wire, *, stream=False, model=None):
    async with Upstream(reply) as upstream:
        document = {"upstreams": upstream_rows(upstream.url, key_env="KEY")}
        async with serving(document, environment={"KEY": SECRET}) as gateway:
            model = model or f"{wire}/m"
            return await post(gateway, path_of(front, model, stream=stream), body_of(front, model=model, stream=stream))


@pytest.mark.finding("GA14")
@pytest.mark.parametrize("front", WIRES)
@run
async def test_limits_and_request_id_of_the_upstream_are_forwarded(front):
    reply = answer_with({**LIMITS, "x-request-id": REQUEST_ID, "x-secret": "1", "set-cookie": "a=b"})
    answer = await ask(reply, front, "openai_chat")
    assert {name: answer.headers.get(name) for name in LIMITS} == LIMITS
    assert answer.headers["x-toolwire-upstream-request-id"] == REQUEST_ID != answer.headers["x-request-id"]
    assert answer.headers["x-toolwire-upstream"] == "openai_chat" and answer.headers["x-toolwire-model"] == "m"
    assert not {"x-secret", "set-cookie"} & set(answer.headers)


@pytest.mark.finding("GA14")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("front", WIRES)
@run
async def test_stream_names_its_upstream_and_model(front, wire):
    answer = await ask(TEXT_ANSWER, front, wire, stream=True)
    assert (answer.headers["x-toolwire-upstream"], answer.headers["x-toolwire-model"]) == (wire, "m")


@pytest.mark.finding("GA14")
@run
async def test_error_has_the_limits_of_the_upstream():
    reply = answer_with({**LIMITS, "request-id": REQUEST_ID}, 429)
    answer = await ask(reply, "openai_chat", "anthropic")
    assert answer.status == 429 and {name: answer.headers.get(name) for name in LIMITS} == LIMITS
    assert answer.headers["x-toolwire-upstream-request-id"] == REQUEST_ID
    assert answer.headers["x-toolwire-upstream"] == "anthropic"


@pytest.mark.finding("GA14")
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_headers_are_those_of_the_target_that_answered(stream):
    refusal = RawReply(b"{}", 503, {**LIMITS, "x-request-id": "of-the-first"})
    async with Upstream(refusal) as first, Upstream(TEXT_ANSWER) as second:
        document = {
            "upstreams": {
                "a": {"base_url": first.url, "wire": "openai_chat", "retries": 0},
                "b": {"base_url": second.url, "wire": "anthropic", "retries": 0},
            },
            "models": {"m": {"upstream": "a", "fallbacks": ["n"]}, "n": {"upstream": "b", "model": "x"}},
        }
        async with serving(document) as gateway:
            body = body_of("openai_chat", model="m", stream=stream)
            answer = await post(gateway, path_of("openai_chat"), body)
    assert (answer.headers["x-toolwire-upstream"], answer.headers["x-toolwire-model"]) == ("b", "x")
    assert not set(LIMITS) & set(answer.headers) and "x-toolwire-upstream-request-id" not in answer.headers


@pytest.mark.finding("GA14")
@run
async def test_hostile_headers_of_an_upstream_are_not_forwarded():
    hostile = {
        "x-ratelimit-limit-key": f"the key is {SECRET}",
        "x-ratelimit-limit-long": "x" * 5000,
        "x-ratelimit-limit-odd": "caf\xe9",
        **{f"x-ratelimit-limit-{number}": "1" for number in range(100)},
        "x-request-id": SECRET,
    }
    answer = await ask(answer_with(hostile), "openai_chat", "openai_chat")
    forwarded = [name for name in answer.headers if "ratelimit" in name]
    assert 0 < len(forwarded) <= 32 and all(answer.headers[name] == "1" for name in forwarded)
    assert "x-toolwire-upstream-request-id" not in answer.headers


@pytest.mark.finding("GA14")
@run
async def test_name_that_a_client_chose_is_encoded():
    answer = await ask(TEXT_ANSWER, "openai_chat", "openai_chat", model="openai_chat/a b\r\nx-evil: 1é")
    assert answer.headers["x-toolwire-model"] == "a%20b%0D%0Ax-evil:%201%C3%A9" and "x-evil" not in answer.headers
