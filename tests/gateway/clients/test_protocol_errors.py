"""What a client is told, in the words of its own protocol."""

from __future__ import annotations

import json
import re

import pytest

from hostile import (
    CALL_ANSWER,
    TEXT_ANSWER,
    ask,
    body_of,
    decode_answer,
    exchange,
    expect_error,
    gateway_to,
    path_of,
    post,
    request_bytes,
    run,
)
from serving import WIRES
from toolwire.gateway.keys import hash_key
from toolwire.ir.response import Fault

# where the model's name stands, and which path lists the names
MODEL_LOCATIONS = {
    "anthropic": ("/model", "/v1/models"),
    "cohere": ("/model", "/v1/models"),
    "gemini": (None, "/v1beta/models"),
    "gemini_interactions": ("/model", "/v1beta/models"),
    "ollama": ("/model", "/api/tags"),
    "openai_chat": ("/model", "/v1/models"),
    "openai_responses": ("/model", "/v1/models"),
}


@pytest.mark.parametrize("front", WIRES)
@run
async def test_unknown_model_error_points_to_the_model_field(front):
    pointer, listing = MODEL_LOCATIONS[front]
    async with gateway_to() as (gateway, _):
        fault = expect_error(await post(gateway, path_of(front, "nobody"), body_of(front, model="nobody")), front, 404)
        there = "" if pointer is None else f" at {pointer}"
        rest = f"write UPSTREAM/MODEL, with an upstream of {', '.join(WIRES)}; GET {listing} lists the models"
        assert fault.message == f"unknown model 'nobody'{there} ({rest})"
        assert (await ask(gateway, front, wire="nowhere")).status == 404
        listed = await exchange(gateway, request_bytes(listing, b"", method="GET"))
        assert listed.status == 200


@pytest.mark.finding("NU5")
@run
async def test_unknown_model_error_lists_the_models_of_the_key():
    models = {f"m{number:02}": {"upstream": "openai_chat"} for number in range(30)} | {"hidden": {"upstream": "gemini"}}
    keys = {"narrow": {"hash": hash_key("sk-1"), "models": ["m*", "hiden"]}, "all": {"hash": hash_key("sk-2")}}
    async with gateway_to(document={"models": models, "keys": keys}) as (gateway, _):

        async def refusal(model, key):
            body = body_of("openai_chat", model=model)
            headers = {"authorization": f"Bearer {key}"}
            return (await post(gateway, path_of("openai_chat"), body, headers=headers)).body.decode()

        shown = await refusal("hiden", "sk-1")
        assert "available models: m00, m01, " in shown and "m19 and 10 more" in shown and "m20" not in shown
        assert "hidden" not in shown and "UPSTREAM/MODEL" not in shown
        assert "did you mean 'hidden'?" in await refusal("hiden", "sk-2")
        assert "does not allow the model 'gpt' (use a model of: m*, hiden)" in await refusal("gpt", "sk-1")


@pytest.mark.finding("NU5")
@pytest.mark.parametrize(
    "path", ["/v1/embedding", "/v1/chat/completion", "/v2beta/models/m:generateContent", "/api/generates"]
)
@run
async def test_unknown_path_error_lists_the_paths(path):
    async with gateway_to() as (gateway, _):
        answer = await exchange(gateway, request_bytes(path, b"{}"))
        assert answer.status == 404
        message = answer.body.decode()
        assert f"unknown path {path}" in message and "docs/" not in message
        for front in WIRES:
            assert f"POST {path_of(front, '{model}')}" in message
        for method, listed in re.findall(r"(GET|POST) (/\S+?)(?=[,;)])", message):
            assert (
                await exchange(gateway, request_bytes(listed.replace("{model}", "m"), b"", method=method))
            ).status != 404


@pytest.mark.parametrize(("path", "front"), [("/v1/models/nobody", "openai_chat"), ("/v1beta/models/nobody", "gemini")])
@run
async def test_unknown_model_in_the_path_is_not_found(path, front):
    async with gateway_to() as (gateway, _):
        fault = expect_error(await exchange(gateway, request_bytes(path, b"", method="GET")), front, 404)
        assert fault.message.startswith("unknown model 'nobody' (")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("said", [TEXT_ANSWER, CALL_ANSWER], ids=["words", "call"])
@run
async def test_first_chat_chunk_contains_the_assistant_role(wire, said):
    async with gateway_to(said) as (gateway, _):
        answer = await ask(gateway, "openai_chat", wire=wire, stream=True)
        first = answer.body.partition(b"\n\n")[0]
        assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"]["role"] == "assistant"
        assert answer.body.count(b'"role"') == 1


BILLING_ERRORS = {
    "anthropic": (402, "billing_error"),
    "cohere": (402, ""),
    "gemini": (400, "FAILED_PRECONDITION"),
    "gemini_interactions": (402, "payment_required"),
    "ollama": (402, ""),
    "openai_chat": (429, "insufficient_quota"),
    "openai_responses": (429, "insufficient_quota"),
}


@pytest.mark.parametrize("front", WIRES)
@pytest.mark.parametrize("stream", [False, True])
@run
async def test_billing_error_is_not_retried_and_is_reported_as_such(front, stream):
    broke = Fault("billing", "You exceeded your current quota", 429, "insufficient_quota")
    async with gateway_to(broke, broke, broke, rows={"retries": 2}) as (gateway, provider):
        answer = await ask(gateway, front, stream=stream)
        status, word = BILLING_ERRORS[front]
        fault = expect_error(answer, front, status)
        assert word.encode() in answer.body and "refuses the gateway" in fault.message
        assert answer.headers["x-should-retry"] == "false"
        assert len(provider.requests) == 1  # it does not pass after a second
    assert gateway.turns[0].failures == (("openai_chat", "billing"),)


@run
async def test_billing_error_falls_back_to_another_upstream():
    broke = Fault("billing", "You exceeded your current quota", 429, "insufficient_quota")
    models = {"m": {"upstream": "openai_chat", "fallbacks": ["n"]}, "n": {"upstream": "anthropic"}}
    async with gateway_to(broke, TEXT_ANSWER, document={"models": models}) as (gateway, provider):
        answer = await post(gateway, path_of("gemini", "m"), body_of("gemini", model="m"))
        assert decode_answer(answer, "gemini").text == TEXT_ANSWER.text
        assert [heard.wire for heard in provider.requests] == ["openai_chat", "anthropic"]
