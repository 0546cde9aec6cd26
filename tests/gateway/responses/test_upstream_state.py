"""Upstreams that store responses themselves: ids pass unchanged, and later requests go to the same upstream."""

from __future__ import annotations

import json

import openai
import pytest
from msgspec.structs import replace

from hostile import run
from responses_sdk import create, text_answer, world
from serving import upstream_rows
from toolwire.gateway.config.settings import UpstreamRow
from toolwire.gateway.routing.upstreams import ConfiguredUpstream
from toolwire.testing import RawReply, Upstream

pytestmark = pytest.mark.finding("G5")
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
STORES = pytest.mark.parametrize("stores", [False, True], ids=["no store", "store"])


def two_keeping(first, second, **more):
    """Settings of a model with two upstreams that store responses, and another one at the first only."""
    rows = {
        name: {**upstream_rows(upstream.url)["openai_responses"], "keeps_responses": True}
        for name, upstream in (("one", first), ("two", second))
    }
    targets = [{"upstream": name, "model": "m"} for name in rows]
    return {"more_upstreams": rows, "models": {"both": {"targets": targets}}, **more}


def stored_answer(number):
    return replace(text_answer(f"answer {number}"), id=f"resp_{number}")


@MODES
@STORES
@run
async def test_id_passes_unchanged_and_pins_the_upstream(stream, stores, tmp_path):
    store = str(tmp_path / "responses.db") if stores else None
    answers = [stored_answer(number) for number in range(200)]
    async with (
        Upstream(*(replace(answer, id=f"{answer.id}a") for answer in answers)) as one,
        Upstream(*(replace(answer, id=f"{answer.id}b") for answer in answers)) as two,
        world(store=store, **two_keeping(one, two)) as at,
    ):
        rounds = 0
        while rounds < 4 or not (one.requests and two.requests):  # the order of the targets is random
            rounds += 1
            first = await create(at.client, stream=stream, model="both", input="Paris?")
            asked = one if first.id.endswith("a") else two
            second = await create(at.client, stream=stream, model="both", input="Oslo?", previous_response_id=first.id)
            body = json.loads(asked.requests[-1].body)
            assert body["previous_response_id"] == first.id and body["input"] == "Oslo?"
            assert second.id[-1] == first.id[-1]


@STORES
@run
async def test_stored_response_is_read_and_deleted_at_its_upstream(stores, tmp_path):
    store = str(tmp_path / "responses.db") if stores else None
    document = {"id": "resp_1", "object": "response", "from": "the upstream"}
    script = (
        stored_answer(1),
        RawReply(json.dumps(document).encode()),
        RawReply(b'{"object":"list","data":[],"first_id":"","last_id":"","has_more":false}'),
        RawReply(b'{"error":{"message":"gone there","type":"invalid_request_error"}}', 404),
        RawReply(b'{"id":"resp_1","object":"response","deleted":true}'),
    )
    async with Upstream(*script) as one, Upstream() as two, world(store=store, **two_keeping(one, two)) as at:
        for key in ("ann", "bob"):
            at.clients[key] = at.clients[key].with_options(default_query={"key": f"sk-{key}"})
        first = await at.client.responses.create(model="one/m", input="Paris?")
        bob = at.clients["bob"]
        for foreign in (bob.responses.retrieve(first.id), bob.responses.delete(first.id)):
            with pytest.raises(openai.NotFoundError):
                await foreign
        assert len(one.requests) == 1
        assert (await at.client.responses.retrieve(first.id)).model_extra["from"] == "the upstream"
        await at.client.responses.input_items.list(first.id, limit=7)
        assert [heard.path for heard in one.requests[1:]] == [
            "/responses/resp_1",
            "/responses/resp_1/input_items?limit=7",
        ]
        with pytest.raises(openai.NotFoundError) as caught:
            await at.client.responses.retrieve(first.id)
        assert "gone there" in str(caught.value)
        await at.client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(first.id)
        assert len(one.requests) == 5


