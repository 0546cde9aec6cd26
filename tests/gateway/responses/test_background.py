"""Background responses of OpenAI's own client, over upstreams of every wire: polling, cancelling, streams, failures."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from hostile import run
from responses_sdk import KEY, WEATHER, WIRES, call_answer, client_of, text_answer, world
from serving import serving, upstream_rows
from toolwire.asgi.offload import ClientOffload, Offload
from toolwire.gateway.keys import hash_key
from toolwire.gateway.memory import MemoryBound, MemoryReservation
from toolwire.gateway.responses import state as state_module
from toolwire.gateway.responses import store as store_module
from toolwire.gateway.responses.records import ResponseStateError
from toolwire.gateway.responses.state import ResponseState
from toolwire.gateway.responses.store import InMemoryResponses, OwnerBounds, StateAccess
from toolwire.gateway.state.sql_responses import SqlResponses
from toolwire.gateway.stored import background
from toolwire.ir.errors import StoreError
from toolwire.ir.response import Fault
from toolwire.testing import PartialReply, Upstream
from waiting import until

SLOW = PartialReply(text_answer("never"), None, "stall")
STATES = {"queued", "in_progress"}


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "responses.db")


async def finished(client, response_id):
    while True:
        response = await client.responses.retrieve(response_id)
        if response.status not in STATES:
            return response
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("wire", WIRES)
@run
async def test_background_response_is_polled_and_continued(wire, store):
    async with world(call_answer(), text_answer("Cold."), store=store) as at:
        fields = {"model": f"{wire}/m", "tools": [WEATHER], "background": True}
        queued = await at.client.responses.create(input="Weather?", metadata={"topic": "x"}, **fields)
        assert queued.status == "queued" and queued.background and queued.output == []
        first = await finished(at.client, queued.id)
        assert first.id == queued.id and first.status == "completed" and first.background and first.store
        assert first.usage.output_tokens == 9
        if wire != "openai_responses":  # whose upstream writes the field itself
            assert first.metadata == {"topic": "x"}
        result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "-3"}
        second = await at.client.responses.create(input=[result], previous_response_id=first.id, **fields)
        assert second.previous_response_id == first.id
        assert (await finished(at.client, second.id)).output_text == "Cold."
        assert [text for _, text in at.history()] == ["Weather?", "get_weather", "-3"]
        items = (await at.client.responses.input_items.list(second.id, order="asc")).data
        assert [item.type for item in items] == ["message", "function_call", "function_call_output"]
        log = [turn for turn in at.gateway.turns if turn.upstream]
        assert [turn.usage.output for turn in log] == [9, 5] and {turn.caller for turn in log} == {"ann"}


@run
async def test_cancelled_response_ends_its_request_upstream(store):
    async with world(SLOW, store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        await at.upstream.wait_for_requests()
        assert (await at.client.responses.retrieve(queued.id)).status == "in_progress"
        with pytest.raises(openai.BadRequestError, match="in_progress"):
            await at.client.responses.create(model="anthropic/m", input="y", previous_response_id=queued.id)
        cancelled = await at.client.responses.cancel(queued.id)
        assert cancelled.status == "cancelled" and cancelled.id == queued.id
        await at.upstream.disconnected()
        assert (await at.client.responses.cancel(queued.id)).status == "cancelled"
        assert (await at.client.responses.retrieve(queued.id)).status == "cancelled"


@run
async def test_deleted_response_ends_its_request_upstream(store):
    async with world(SLOW, store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        await at.upstream.wait_for_requests()
        await at.client.responses.delete(queued.id)
        await at.upstream.disconnected()
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve(queued.id)


@run
async def test_ended_and_foreground_responses_are_not_cancelled(store):
    async with world(text_answer("One."), text_answer("Two."), store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        ended = await finished(at.client, queued.id)
        assert (await at.client.responses.cancel(queued.id)).output == ended.output
        foreground = await at.client.responses.create(model="anthropic/m", input="x")
        with pytest.raises(openai.BadRequestError, match="background"):
            await at.client.responses.cancel(foreground.id)
        for method in (at.clients["bob"].responses.cancel, at.clients["bob"].responses.retrieve):
            with pytest.raises(openai.NotFoundError):
                await method(queued.id)


@pytest.mark.parametrize(
    ("reply", "message"),
    [(Fault("invalid_request", "no such thing", 400), "no such thing"), (Fault("server", "broken", 500), "broken")],
)
@run
async def test_failed_run_is_stored_as_failed(reply, message, store):
    async with world(*[reply] * 9, store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        failed = await finished(at.client, queued.id)
        assert failed.status == "failed" and message in failed.error.message and failed.output == []


@run
async def test_stream_of_a_background_response_goes_on_without_its_client(store):
    async with world(text_answer("It rains in Paris, and in Oslo."), store=store, options={}) as at:
        stream = await at.client.responses.create(model="anthropic/m", input="x", background=True, stream=True)
        async for event in stream:
            if event.type == "response.created":
                response_id = event.response.id
                assert event.response.background
                break
        await stream.close()
        assert (await finished(at.client, response_id)).output_text == "It rains in Paris, and in Oslo."


@run
async def test_whole_stream_of_a_background_response(store):
    async with world(text_answer("Rain."), store=store) as at:
        stream = await at.client.responses.create(model="gemini/m", input="x", background=True, stream=True)
        events = [event async for event in stream]
        assert events[0].type == "response.created" and events[-1].type == "response.completed"
        stored = await at.client.responses.retrieve(events[-1].response.id)
        assert stored.status == "completed" and stored.output_text == "Rain."


@run
async def test_background_response_needs_a_store():
    async with world(store=None) as at:
        for fields in ({}, {"store": False}):
            with pytest.raises(openai.BadRequestError, match="background"):
                await at.client.responses.create(model="anthropic/m", input="x", background=True, **fields)
        assert at.upstream.requests == []


@run
async def test_upstream_that_stores_responses_runs_them_itself(store):
    rows = {"openai_responses": {"keeps_responses": True}}
    async with Upstream(text_answer("Rain.")) as upstream:
        settings = {
            "upstreams": {name: {**row, **rows.get(name, {})} for name, row in upstream_rows(upstream.url).items()},
            "keys": {"ann": {"hash": hash_key(KEY)}},
            "responses": {"store": store},
        }
        async with serving(settings) as gateway:
            client = client_of(gateway.url, KEY)
            await client.responses.create(model="openai_responses/m", input="x", background=True)
            assert json.loads(upstream.requests[0].body)["background"] is True
            await client.close()


@run
async def test_run_of_a_stopped_process_has_failed_for_others(store):
    """Two gateways share a store; the one that runs the response stops."""
    async with Upstream(SLOW, SLOW) as upstream:
        settings = {
            "upstreams": upstream_rows(upstream.url),
            "keys": {"ann": {"hash": hash_key(KEY)}},
            "responses": {"store": store},
        }
        async with serving(settings) as other:
            reader = client_of(other.url, KEY)
            async with serving(settings) as gateway:
                client = client_of(gateway.url, KEY)
                queued = await client.responses.create(model="anthropic/m", input="x", background=True)
                cancelled = await client.responses.create(model="anthropic/m", input="x", background=True)
                await upstream.wait_for_requests(2)
                assert (await reader.responses.retrieve(queued.id)).status == "in_progress"
                await reader.responses.cancel(cancelled.id)  # ends it in the other process, soon
                await until(lambda: upstream.disconnects >= 1)
                async with gateway.gateway.lifespan():
                    await client.close()
            failed = await reader.responses.retrieve(queued.id)
            assert failed.status == "failed" and "shutting down" in failed.error.message
            assert (await reader.responses.retrieve(cancelled.id)).status == "cancelled"
            await reader.close()


@run
async def test_run_whose_process_was_killed_has_failed(store, monkeypatch):
    """The process does not extend the lock any more: nobody else can tell this from its end."""
    monkeypatch.setattr(background, "_LEASE", 0.05)
    monkeypatch.setattr(background, "_POLL", 60.0)
    async with world(SLOW, store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        await at.upstream.wait_for_requests()
        failed = await finished(at.client, queued.id)
        assert failed.status == "failed" and "stopped" in failed.error.message


@run
async def test_polls_of_a_long_run_take_no_more_memory(store, monkeypatch):
    monkeypatch.setattr(background, "_POLL", 0.001)
    reads = []
    find_response = ResponseState.find_response

    async def counted(self, access, response_id):
        reads.append(bound.used)
        return await find_response(self, access, response_id)

    monkeypatch.setattr(ResponseState, "find_response", counted)
    async with world(SLOW, store=store) as at:
        bound = at.gateway.gateway._memory_bound
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        await at.upstream.wait_for_requests()
        reads.clear()
        await until(lambda: len(reads) > 20)
        assert reads[-1] == reads[1] > 0
        monkeypatch.setattr(background, "_POLL", 60.0)
        await at.client.responses.cancel(queued.id)
        await at.upstream.disconnected()


@run
async def test_answer_that_is_being_stored_is_not_cancelled(store, monkeypatch):
    """A cancellation that arrives while the answer is saved waits, and returns the answer."""
    save, lock = ResponseState.save, SqlResponses.lock
    saving, waiting = asyncio.Event(), asyncio.Event()

    async def slow_save(self, access, entry_id, entry, *more):
        if entry.document.get("status") == "completed":
            saving.set()
            await waiting.wait()
        return await save(self, access, entry_id, entry, *more)

    async def watched_lock(self, owner, entry_id, token, seconds):
        is_locked = await lock(self, owner, entry_id, token, seconds)
        if entry_id.startswith("state_") and not is_locked:
            waiting.set()
        return is_locked

    monkeypatch.setattr(ResponseState, "save", slow_save)
    monkeypatch.setattr(SqlResponses, "lock", watched_lock)
    async with world(text_answer("Rain."), store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        await saving.wait()
        cancelled = await at.client.responses.cancel(queued.id)
        assert (cancelled.status, cancelled.output_text) == ("completed", "Rain.")
        assert (await at.client.responses.retrieve(queued.id)).output_text == "Rain."


@pytest.mark.parametrize("end", ["cancelled", "deleted"])
@run
async def test_ended_response_is_not_replaced_by_its_answer(end, store, monkeypatch):
    """The answer arrives after the run's response was cancelled or deleted."""
    change_running = ResponseState.change_running
    ending, ended = asyncio.Event(), asyncio.Event()

    async def late(self, access, response_id, change, estimate=0):
        if estimate:  # an answer, not a cancellation
            ending.set()
            await ended.wait()
        return await change_running(self, access, response_id, change, estimate)

    monkeypatch.setattr(ResponseState, "change_running", late)
    monkeypatch.setattr(background.BackgroundRuns, "cancel", lambda self, response_id: None)  # as in another process
    async with world(text_answer("Rain."), store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        await ending.wait()
        if end == "cancelled":
            assert (await at.client.responses.cancel(queued.id)).status == "cancelled"
        else:
            await at.client.responses.delete(queued.id)
        ended.set()
        await until(lambda: not at.gateway.gateway._memory_bound.used)
        if end == "cancelled":
            assert (await at.client.responses.retrieve(queued.id)).status == "cancelled"
        else:
            with pytest.raises(openai.NotFoundError):
                await at.client.responses.retrieve(queued.id)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@run
async def test_response_too_large_to_store_has_failed(stream, store):
    big = text_answer("x" * 3000)
    async with world(big, store=store, responses={"max_response_bytes": 2000}) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True, stream=stream)
        response_id = [event async for event in queued][-1].response.id if stream else queued.id
        failed = await finished(at.client, response_id)
        assert failed.status == "failed" and "max_response_bytes" in failed.error.message


