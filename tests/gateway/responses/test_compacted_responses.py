"""Compacted conversations of OpenAI's own client, over upstreams of every wire."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import openai
import pytest

from hostile import run
from responses_sdk import WEATHER, WIRES, call_answer, client_of, text_answer, world
from serving import serving, upstream_rows
from toolwire.gateway.keys import hash_key
from toolwire.ir.response import Fault
from toolwire.testing import PartialReply, RawReply, Upstream
from waiting import until

SUMMARY = "The user asked for the weather of Oslo; it is -3 degrees."
TURN = [
    {"role": "user", "content": "Weather in Oslo?"},
    {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city":"Oslo"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "-3"},
    {"role": "assistant", "content": "It is cold."},
]


@pytest.mark.parametrize("wire", WIRES)
@run
async def test_summary_replaces_the_conversation(wire):
    async with world(text_answer(SUMMARY), text_answer("Yes."), store=None) as at:
        compacted = await at.client.responses.compact(model=f"{wire}/m", input=TURN, instructions="Be brief.")
        assert compacted.object == "response.compaction" and compacted.usage.output_tokens == 5
        message, item = compacted.output
        assert message.content[0].text == "Weather in Oslo?" and item.type == "compaction"
        sent = [text for _, text in at.history()]
        assert sent[:2] == ["Be brief.", "Weather in Oslo?"] and "-3" in sent and "Summarise" in sent[-1]
        window = [part.model_dump(exclude_none=True, warnings=False) for part in compacted.output]
        await at.client.responses.create(
            model=f"{wire}/m", input=[*window, {"role": "user", "content": "Sure?"}], tools=[WEATHER]
        )
        assert b"TOOLWIRE-SUMMARY" not in at.upstream.requests[1].body
        texts = [text for _, text in at.history()]
        assert texts == ["Weather in Oslo?", f"[summary of the conversation so far]\n{SUMMARY}", "Sure?"]
        assert [turn.usage.output for turn in at.gateway.turns if turn.upstream] == [5, 5]


@run
async def test_stored_conversation_is_compacted(tmp_path):
    async with world(call_answer(), text_answer(SUMMARY), store=str(tmp_path / "responses.db")) as at:
        first = await at.client.responses.create(model="anthropic/m", input="Weather in Oslo?", tools=[WEATHER])
        result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "-3"}
        compacted = await at.client.responses.compact(model="gemini/m", input=[result], previous_response_id=first.id)
        message, item = compacted.output
        assert message.content[0].text == "Weather in Oslo?" and item.type == "compaction"
        assert [text for _, text in at.history()][:3] == ["Weather in Oslo?", "get_weather", "-3"]
        with pytest.raises(openai.NotFoundError):
            await at.clients["bob"].responses.compact(model="gemini/m", previous_response_id=first.id)


@pytest.mark.parametrize(
    ("fields", "reply", "error"),
    [
        ({"input": TURN}, Fault("rate_limit", "slow down", 429), openai.RateLimitError),
        ({"input": TURN}, text_answer(" "), openai.InternalServerError),
        ({}, text_answer("x"), openai.BadRequestError),
        ({"input": 7}, text_answer("x"), openai.BadRequestError),
        ({"input": [7]}, text_answer("x"), openai.BadRequestError),
        ({"input": TURN, "model": "nothing"}, text_answer("x"), openai.NotFoundError),
        ({"input": TURN, "model": None}, text_answer("x"), openai.BadRequestError),
    ],
)
@run
async def test_failure_has_the_status_of_its_cause(fields, reply, error):
    async with world(reply, reply, reply, store=None) as at:
        with pytest.raises(error):
            await at.client.responses.compact(**{"model": "anthropic/m", **fields})


@run
async def test_changed_summary_is_refused():
    async with world(text_answer("x"), store=None) as at:
        item = {"type": "compaction", "encrypted_content": "TOOLWIRE-SUMMARY~%%"}
        with pytest.raises(openai.BadRequestError, match="summary") as caught:
            await at.client.responses.create(model="anthropic/m", input=[item, {"role": "user", "content": "x"}])
        assert caught.value.body["param"] == "input[0].encrypted_content" or "/input/0" in str(caught.value)


COMPACTED = {
    "id": "resp_1",
    "object": "response.compaction",
    "created_at": 0,
    "output": [],
    "usage": {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10},
}


@asynccontextmanager
async def storing_upstream(*replies, document=None, **key):
    """A gateway in front of an upstream that stores responses, with the keys ann and bob."""
    async with Upstream(*replies) as upstream:
        rows = upstream_rows(upstream.url)
        rows["openai_responses"]["keeps_responses"] = True
        keys = {name: {"hash": hash_key(f"sk-{name}"), **key} for name in ("ann", "bob")}
        models = {"cheap": {"upstream": "openai_responses", "model": "m"}}
        async with serving({"upstreams": rows, "keys": keys, "models": models, **(document or {})}) as gateway:
            clients = [client_of(gateway.url, f"sk-{name}") for name in ("ann", "bob")]
            yield upstream, *clients
            for client in clients:
                await client.close()


def reply_of(document):
    return RawReply(json.dumps(document).encode(), headers={"content-type": "application/json"})


@run
async def test_upstream_that_stores_responses_compacts_them_itself():
    async with storing_upstream(reply_of(COMPACTED)) as (upstream, ann, _):
        assert (await ann.responses.compact(model="cheap", input=TURN)).id == "resp_1"
        (received,) = upstream.requests
        assert received.path.endswith("/responses/compact") and json.loads(received.body)["model"] == "m"


@run
async def test_compaction_at_the_upstream_has_the_limits_of_its_key():
    """Only known fields are sent, other clients' responses are not found, and the tokens are charged."""
    stored = reply_of({"id": "resp_ann", "object": "response", "status": "completed", "model": "m", "output": []})
    async with storing_upstream(stored, reply_of(COMPACTED), models=["cheap"], tokens_per_day=10) as (
        upstream,
        ann,
        bob,
    ):
        await ann.responses.create(model="cheap", input="hi")
        with pytest.raises(openai.NotFoundError):
            await bob.responses.compact(model="cheap", previous_response_id="resp_ann")
        with pytest.raises(openai.PermissionDeniedError):
            await bob.responses.compact(model="openai_responses/m", input="hi")
        assert len(upstream.requests) == 1
        more = {"models": ["expensive"], "api_base": "http://127.0.0.1:1"}
        await bob.responses.compact(model="cheap", input="hi", extra_body=more)
        assert json.loads(upstream.requests[1].body) == {"model": "m", "input": "hi"}
        with pytest.raises(openai.RateLimitError):
            await bob.responses.compact(model="cheap", input="hi")
        assert len(upstream.requests) == 2