@STORES
@run
async def test_another_keys_response_is_not_continued_at_the_upstream(stores, tmp_path):
    store = str(tmp_path / "responses.db") if stores else None
    async with Upstream(stored_answer(1)) as one, Upstream() as two, world(store=store, **two_keeping(one, two)) as at:
        first = await at.client.responses.create(model="one/m", input="Paris?")
        with pytest.raises(openai.NotFoundError) as caught:
            await at.clients["bob"].responses.create(model="one/m", input="?", previous_response_id=first.id)
        assert caught.value.code == "previous_response_not_found"
        assert len(one.requests) == 1


@STORES
@run
async def test_model_without_the_upstream_that_stores_the_response_is_refused(stores, tmp_path):
    store = str(tmp_path / "responses.db") if stores else None
    async with Upstream(stored_answer(1)) as one, Upstream() as two, world(store=store, **two_keeping(one, two)) as at:
        first = await at.client.responses.create(model="one/m", input="Paris?")
        for model in ("two/m", "anthropic/m"):
            with pytest.raises(openai.NotFoundError) as caught:
                await at.client.responses.create(model=model, input="?", previous_response_id=first.id)
            assert "stored by the upstream 'one'" in str(caught.value)
            assert caught.value.code == "previous_response_not_found"
        assert two.requests == at.upstream.requests == []


@run
async def test_store_false_pins_nothing(tmp_path):
    async with (
        Upstream(stored_answer(1)) as one,
        Upstream() as two,
        world(store=str(tmp_path / "responses.db"), **two_keeping(one, two)) as at,
    ):
        first = await at.client.responses.create(model="one/m", input="Paris?", store=False)
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(first.id)


@MODES
@run
async def test_conversation_of_the_gateway_continues_at_an_upstream_that_stores(stream, tmp_path):
    """A chain that the gateway stores stays the gateway's: the upstream gets all of it, and no foreign id."""
    async with (
        Upstream(stored_answer(1), stored_answer(2)) as one,
        Upstream() as two,
        world(text_answer("Rain."), store=str(tmp_path / "responses.db"), **two_keeping(one, two)) as at,
    ):
        first = await create(at.client, stream=stream, model="anthropic/m", input="Paris?")
        second = await create(at.client, stream=stream, model="one/m", input="Oslo?", previous_response_id=first.id)
        body = json.loads(one.requests[0].body)
        assert "previous_response_id" not in body and len(body["input"]) == 3
        assert second.id not in ("resp_1", first.id)
        await create(at.client, stream=stream, model="one/m", input="Rome?", previous_response_id=second.id)
        assert len(json.loads(one.requests[1].body)["input"]) == 5


@pytest.mark.parametrize(
    ("row", "keeps"),
    [
        ({"provider": "openai"}, True),
        ({"provider": "openai", "keeps_responses": False}, False),
        ({"provider": "openai", "base_url": "http://localhost:8000/v1"}, False),
        ({"provider": "openai-chat"}, False),
        ({"provider": "azure", "base_url": "https://me.openai.azure.com", "wire": "openai_responses"}, True),
        ({"provider": "azure", "base_url": "https://proxy.example", "wire": "openai_responses"}, False),
        ({"base_url": "http://localhost:8000/v1", "wire": "openai_responses"}, False),
        ({"base_url": "http://localhost:8000/v1", "wire": "openai_responses", "keeps_responses": True}, True),
        ({"base_url": "http://localhost:8000/v1", "wire": "anthropic", "keeps_responses": True}, False),
    ],
)
def test_upstreams_that_store_responses(row, keeps):
    upstream = ConfiguredUpstream(
        "u", UpstreamRow(**row), None, {"OPENAI_API_KEY": "sk-openai", "AZURE_OPENAI_API_KEY": "azure-key"}
    )
    assert upstream.keeps_responses is keeps
