"""Details of answers and errors on which clients of each wire rely."""

import asyncio
import json
import re
import time

import msgspec
import pytest

from hostile import TEXT_ANSWER, ask, gateway_to, run
from plain_http import Http
from serving import serving, upstream_rows
from toolwire.gateway.keys import hash_key
from toolwire.ir.parts import Text
from toolwire.ir.response import Response, Stop, Usage
from toolwire.testing.upstream import Upstream

ANSWER = Response(id="x", model="m", parts=(Text("Hello."),), stop=Stop("stop"), usage=Usage(1, 1))
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


async def post(document, path, body, headers=None):
    async with serving(document) as gateway, Http(headers or {}) as http:
        return await http.post(gateway.url + path, body)


@pytest.mark.finding("G16")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "ollama"])
def test_answers_have_a_time_although_the_upstream_gives_none(wire, stream):
    path, body, field = {
        "openai_chat": ("/v1/chat/completions", CHAT, "created"),
        "openai_responses": ("/v1/responses", {"input": "hi"}, "created_at"),
        "ollama": ("/api/chat", CHAT, "created_at"),
    }[wire]

    async def ask():
        async with Upstream(ANSWER) as upstream:
            document = {"upstreams": upstream_rows(upstream.url)}
            return await post(document, path, {**body, "model": "anthropic/m", "stream": stream})

    before = int(time.time())
    text = asyncio.run(ask()).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if "{" in line] if stream else [text]
    document = json.loads(lines[0])
    created = document.get("response", document)[field]
    if isinstance(created, str):
        assert not created.startswith("1970")
    else:
        assert before <= created <= int(time.time())


@pytest.mark.finding("G21")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_unknown_model_has_the_code_and_parameter_of_openai(path):
    body = {"model": "nosuch", **CHAT, "input": "hi"}
    reply = asyncio.run(post({"upstreams": upstream_rows("http://127.0.0.1:9")}, path, body))
    error = reply.json()["error"]
    assert (reply.status, error["code"], error["param"]) == (404, "model_not_found", "model")


@pytest.mark.finding("G21")
def test_unknown_key_has_the_code_of_openai():
    document = {"upstreams": upstream_rows("http://127.0.0.1:9"), "keys": {"ann": {"hash": hash_key("k")}}}
    reply = asyncio.run(post(document, "/v1/chat/completions", {"model": "openai_chat/m", **CHAT}, {"authorization": "Bearer x"}))  # fmt: skip
    assert (reply.status, reply.json()["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.finding("G21")
def test_unknown_path_is_not_an_unknown_model():
    reply = asyncio.run(post({"upstreams": upstream_rows("http://127.0.0.1:9")}, "/v1/nosuch", {}))
    assert reply.status == 404
    assert "model_not_found" not in reply.text


@pytest.mark.finding("G21")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", ["anthropic", "openai_chat"])
def test_address_of_an_upstream_does_not_reach_clients(wire, stream):
    document = {"upstreams": upstream_rows("http://127.0.0.1:9")}
    reply = asyncio.run(post(document, "/v1/chat/completions", {"model": f"{wire}/m", "stream": stream, **CHAT}))
    assert reply.status == 502 or "error" in reply.text
    assert "127.0.0.1" not in reply.text
    assert ":9" not in reply.text
    assert wire in reply.text  # the upstream's name in the settings


@pytest.mark.finding("G21")
def test_pointer_of_an_invalid_field_is_written_as_openai_does():
    body = {"model": "anthropic/m", "messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}
    reply = asyncio.run(post({"upstreams": upstream_rows("http://127.0.0.1:9")}, "/v1/chat/completions", body))
    assert (reply.status, reply.json()["error"]["param"]) == (400, "messages[0].content[0].text")


UPSTREAM_IDS = {"openai_chat": "chatcmpl-A1", "openai_responses": "resp_A1", "anthropic": "msg_A1", "gemini": "A1", "ollama": ""}  # fmt: skip
ID_FORMS = {"openai_chat": r"chatcmpl-\w+", "openai_responses": r"resp_\w+", "anthropic": r"msg_\w+"}


def answer_ids(front, text):
    """Return the ids of the answer, and of the items of a Responses answer, in all events."""
    documents = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith(("data: {", "{"))]  # fmt: skip
    answers = [document.get("response", document.get("message", document)) for document in documents]
    found = {answer["id"] for answer in answers if isinstance(answer.get("id"), str)}
    items = {item["id"] for answer in answers for item in answer.get("output", ())}
    return found, items | {document["item_id"] for document in documents if "item_id" in document}


@pytest.mark.finding("GA13")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("front", ID_FORMS)
@pytest.mark.parametrize("wire", UPSTREAM_IDS)
@run
async def test_id_of_an_answer_has_the_form_of_the_clients_wire(wire, front, stream):
    scripted = [msgspec.structs.replace(TEXT_ANSWER, id=UPSTREAM_IDS[wire])] * 2
    async with gateway_to(*scripted) as (gateway, _):
        texts = [(await ask(gateway, front, wire=wire, stream=stream)).body.decode() for _ in scripted]
    (found, items), (others, _) = [answer_ids(front, text) for text in texts]
    assert len(found) == 1 and re.fullmatch(ID_FORMS[front], *found)
    assert len(items) == (front == "openai_responses") and all(re.fullmatch(r"msg_\w+", item) for item in items)
    assert (found == others) == bool(UPSTREAM_IDS[wire])  # an upstream without ids gets a new one for every answer