@run
async def test_summary_with_an_unknown_part_without_text_is_used():
    part = {"type": "output_text", "annotations": []}
    content = [{"type": "chart", "text": None}, {**part, "text": SUMMARY}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    answer = {"id": "resp_1", "object": "response", "created_at": 0, "model": "m", "status": "completed"}
    reply = RawReply(json.dumps({**answer, "output": [item]}).encode(), headers={"content-type": "application/json"})
    async with world(reply, text_answer("Yes."), store=None) as at:
        compacted = await at.client.responses.compact(model="openai_responses/m", input=TURN)
        assert [item.type for item in compacted.output] == ["message", "compaction"]


@pytest.mark.parametrize(
    "usage", [b'{"total_tokens":-5}', b'{"total_tokens":1000000000000000}', b"[" * 100_000 + b"]" * 100_000]
)
@run
async def test_compaction_with_an_unusual_usage_is_returned(usage):
    answer = b'{"id":"resp_1","object":"response.compaction","created_at":0,"output":[],"usage":%b}' % usage
    reply = RawReply(answer, headers={"content-type": "application/json"})
    async with storing_upstream(reply, reply_of(COMPACTED), tokens_per_day=10) as (_, ann, _):
        raw = await ann.responses.with_raw_response.compact(model="cheap", input="hi")
        assert raw.http_response.content == answer
        await ann.responses.compact(model="cheap", input="hi")  # nothing was charged


@run
async def test_large_error_of_a_compaction_is_not_read():
    body = b'{"error":{"message":"%b","type":"x"}}' % (b"x" * 2_000_000)
    async with storing_upstream(RawReply(body, 429)) as (_, ann, _):
        with pytest.raises(openai.RateLimitError) as caught:
            await ann.responses.compact(model="cheap", input="hi")
        assert "xxx" not in str(caught.value)


@pytest.mark.parametrize("action", ["retrieve", "compact"])
@run
async def test_answer_of_the_upstream_counts_as_memory(action):
    stored = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": []}
    large = reply_of({**COMPACTED, "padding": "x" * 2_000_000})
    limits = {"memory": 2_000_000}
    async with storing_upstream(reply_of(stored), large, document={"limits": limits}) as (upstream, ann, _):
        await ann.responses.create(model="cheap", input="hi")
        with pytest.raises(openai.InternalServerError, match="memory"):
            if action == "retrieve":
                await ann.responses.retrieve("resp_1")
            else:
                await ann.responses.compact(model="cheap", input="hi")
        assert len(upstream.requests) == 2


@run
async def test_compaction_ends_with_its_client():
    """The request for the summary is logged as given up, and not as ended by the stop of the gateway."""
    async with world(PartialReply(text_answer(SUMMARY), None, "stall"), store=None) as at:
        compacting = asyncio.ensure_future(at.client.responses.compact(model="anthropic/m", input=TURN))
        await at.upstream.wait_for_requests()
        compacting.cancel()
        await at.upstream.disconnected()
        await until(lambda: len(at.gateway.turns) == 2)
        assert [(turn.status, turn.error) for turn in at.gateway.turns] == [(499, "client_gone")] * 2


@run
async def test_compaction_at_the_upstream_ends_with_its_client():
    """The upstream may bill it, so the size of the request is charged."""
    reply = PartialReply(reply_of(COMPACTED), None, "stall")
    async with storing_upstream(reply, reply_of(COMPACTED), tokens_per_day=10) as (upstream, ann, _):
        compacting = asyncio.ensure_future(ann.responses.compact(model="cheap", input="x" * 100))
        await upstream.wait_for_requests()
        compacting.cancel()
        await upstream.disconnected()
        with pytest.raises(openai.RateLimitError):
            await ann.responses.compact(model="cheap", input="hi")