@run
async def test_lock_that_a_stopped_process_left_is_awaited_and_reported(monkeypatch):
    monkeypatch.setattr(store_module, "_STATUS_RETRY", 0.001)
    monkeypatch.setattr(store_module, "_STATUS_WAIT", 0.01)
    now = [0.0]
    store = InMemoryResponses(None, lambda: now[0])
    memory, offload = MemoryReservation(MemoryBound(1000)), ClientOffload(Offload(), "ann")
    access = StateAccess(store, "ann", memory, offload, max_bytes=1000, max_values=1000)
    assert await store.lock("ann", "state_resp_1", "stopped", 10)
    with pytest.raises(ResponseStateError) as caught:
        async with access.lock_status("resp_1"):
            raise AssertionError("the lock of another process was ignored")
    assert (caught.value.status, caught.value.code) == (409, "response_locked")
    now[0] = 11.0
    async with access.lock_status("resp_1"):
        assert not await store.lock("ann", "state_resp_1", "another", 10)
    assert await store.lock("ann", "state_resp_1", "another", 10)


@run
async def test_holder_of_a_lost_lock_replaces_nothing(monkeypatch):
    """Its write is late, and another process has cancelled the response meanwhile."""
    now = [0.0]
    store = InMemoryResponses(OwnerBounds(1000, 10), lambda: now[0])
    memory, offload = MemoryReservation(MemoryBound(1000)), ClientOffload(Offload(), "ann")
    access = StateAccess(store, "ann", memory, offload, max_bytes=1000, max_values=1000)
    with pytest.raises(ResponseStateError) as caught:
        async with access.lock_status("resp_1") as late:
            now[0] = 60.0
            async with access.lock_status("resp_1") as other:
                await store.save("ann", "resp_1", b"cancelled", 3600, other)
            await store.save("ann", "resp_1", b"completed", 3600, late)
    assert (caught.value.status, caught.value.code) == (409, "response_locked")
    assert await store.load("ann", ["resp_1"]) == {"resp_1": b"cancelled"}


@pytest.mark.parametrize("failures", [3, 100])
@run
async def test_answer_waits_for_a_store_that_is_unavailable(failures, store, monkeypatch, caplog):
    """It is the only copy: the client reads it later."""
    monkeypatch.setattr(state_module, "SAVE_PAUSES", (0.001,) * 6)
    save, failed = ResponseState.save, []

    async def failing(self, access, entry_id, entry, *more):
        if entry.document.get("status") == "completed" and len(failed) < failures:
            failed.append(entry_id)
            raise StoreError("the shared state of the gateways is unavailable")
        return await save(self, access, entry_id, entry, *more)

    monkeypatch.setattr(ResponseState, "save", failing)
    async with world(text_answer("Rain."), store=store) as at:
        queued = await at.client.responses.create(model="anthropic/m", input="x", background=True)
        ended = await finished(at.client, queued.id)
        assert (ended.status, len(failed)) == (("completed", 3) if failures == 3 else ("failed", 7))
    assert "cannot store a response" in caplog.text
