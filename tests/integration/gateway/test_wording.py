"""What a client is told, in the words of its own protocol."""

from __future__ import annotations

import json

import pytest
from gateway.hostile import ONE, WORDS, ask, body_of, exchange, gateway_to, path_of, post, refused, request_bytes, run
from gateway.serving import WIRES

# where the model's name stands, and which path lists the names
PLACES = {
    "anthropic": ("/model", "/v1/models"),
    "gemini": (None, "/v1beta/models"),
    "ollama": ("/model", "/api/tags"),
    "openai_chat": ("/model", "/v1/models"),
    "openai_responses": ("/model", "/v1/models"),
}


@pytest.mark.parametrize("front", WIRES)
@run
async def test_an_unknown_model_is_missed_where_its_name_stands(front):
    pointer, listing = PLACES[front]
    async with gateway_to() as (gateway, _):
        fault = refused(await post(gateway, path_of(front, "nobody"), body_of(front, model="nobody")), front, 404)
        there = "" if pointer is None else f" at {pointer}"
        assert fault.message == f"no model is called 'nobody' here{there} (`{listing}` lists what there is)"
        assert (await ask(gateway, front, wire="nowhere")).status == 404
        listed = await exchange(gateway, request_bytes(listing, b"", method="GET"))
        assert listed.status == 200


@pytest.mark.parametrize(("path", "front"), [("/v1/models/nobody", "openai_chat"), ("/v1beta/models/nobody", "gemini")])
@run
async def test_looking_up_a_model_in_the_path(path, front):
    async with gateway_to() as (gateway, _):
        fault = refused(await exchange(gateway, request_bytes(path, b"", method="GET")), front, 404)
        assert fault.message.startswith("no model is called 'nobody' here (")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("said", [WORDS, ONE], ids=["words", "call"])
@run
async def test_the_first_chunk_of_a_chat_says_who_speaks(wire, said):
    async with gateway_to(said) as (gateway, _):
        answer = await ask(gateway, "openai_chat", wire=wire, stream=True)
        first = answer.body.partition(b"\n\n")[0]
        assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"]["role"] == "assistant"
        assert answer.body.count(b'"role"') == 1
