"""OpenAI's own client continues responses by their id, over upstreams of every wire."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path

import openai
import pytest

from hostile import post, run
from responses_sdk import KEY, WEATHER, WIRES, call_answer, create, text_answer, world
from toolwire import Response, Text, ToolCall
from toolwire.gateway.memory import MemoryReservation
from toolwire.ir.parts import Artefact, Reasoning, ToolResult
from toolwire.ir.response import Fault, Stop
from toolwire.schema.bounds import BoundedCache
from toolwire.testing import PartialReply
from waiting import until

pytestmark = pytest.mark.finding("G5")
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
# what each wire's provider signs, as its kind of artefact
SIGNED = {"anthropic": "signature", "gemini": "signature"}


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "responses.db")


@MODES
@pytest.mark.parametrize("wire", WIRES)
@run
async def test_previous_response_is_continued_over_every_wire(wire, stream, store):
    async with world(text_answer("Rain."), text_answer("Snow."), text_answer("Sun."), store=store) as at:
        model = f"{wire}/m"
        first = await create(at.client, stream=stream, model=model, input="Paris?", instructions="Be brief.")
        assert first.id.startswith("resp_") and first.output_text == "Rain."
        assert at.history() == [("system", "Be brief."), ("user", "Paris?")]
        second = await create(at.client, stream=stream, model=model, input="Oslo?", previous_response_id=first.id)
        assert (second.output_text, second.previous_response_id) == ("Snow.", first.id)
        # the instructions of the first request are not inherited
        assert at.history() == [("user", "Paris?"), ("assistant", "Rain."), ("user", "Oslo?")]
        third = await create(
            at.client, stream=stream, model=model, input="Rome?", previous_response_id=second.id, instructions="Go on."
        )
        assert third.output_text == "Sun."
        assert [text for _, text in at.history()] == ["Go on.", "Paris?", "Rain.", "Oslo?", "Snow.", "Rome?"]
        assert len({first.id, second.id, third.id}) == 3


@run
async def test_helper_for_streams_continues_a_response(store):
    async with world(text_answer("Rain."), text_answer("Snow."), store=store) as at:
        previous_id = openai.omit
        for expected in ("Rain.", "Snow."):
            async with at.client.responses.stream(
                model="gemini/m", input="Weather?", previous_response_id=previous_id
            ) as events:
                text = "".join([event.delta async for event in events if event.type == "response.output_text.delta"])
                final = await events.get_final_response()
            assert text == final.output_text == expected
            previous_id = final.id
        assert len(at.history()) == 3


@pytest.mark.one_in(3)
@MODES
@pytest.mark.parametrize("wire", WIRES)
@run
async def test_only_the_result_of_a_call_is_sent_back(wire, stream, store):
    async with world(call_answer(), text_answer("Cold."), store=store) as at:
        fields = {"model": f"{wire}/m", "tools": [WEATHER]}
        first = await create(at.client, stream=stream, input="Weather in Oslo?", **fields)
        [call] = [item for item in first.output if item.type == "function_call"]
        assert json.loads(call.arguments) == {"city": "Oslo"}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "-3"}
        second = await create(at.client, stream=stream, input=[result], previous_response_id=first.id, **fields)
        assert second.output_text == "Cold."
        request = at.upstream.requests[-1].request
        parts = [part for message in request.messages for part in message.parts]
        assert [type(part) for part in parts] == [Text, ToolCall, ToolResult]
        assert (parts[1].name, parts[1].arguments) == ("get_weather", {"city": "Oslo"})
        assert parts[2].text == "-3" and parts[2].call_id == parts[1].id


@MODES
@pytest.mark.parametrize("wire", ["anthropic", "gemini"])
@run
async def test_signatures_return_to_the_server_and_model_that_made_them(wire, stream, store):
    signature = Artefact("anthropic" if wire == "anthropic" else "google", "signature", "c2lnbmVk")
    thought = Reasoning("I need the weather.", (), (signature,) if wire == "anthropic" else ())
    call = ToolCall("call_1", "get_weather", {"city": "Oslo"}, artefacts=() if wire == "anthropic" else (signature,))
    said = Response(parts=(thought, call), stop=Stop("tool_calls"))
    async with world(said, text_answer("a"), text_answer("b"), text_answer("c"), store=store) as at:
        first = await create(at.client, stream=stream, model=f"{wire}/m", input="Weather?", tools=[WEATHER])
        [called] = [item for item in first.output if item.type == "function_call"]
        result = [{"type": "function_call_output", "call_id": called.call_id, "output": "-3"}]
        for model, is_owner in ((f"{wire}/m", True), (f"{wire}/other", False), ("openai_chat/m", False)):
            # the memory of signatures by call id belongs to another part of the gateway
            at.gateway.gateway._turn_store._entries = BoundedCache()
            await create(
                at.client, stream=stream, model=model, input=result, previous_response_id=first.id, tools=[WEATHER]
            )
            assert (b"c2lnbmVk" in at.upstream.requests[-1].body) is is_owner


@run
async def test_signatures_stay_with_their_server(store):
    """Two servers of one provider and model: only the one that signed gets its signature back."""
    signature = Artefact("anthropic", "signature", "c2lnbmVk")
    call = ToolCall("call_1", "get_weather", {"city": "Oslo"})
    said = Response(parts=(Reasoning("hm", (), (signature,)), call), stop=Stop("tool_calls"))
    from serving import upstream_rows
    from toolwire.testing import Upstream

    async with Upstream(text_answer("x")) as other:
        rows = {"other": {**upstream_rows(other.url)["anthropic"]}}
        async with world(said, store=store, more_upstreams=rows) as at:
            first = await at.client.responses.create(model="anthropic/m", input="Weather?", tools=[WEATHER])
            [called] = [item for item in first.output if item.type == "function_call"]
            result = [{"type": "function_call_output", "call_id": called.call_id, "output": "-3"}]
            await at.client.responses.create(
                model="other/m", input=result, previous_response_id=first.id, tools=[WEATHER]
            )
            assert b"c2lnbmVk" not in other.requests[-1].body and b"-3" in other.requests[-1].body


@run
async def test_one_response_is_continued_twice(store):
    async with world(text_answer("Rain."), text_answer("A."), text_answer("B."), store=store) as at:
        first = await at.client.responses.create(model="anthropic/m", input="Paris?")
        for question in ("Oslo?", "Rome?"):
            await at.client.responses.create(model="gemini/m", input=question, previous_response_id=first.id)
            assert at.history() == [("user", "Paris?"), ("assistant", "Rain."), ("user", question)]


@MODES
@run
async def test_a_conversation_moves_between_wires(stream, store):
    async with world(*(text_answer(str(number)) for number in range(len(WIRES))), store=store) as at:
        previous_id = None
        for number, wire in enumerate(WIRES):
            answer = await create(
                at.client, stream=stream, model=f"{wire}/m", input=f"q{number}", previous_response_id=previous_id
            )
            previous_id = answer.id
            assert len(at.history()) == 2 * number + 1


@MODES
@pytest.mark.parametrize("wire", ["anthropic", "openai_responses"])
@run
async def test_retrieved_response_equals_the_one_that_was_sent(wire, stream, store):
    async with world(call_answer(), store=store) as at:
        sent = await create(at.client, stream=stream, model=f"{wire}/m", input="Paris?", tools=[WEATHER])
        got = await at.client.responses.retrieve(sent.id)
        names = ("id", "status", "store", "model", "output", "usage", "created_at", "previous_response_id")
        assert {name: getattr(got, name) for name in names} == {name: getattr(sent, name) for name in names}
        assert got.store is True
        assert got.created_at > 1_700_000_000 or wire == "openai_responses"  # there the upstream gives a time


@run
async def test_input_items_are_listed_in_pages(store):
    async with world(text_answer("Rain."), text_answer("Snow."), store=store) as at:
        image = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"}
        content = [{"type": "input_text", "text": "This?"}, image]
        first = await at.client.responses.create(model="gemini/m", input=[{"role": "user", "content": content}])
        second = await at.client.responses.create(model="gemini/m", input="Oslo?", previous_response_id=first.id)
        page = await at.client.responses.input_items.list(first.id)
        assert [item.type for item in page.data] == ["message"]
        assert [part.type for part in page.data[0].content] == ["input_text", "input_image"]
        listed = [item async for item in at.client.responses.input_items.list(second.id, order="asc", limit=1)]
        assert [(item.role, item.content[0].text) for item in listed] == [
            ("user", "This?"),
            ("assistant", "Rain."),
            ("user", "Oslo?"),
        ]
        newest = await at.client.responses.input_items.list(second.id, limit=1)
        assert newest.data[0].content[0].text == "Oslo?"
        with pytest.raises(openai.BadRequestError):
            await at.client.responses.input_items.list(second.id, limit=0)


@run
async def test_deleted_response_is_gone(store):
    async with world(text_answer("Rain."), text_answer("Snow."), store=store) as at:
        first = await at.client.responses.create(model="anthropic/m", input="Paris?")
        second = await at.client.responses.create(model="anthropic/m", input="Oslo?", previous_response_id=first.id)
        await at.client.responses.delete(first.id)
        for gone in (
            at.client.responses.retrieve(first.id),
            at.client.responses.delete(first.id),
            at.client.responses.input_items.list(first.id),
            at.client.responses.create(model="anthropic/m", input="?", previous_response_id=first.id),
            at.client.responses.create(model="anthropic/m", input="?", previous_response_id=second.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await gone
        assert (await at.client.responses.retrieve(second.id)).output_text == "Snow."
        assert len(at.upstream.requests) == 2
    data = content_of(store)
    assert b"Snow." in data and b"Rain." not in data and b"Paris?" not in data


@run
async def test_id_of_another_key_is_not_found_in_the_same_words_as_an_unknown_id(store):
    async with world(text_answer("Rain."), text_answer("x"), store=store) as at:
        first = await at.client.responses.create(model="anthropic/m", input="Paris?")
        bob, unknown = at.clients["bob"], "resp_" + "0" * 48
        messages = []
        for response_id in (first.id, unknown):
            for attempt in (
                bob.responses.retrieve(response_id),
                bob.responses.delete(response_id),
                bob.responses.input_items.list(response_id),
                bob.responses.create(model="anthropic/m", input="?", previous_response_id=response_id),
                bob.responses.create(
                    model="anthropic/m", input=[{"type": "item_reference", "id": f"msg_{response_id[5:]}_0"}]
                ),
            ):
                with pytest.raises(openai.NotFoundError) as caught:
                    await attempt
                messages.append(str(caught.value.body).replace(response_id[5:], "ID"))
        assert messages[:5] == messages[5:]
        assert "previous_response_not_found" in messages[3] and "'previous_response_id'" in messages[3]
        assert "'input[0]'" in messages[4]
        assert len(at.upstream.requests) == 1
        assert (await at.client.responses.retrieve(first.id)).id == first.id


@MODES
@run
async def test_store_false_is_never_stored(stream, store, tmp_path):
    async with world(text_answer("Secret rain."), text_answer("x"), store=store) as at:
        answer = await create(at.client, stream=stream, model="anthropic/m", input="Paris?", store=False)
        assert answer.store is False
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(answer.id)
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.create(model="anthropic/m", input="?", previous_response_id=answer.id)
        await at.client.responses.create(model="anthropic/m", input="kept")
    assert not any(b"Secret rain" in file.read_bytes() for file in tmp_path.iterdir())


@run
async def test_stored_response_can_be_continued_without_storing(store):
    async with world(text_answer("Rain."), text_answer("Snow."), store=store) as at:
        first = await at.client.responses.create(model="anthropic/m", input="Paris?")
        second = await at.client.responses.create(
            model="anthropic/m", input="Oslo?", previous_response_id=first.id, store=False
        )
        assert len(at.history()) == 3
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(second.id)


@MODES
@run
async def test_without_a_store_references_across_wires_are_refused(stream):
    async with world(text_answer("Rain."), store=None) as at:
        first = await create(at.client, stream=stream, model="anthropic/m", input="Paris?", store=True)
        assert first.store is False
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.create(model="anthropic/m", input="?", previous_response_id=first.id)
        assert caught.value.code == "previous_response_not_found"
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(first.id)
        with pytest.raises(openai.NotFoundError) as caught:
            await at.client.conversations.create()
        assert "responses.store" in str(caught.value)


@MODES
@run
async def test_response_larger_than_the_limit_is_sent_but_not_stored(stream, store):
    big = "x" * 3000
    async with world(text_answer(big), text_answer("y"), store=store, responses={"max_response_bytes": 2000}) as at:
        answer = await create(at.client, stream=stream, model="anthropic/m", input="Paris?")
        assert (answer.output_text, answer.store) == (big, False)
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(answer.id)
        answer = await create(at.client, stream=stream, model="anthropic/m", input=big)
        assert (answer.output_text, answer.store) == ("y", False)


@run
async def test_conversation_has_a_limited_number_of_responses(store):
    async with world(*map(text_answer, "abc"), store=store, responses={"max_responses": 2}) as at:
        first = await at.client.responses.create(model="anthropic/m", input="1")
        second = await at.client.responses.create(model="anthropic/m", input="2", previous_response_id=first.id)
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.create(model="anthropic/m", input="3", previous_response_id=second.id)
        assert "the limit is 2" in str(caught.value)


@run
async def test_responses_expire_by_the_clock_of_the_gateway(store):
    from toolwire.gateway.config.settings import ResponsesRow
    from toolwire.gateway.state.opening import open_responses

    now = [1_000_000.0]
    row = ResponsesRow(store=store)
    opened = open_responses(row, {}, lambda: now[0])
    options = {"options": {"responses": opened}}
    async with world(*map(text_answer, "abcd"), store=store, **options) as at:
        first = await at.client.responses.create(model="anthropic/m", input="1")
        now[0] += 23 * 3600
        second = await at.client.responses.create(model="anthropic/m", input="2", previous_response_id=first.id)
        now[0] += 23 * 3600  # every use of a conversation renews its responses
        await at.client.responses.create(model="anthropic/m", input="3", previous_response_id=second.id)
        assert len(at.history()) == 5
        now[0] += 24 * 3600
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.create(model="anthropic/m", input="4", previous_response_id=first.id)
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(second.id)
    await opened.aclose()


@run
async def test_failed_and_truncated_answers_cannot_be_continued(store):
    failed = Fault("server", "no", 500, retryable=False)
    cut = PartialReply(text_answer("a long answer that is cut in the middle " * 20), 1200)
    async with world(failed, cut, store=store) as at:
        with pytest.raises(openai.APIStatusError):
            await at.client.responses.create(model="anthropic/m", input="1")
        events = [
            event async for event in await at.client.responses.create(model="anthropic/m", input="1", stream=True)
        ]
        assert [event.type for event in events][-1] == "response.failed"
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(events[0].response.id)


@run
async def test_client_that_disconnects_leaves_no_half_response(store):
    unfinished = PartialReply(text_answer("a long answer that is never finished " * 20), 1200, "stall")
    async with world(unfinished, store=store) as at:
        stream = await at.client.responses.create(model="anthropic/m", input="1", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        await at.upstream.disconnected()
    assert not stored_ids(store)


def content_of(store):
    return Path(store).read_bytes()


def stored_ids(store):
    import sqlite3

    with closing(sqlite3.connect(store)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'toolwire_responses'").fetchone() is None:
            return []
        return connection.execute("SELECT id FROM toolwire_responses").fetchall()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wire", ["anthropic", "openai_responses"])
@pytest.mark.parametrize("stores", [False, True])
@run
async def test_two_references_are_refused_by_name(wire, stores, store):
    async with world(text_answer("x"), store=store if stores else None) as at:
        references = {"previous_response_id": "a", "conversation": "b"}
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.create(model=f"{wire}/m", input="?", extra_body=references)
        assert caught.value.param == "previous_response_id" and "previous_response_id" in str(caught.value)
        assert at.upstream.requests == []


@run
async def test_stream_of_a_stored_response_cannot_be_resumed(store):
    async with world(text_answer("Rain."), store=store) as at:
        first = await at.client.responses.create(model="anthropic/m", input="Paris?")
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.retrieve(first.id, stream=True, starting_after=3)
        assert caught.value.param == "starting_after"
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.retrieve(first.id, stream=True)
        assert caught.value.param == "stream"
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.cancel(first.id)
        assert "background" in str(caught.value)


@pytest.mark.one_in(3)
@MODES
@pytest.mark.parametrize("wire", ["anthropic", "openai_chat", "openai_responses"])
@run
async def test_item_references_are_replaced_by_the_stored_items(wire, stream, store):
    async with world(call_answer(), text_answer("Cold."), text_answer("Yes."), store=store) as at:
        fields = {"model": f"{wire}/m", "tools": [WEATHER]}
        question = {"role": "user", "content": "Weather in Oslo?"}
        first = await create(at.client, stream=stream, input=[question], **fields)
        references = [{"type": "item_reference", "id": item.id} for item in first.output]
        result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "-3"}
        second = await create(at.client, stream=stream, input=[question, *references, result], **fields)
        assert at.history() == [
            ("user", "Weather in Oslo?"),
            ("assistant", "get_weather"),
            ("user", "-3"),
        ]
        asked = (await at.client.responses.input_items.list(second.id, order="asc")).data
        assert [item.type for item in asked] == ["message", "function_call", "function_call_output"]
        again = [{"id": asked[0].id}, *references, result, {"id": second.output[0].id}, question]
        await create(at.client, stream=stream, input=again, **fields)
        assert [text for _, text in at.history()] == [
            "Weather in Oslo?",
            "get_weather",
            "-3",
            "Cold.",
            "Weather in Oslo?",
        ]


@run
async def test_unknown_item_goes_only_to_an_upstream_that_may_know_it(store):
    rows = {"keeps": {"base_url": "http://127.0.0.1:1", "wire": "openai_responses", "keeps_responses": True}}
    async with world(store=store, more_upstreams=rows) as at:
        reference = [{"type": "item_reference", "id": "msg_of_another_store"}]
        for wire in WIRES:
            with pytest.raises(openai.NotFoundError) as caught:
                await at.client.responses.create(model=f"{wire}/m", input=reference)
            assert caught.value.param == "input[0]"
        with pytest.raises(openai.APIStatusError) as caught:
            await at.client.responses.create(model="keeps/m", input=reference)
        assert caught.value.status_code >= 500  # it was asked, and does not answer
        assert at.upstream.requests == []


@pytest.mark.finding("Z10")
@run
async def test_repeated_reference_counts_as_memory_each_time(store):
    limits = {"memory": 16 * 2**20}  # of which a key may use half
    async with world(*map(text_answer, "abc"), store=store, limits=limits) as at:
        first = await at.client.responses.create(model="anthropic/m", input="x" * 200_000)
        item = (await at.client.responses.input_items.list(first.id)).data[0]
        reference = {"type": "item_reference", "id": item.id}
        reserved = []
        add = MemoryReservation.add
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryReservation, "add", lambda self, size: (reserved.append(size), add(self, size))[1])
            await at.client.responses.create(model="anthropic/m", input=[reference] * 8)
            assert max(reserved) > 3 * 8 * 200_000
        with pytest.raises(openai.InternalServerError) as caught:
            await at.client.responses.create(model="anthropic/m", input=[reference] * 20)
        assert caught.value.status_code == 503 and "8,388,608 bytes of memory" in str(caught.value)
        assert len(at.upstream.requests) == 2
        await until(lambda: at.gateway.gateway._memory_bound.used == 0)


@pytest.mark.finding("Z10")
@run
async def test_values_of_repeated_references_are_limited(store):
    content = [{"type": "input_text", "text": "x"}] * 500
    async with world(*map(text_answer, "ab"), store=store, limits={"values": 10_000}) as at:
        question = {"role": "user", "content": content}
        first = await at.client.responses.create(model="anthropic/m", input=[question])
        item = (await at.client.responses.input_items.list(first.id)).data[0]
        with pytest.raises(openai.APIStatusError) as caught:
            await at.client.responses.create(
                model="anthropic/m", input=[{"type": "item_reference", "id": item.id}] * 30
            )
        assert caught.value.status_code == 413 and "the limit is 10,000" in str(caught.value)
        assert len(at.upstream.requests) == 1


@run
async def test_large_conversation_is_limited_by_the_size_of_a_request(store):
    limits = {"body": 1_500_000}
    async with world(*map(text_answer, "abc"), store=store, limits=limits) as at:
        first = await at.client.responses.create(model="anthropic/m", input="x" * 500_000)
        second = await at.client.responses.create(model="anthropic/m", input="2", previous_response_id=first.id)
        assert len(at.history()) == 3
        third = await at.client.responses.create(
            model="anthropic/m", input="y" * 500_000, previous_response_id=second.id
        )
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.create(model="anthropic/m", input="4", previous_response_id=third.id)
        assert "the limit is 1500000" in str(caught.value)


@run
async def test_references_are_bounded_in_responses_and_bytes(store):
    limits = {"body": 400_000}
    async with world(text_answer("x" * 3000), store=store, responses={"max_responses": 3}, limits=limits) as at:
        first = await at.client.responses.create(model="anthropic/m", input="?")
        reference = {"type": "item_reference", "id": first.output[0].id}
        with pytest.raises(openai.BadRequestError) as caught:  # one item, repeated
            await at.client.responses.create(model="anthropic/m", input=[reference] * 200)
        assert "the limit is 400000" in str(caught.value)
        unknown = [{"type": "item_reference", "id": f"msg_{number:048x}_0"} for number in range(4)]
        with pytest.raises(openai.BadRequestError) as caught:
            await at.client.responses.create(model="anthropic/m", input=unknown)
        assert "items of 4 responses; the limit is 3" in str(caught.value)
        assert len(at.upstream.requests) == 1


@run
async def test_stored_conversation_counts_as_memory_of_its_request(store):
    """A request of 100 bytes cannot make the gateway load more than the memory of all requests."""
    async with world(text_answer("a"), store=store, limits={"memory": 2_500_000}) as at:
        first = await at.client.responses.create(model="anthropic/m", input="x" * 200_000)
        assert first.store
        at.gateway.gateway._memory_bound.limit = 500_000
        with pytest.raises(openai.InternalServerError) as caught:
            await at.client.responses.create(model="anthropic/m", input="2", previous_response_id=first.id)
        assert caught.value.status_code == 503 and "bytes of memory" in str(caught.value)
        assert at.gateway.gateway._memory_bound.used == 0


@run
async def test_contents_of_stored_responses_are_not_logged(store, caplog):
    caplog.set_level("DEBUG")
    async with world(text_answer("topsecretanswer"), store=store) as at:
        first = await at.client.responses.create(model="anthropic/m", input="topsecretquestion")
        await at.client.responses.retrieve(first.id)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("toolwire")]
    assert not any("topsecret" in line for line in ours)


@run
async def test_unavailable_store_is_a_503_before_anything_is_sent(tmp_path):
    """A request that needs the store fails; one that only fills it is answered."""
    async with world(text_answer("Rain."), store=str(tmp_path / "missing" / "responses.db")) as at:
        first = await at.client.responses.create(model="anthropic/m", input="Paris?")
        assert first.output_text == "Rain."
        with pytest.raises(openai.InternalServerError) as caught:
            await at.client.responses.create(model="anthropic/m", input="?", previous_response_id=first.id)
        assert caught.value.status_code == 503
        assert len(at.upstream.requests) == 1


@run
async def test_body_of_a_wrong_type_is_refused(store):
    async with world(text_answer("x"), store=store) as at:
        for fields in ({"previous_response_id": 7}, {"conversation": {"id": []}}, {"conversation": 3}):
            body = {"model": "anthropic/m", "input": "?", **fields}
            answer = await post(
                at.gateway, "/v1/responses", json.dumps(body).encode(), {"authorization": f"Bearer {KEY}"}
            )
            assert answer.status == 400, answer
        assert at.upstream.requests == []


@run
async def test_many_keys_share_one_store_without_a_race(store):
    async with world(*(text_answer(str(number)) for number in range(20)), store=store) as at:
        made = await asyncio.gather(
            *(
                client.responses.create(model="openai_chat/m", input=f"{name}{number}")
                for number in range(10)
                for name, client in at.clients.items()
            )
        )
        assert len({response.id for response in made}) == 20
