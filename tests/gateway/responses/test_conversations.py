"""Conversations of OpenAI's own client, kept by the gateway over upstreams of every wire."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import openai
import pytest

from hostile import run
from responses_sdk import WEATHER, WIRES, call_answer, create, text_answer, world
from serving import upstream_rows
from toolwire import Request
from toolwire.asgi.offload import ClientOffload, Offload
from toolwire.gateway.config.settings import LimitsRow, ResponsesRow
from toolwire.gateway.memory import MemoryBound, MemoryReservation
from toolwire.gateway.request.routes import INGRESSES, Route
from toolwire.gateway.responses.records import BoundMessages, ConversationEntry, ResponseEntry, decode_input
from toolwire.gateway.responses.state import ResponseState
from toolwire.gateway.responses.store import InMemoryResponses
from toolwire.gateway.stored.conversations_api import ConversationsApi, StateRequest
from toolwire.ir.parts import Artefact
from toolwire.testing import PartialReply, Upstream
from waiting import SAFETY

pytestmark = pytest.mark.finding("G5")
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "responses.db")


@pytest.mark.one_in(3)
@MODES
@pytest.mark.parametrize("wire", WIRES)
@run
async def test_conversation_is_continued_over_every_wire(wire, stream, store):
    async with world(text_answer("Rain."), text_answer("Snow."), store=store) as at:
        items = [{"role": "user", "content": "I am Ann."}, {"role": "assistant", "content": "Hello Ann."}]
        conversation = await at.client.conversations.create(items=items, metadata={"topic": "weather"})
        assert conversation.id.startswith("conv_") and conversation.metadata == {"topic": "weather"}
        for question in ("Paris?", "Oslo?"):
            answer = await create(
                at.client, stream=stream, model=f"{wire}/m", input=question, conversation={"id": conversation.id}
            )
            assert answer.conversation.id == conversation.id
        assert [text for _, text in at.history()] == ["I am Ann.", "Hello Ann.", "Paris?", "Rain.", "Oslo?"]
        listed = [item async for item in at.client.conversations.items.list(conversation.id, order="asc", limit=2)]
        texts = [item.content[0].text for item in listed]
        assert texts == ["I am Ann.", "Hello Ann.", "Paris?", "Rain.", "Oslo?", "Snow."]
        assert len({item.id for item in listed}) == 6


@run
async def test_calls_and_results_are_items_of_the_conversation(store):
    async with world(call_answer(), text_answer("Cold."), store=store) as at:
        conversation = await at.client.conversations.create()
        fields = {"model": "anthropic/m", "tools": [WEATHER], "conversation": conversation.id}
        first = await at.client.responses.create(input="Weather?", **fields)
        result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "-3"}
        await at.client.responses.create(input=[result], **fields)
        assert [text for _, text in at.history()] == ["Weather?", "get_weather", "-3"]
        listed = (await at.client.conversations.items.list(conversation.id, order="asc")).data
        assert [item.type for item in listed] == ["message", "function_call", "function_call_output", "message"]


@pytest.mark.finding("GA10")
@run
async def test_item_is_read_and_deleted(store):
    async with world(call_answer(), text_answer("Cold."), text_answer("Yes."), store=store) as at:
        conversation = await at.client.conversations.create(items=[{"role": "user", "content": "I am Ann."}])
        fields = {"model": "anthropic/m", "tools": [WEATHER], "conversation": conversation.id}
        first = await at.client.responses.create(input="Weather?", **fields)
        call = first.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "-3"}
        await at.client.responses.create(input=[result], **fields)
        items = at.client.conversations.items
        listed = (await items.list(conversation.id, order="asc")).data
        for item in listed:
            assert await items.retrieve(item.id, conversation_id=conversation.id) == item
        for item in (listed[0], listed[2], listed[3]):  # of the client, of an answer, and a result
            assert (await items.delete(item.id, conversation_id=conversation.id)).id == conversation.id
            with pytest.raises(openai.NotFoundError):
                await items.retrieve(item.id, conversation_id=conversation.id)
        rest = (await items.list(conversation.id, order="asc")).data
        assert [item.id for item in rest] == [listed[1].id, listed[4].id]
        await at.client.responses.create(input="Sure?", **fields)
        assert [text for _, text in at.history()] == ["Weather?", "Cold.", "Sure?"]


@pytest.mark.finding("GA10")
@run
async def test_item_of_another_conversation_or_client_is_not_found(store):
    async with world(store=store) as at:
        first, second = [
            await at.client.conversations.create(items=[{"role": "user", "content": text}]) for text in ("one", "two")
        ]
        item = (await at.client.conversations.items.list(first.id)).data[0]
        for client, conversation in ((at.client, second), (at.clients["bob"], first)):
            for call in (client.conversations.items.retrieve, client.conversations.items.delete):
                with pytest.raises(openai.NotFoundError):
                    await call(item.id, conversation_id=conversation.id)
        assert (await at.client.conversations.items.retrieve(item.id, conversation_id=first.id)).id == item.id


@run
async def test_tokens_of_a_request_are_counted_with_its_stored_conversation(store):
    async with world(text_answer("Rain."), store=store) as at:
        alone = await at.client.responses.input_tokens.count(model="anthropic/m", input="And Oslo?")
        assert alone.object == "response.input_tokens" and 0 < alone.input_tokens < 60
        long = "Tell me about the weather of Paris. " * 50
        first = await at.client.responses.create(model="anthropic/m", input=long)
        conversation = await at.client.conversations.create(items=[{"role": "user", "content": long}])
        for reference in ({"previous_response_id": first.id}, {"conversation": conversation.id}):
            counted = await at.client.responses.input_tokens.count(model="anthropic/m", input="And Oslo?", **reference)
            assert counted.input_tokens > alone.input_tokens + 300
        assert len(at.upstream.requests) == 1
        with pytest.raises(openai.NotFoundError):
            await at.clients["bob"].responses.input_tokens.count(
                model="anthropic/m", input="x", previous_response_id=first.id
            )


@run
async def test_second_request_on_a_conversation_is_a_conflict(store):
    slow = PartialReply(text_answer("never"), None, "stall")
    async with world(slow, text_answer("Snow."), store=store) as at:
        conversation = await at.client.conversations.create()
        fields = {"model": "anthropic/m", "conversation": conversation.id}
        first = asyncio.ensure_future(at.client.responses.create(input="Paris?", **fields))
        await at.upstream.wait_for_requests()
        with pytest.raises(openai.ConflictError) as caught:
            await at.client.responses.create(input="Oslo?", **fields)
        assert caught.value.code == "conversation_locked"
        with pytest.raises(openai.ConflictError):
            await at.client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "x"}])
        with pytest.raises(openai.ConflictError) as caught:  # or the end of the request would save it again
            await at.client.conversations.delete(conversation.id)
        assert caught.value.code == "conversation_locked"
        first.cancel()
        await asyncio.wait({first})
        await at.upstream.disconnected()
        while True:  # the lock ends with the request
            try:
                answer = await at.client.responses.create(input="Rome?", **fields)
                break
            except openai.ConflictError:
                await asyncio.sleep(0.01)
        assert answer.output_text == "Snow."
        assert at.history() == [("user", "Rome?")]  # nothing of the request that did not end


@run
async def test_conversation_of_another_key_is_not_found(store):
    async with world(text_answer("x"), store=store) as at:
        conversation = await at.client.conversations.create(metadata={"a": "b"})
        bob = at.clients["bob"]
        for attempt in (
            bob.conversations.retrieve(conversation.id),
            bob.conversations.delete(conversation.id),
            bob.conversations.update(conversation.id, metadata={}),
            bob.conversations.items.list(conversation.id),
            bob.conversations.items.create(conversation.id, items=[{"role": "user", "content": "x"}]),
            bob.responses.create(model="anthropic/m", input="?", conversation=conversation.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await attempt
        assert (await at.client.conversations.retrieve(conversation.id)).metadata == {"a": "b"}
        assert (await at.client.conversations.update(conversation.id, metadata={"c": "d"})).metadata == {"c": "d"}
        assert at.upstream.requests == []


@run
async def test_deleted_conversation_is_gone_and_its_response_stays(store):
    async with world(text_answer("Rain."), text_answer("x"), store=store) as at:
        conversation = await at.client.conversations.create()
        answer = await at.client.responses.create(model="gemini/m", input="Paris?", conversation=conversation.id)
        deleted = await at.client.conversations.delete(conversation.id)
        assert deleted.deleted and deleted.id == conversation.id
        for attempt in (
            at.client.conversations.retrieve(conversation.id),
            at.client.responses.create(model="gemini/m", input="?", conversation=conversation.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await attempt
        assert (await at.client.responses.retrieve(answer.id)).output_text == "Rain."


@run
async def test_deleted_response_stays_in_its_conversation(store):
    async with world(text_answer("Rain."), text_answer("Snow."), store=store) as at:
        conversation = await at.client.conversations.create()
        answer = await at.client.responses.create(model="gemini/m", input="Paris?", conversation=conversation.id)
        await at.client.responses.delete(answer.id)
        await at.client.responses.create(model="gemini/m", input="Oslo?", conversation=conversation.id)
        assert [text for _, text in at.history()] == ["Paris?", "Rain.", "Oslo?"]


@run
async def test_response_of_a_conversation_is_continued_by_its_id(store):
    async with world(text_answer("Rain."), text_answer("Snow."), text_answer("Sun."), store=store) as at:
        conversation = await at.client.conversations.create()
        await at.client.responses.create(model="gemini/m", input="Paris?", conversation=conversation.id)
        second = await at.client.responses.create(model="gemini/m", input="Oslo?", conversation=conversation.id)
        await at.client.responses.create(model="gemini/m", input="Rome?", previous_response_id=second.id)
        assert [text for _, text in at.history()] == ["Paris?", "Rain.", "Oslo?", "Snow.", "Rome?"]
        listed = (await at.client.conversations.items.list(conversation.id)).data
        assert len(listed) == 4  # a branch by id is not part of the conversation


@run
async def test_conversation_has_a_limited_number_of_entries(store):
    async with world(text_answer("x"), store=store, responses={"max_responses": 2}) as at:
        conversation = await at.client.conversations.create()
        for _ in range(2):
            await at.client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "x"}])
        for attempt in (
            at.client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "x"}]),
            at.client.responses.create(model="gemini/m", input="?", conversation=conversation.id),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await attempt
            assert "the limit is 2" in str(caught.value)


@run
async def test_conversation_is_not_used_without_storing(store):
    async with world(text_answer("x"), store=store) as at:
        conversation = await at.client.conversations.create()
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.create(model="gemini/m", input="?", conversation=conversation.id, store=False)
        assert caught.value.param == "store"


@run
async def test_conversation_answers_are_not_cached(store):
    models = {"cached": {"upstream": "gemini", "model": "m", "cache": 60}}
    async with world(text_answer("1"), text_answer("2"), store=store, models=models) as at:
        conversation = await at.client.conversations.create()
        for expected in ("1", "2"):
            answer = await at.client.responses.create(model="cached", input="Next?", conversation=conversation.id)
            assert answer.output_text == expected


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [{"role": "robot", "content": "x"}]}, "items[0].role"),
        ({"items": [{"type": "item_reference", "id": "msg_1"}]}, "items[0]"),
        ({"items": [{"role": "user", "content": "x"}] * 21}, "items"),
        ({"items": "x"}, "items"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": "x"}, "metadata"),
        ({"items": [{"role": "user", "content": "x" * 3000}]}, "items"),
    ],
)
@run
async def test_invalid_conversation_is_refused_with_its_location(body, param, store):
    async with world(store=store, responses={"max_response_bytes": 2000}) as at:
        with pytest.raises(openai.APIStatusError) as caught:
            await at.client.conversations.create(extra_body=body)
        assert (caught.value.param, 400 <= caught.value.status_code < 500) == (param, True)


@run
async def test_unlocking_that_a_disconnect_interrupts_is_repeated():
    began = asyncio.Event()

    class Slow(InMemoryResponses):
        async def unlock(self, *arguments):
            began.set()
            await asyncio.sleep(0.01)  # a round trip to a database
            await super().unlock(*arguments)

    store = Slow(None, time.monotonic)
    assert await store.lock("ann", "conv_1", "token", 900)
    state = ResponseState(store, ResponsesRow(), LimitsRow(), time.time)
    pending = SimpleNamespace(access=SimpleNamespace(owner="ann"), conversation_id="conv_1", lock_token="token")
    interrupted = asyncio.create_task(state.close_response(pending))
    await began.wait()
    interrupted.cancel()
    await asyncio.wait({interrupted})
    await state.close_response(pending)  # as every request does at its end
    assert await store.lock("ann", "conv_1", "another", 900)


@run
async def test_reasoning_stays_with_its_server_after_another_item_was_deleted(store, monkeypatch):
    """The items that a request refers to keep their server; the size of the conversation follows its entries."""
    conversations, sizes = [], {}
    save = ResponseState.save

    async def recorded(self, access, entry_id, entry, estimate=0):
        size = await save(self, access, entry_id, entry, estimate)
        if isinstance(entry, ConversationEntry):
            conversations.append(entry)
        else:
            sizes[entry_id] = size
        return size

    monkeypatch.setattr(ResponseState, "save", recorded)
    signature = Artefact("anthropic", "signature", "c2lnbmVk")
    async with Upstream(*[text_answer("x")] * 2) as other:
        rows = {"other": {**upstream_rows(other.url)["anthropic"]}}
        script = (call_answer(artefacts=(signature,)), text_answer("Cold."), text_answer("Yes."))
        async with world(*script, store=store, more_upstreams=rows) as at:
            fields = {"model": "anthropic/m", "tools": [WEATHER]}
            first = await at.client.responses.create(input="Weather?", **fields)
            conversation = await at.client.conversations.create()
            given = [
                {"role": "user", "content": "I am Ann."},
                {"role": "user", "content": "Weather?"},
                *({"type": "item_reference", "id": item.id} for item in first.output),
                {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "-3"},
                {"role": "user", "content": "Bye."},
            ]
            await at.client.responses.create(input=given, conversation=conversation.id, **fields)
            items = at.client.conversations.items
            listed = (await items.list(conversation.id, order="asc")).data
            for number in (0, 5):
                await items.delete(listed[number].id, conversation_id=conversation.id)
            assert conversations[-1].size == sum(sizes[entry_id] for entry_id in conversations[-1].entry_ids)
            fields["conversation"] = conversation.id
            await at.client.responses.create(input="Sure?", **fields)
            assert b"c2lnbmVk" in at.upstream.requests[-1].body
            assert [text for _, text in at.history()] == ["Weather?", "think", "get_weather", "-3", "Cold.", "Sure?"]
            await at.client.responses.create(input="Sure?", **{**fields, "model": "other/m"})
            assert b"c2lnbmVk" not in other.requests[-1].body and b"-3" in other.requests[-1].body
            await items.delete(listed[2].id, conversation_id=conversation.id)  # the reasoning itself
            await at.client.responses.create(input="Sure?", **{**fields, "model": "other/m"})
            assert b"think" not in other.requests[-1].body and b"-3" in other.requests[-1].body


def test_input_of_an_earlier_version_is_sent_to_no_server_as_its_own():
    """Without the number of items of each group, it is unknown which server made an item."""
    items = [{"id": name, "type": "message", "role": "user", "content": name} for name in ("a", "b", "c")]
    group = BoundMessages("https://a", decode_input(items[:1]))
    entry = ResponseEntry("resp_1", 0, items=tuple(items), input=(group, BoundMessages("", decode_input(items[1:]))))
    changed = entry.without_item("b")
    assert [item["id"] for item in changed.items] == ["a", "c"]
    assert [(bound.origin, bound.item_count) for bound in changed.input] == [("an unknown server", 2)]
    assert set(entry.find_items({"a", "c"})) == {"a", "c"}
    alone = ResponseEntry("resp_1", 0, items=tuple(items), input=(BoundMessages("", decode_input(items)),))
    assert alone.without_item("b").input == (BoundMessages("", decode_input([items[0], items[2]]), 2),)


@pytest.mark.parametrize(
    "action", ["generate", "update_conversation", "delete_conversation", "create_items", "delete_item"]
)
@run
async def test_lock_that_a_cancellation_interrupts_is_released(action):
    """The database has locked the conversation, and its reply is under way."""
    began = asyncio.Event()

    class Slow(InMemoryResponses):
        async def lock(self, *arguments):
            is_locked = await super().lock(*arguments)
            began.set()
            await asyncio.sleep(SAFETY)
            return is_locked

    store = Slow(None, time.monotonic)
    state = ResponseState(store, ResponsesRow(store="memory:"), LimitsRow(), time.time)
    access = state.access("ann", MemoryReservation(MemoryBound(1_000_000)), ClientOffload(Offload(), "ann"))
    if action == "generate":
        document = {"conversation": "conv_1", "input": "x"}
        work = state.open_response(access, document, 10, Request, lambda: False)
    else:
        route = Route(action, INGRESSES["openai_responses"], entry_id="conv_1", item_id="msg_1")
        body = b'{"items":[{"role":"user","content":"x"}],"metadata":{}}'
        work = ConversationsApi(state).actions[action](StateRequest(access, route, {}, body, len(body)))
    interrupted = asyncio.create_task(work)
    await began.wait()
    interrupted.cancel()
    await asyncio.wait({interrupted})
    assert await InMemoryResponses.lock(store, "ann", "conv_1", "another", 900)
