"""The contents of stored responses: reasoning, hosted items, truncated answers, calls that the gateway ran or parsed itself."""

from __future__ import annotations

import json

import pytest

from hostile import run
from responses_sdk import WEATHER, create, text_answer, world
from toolwire import Response, Runner, Text, ToolCall, tool
from toolwire.ir.parts import Artefact, Opaque, Reasoning, Refusal, ToolResult
from toolwire.ir.response import Stop

pytestmark = pytest.mark.finding("G5")
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "responses.db")


@tool(effect="read")
def order_status(number: int) -> str:
    """Get the status of an order."""
    return f"order {number} is shipped"


@MODES
@run
async def test_same_wire_items_return_as_the_upstream_made_them(stream, store):
    """The client sees the gateway's ids; the upstream gets its own ids and its encrypted reasoning back."""
    own = {"openai_responses": {"id": "rs_upstream"}}
    search = {"type": "web_search_call", "id": "ws_upstream", "status": "completed"}
    said = Response(
        id="resp_upstream",
        parts=(
            Reasoning("", ("Thinking.",), (Artefact("openai", "encrypted", "ZW5jcnlwdGVk"),), own),
            Opaque("openai_responses", "web_search_call", search),
            Text("Found."),
        ),
        stop=Stop("stop"),
    )
    async with world(said, text_answer("Yes."), text_answer("No."), store=store) as at:
        fields = {"model": "openai_responses/m", "stream": stream}
        first = await create(at.client, input="Search!", **fields)
        digits = first.id.removeprefix("resp_")
        assert [item.id for item in first.output] == [f"rs_{digits}_0", f"item_{digits}_1", f"msg_{digits}_2"]
        await create(at.client, input="Sure?", previous_response_id=first.id, **fields)
        sent = json.loads(at.upstream.requests[-1].body)["input"]
        assert [item.get("type", "message") for item in sent] == [
            "message",
            "reasoning",
            "web_search_call",
            "message",
            "message",
        ]
        assert (sent[1]["id"], sent[1]["encrypted_content"], sent[2]["id"]) == (
            "rs_upstream",
            "ZW5jcnlwdGVk",
            "ws_upstream",
        )
        assert digits not in at.upstream.requests[-1].body.decode()
        references = [{"type": "item_reference", "id": item.id} for item in first.output]
        await create(at.client, input=references, **fields)
        assert json.loads(at.upstream.requests[-1].body)["input"] == sent[1:4]


@MODES
@run
async def test_truncated_answer_is_stored_and_continued(stream, store):
    cut = Response(parts=(Text("Once upon"),), stop=Stop("length"))
    async with world(cut, text_answer(" a time."), store=store) as at:
        first = await create(at.client, stream=stream, model="anthropic/m", input="A story", max_output_tokens=16)
        assert first.status == "incomplete"
        assert (await at.client.responses.retrieve(first.id)).incomplete_details.reason == "max_output_tokens"
        await create(at.client, stream=stream, model="anthropic/m", input="Go on", previous_response_id=first.id)
        assert [text for _, text in at.history()] == ["A story", "Once upon", "Go on"]


@MODES
@run
async def test_refusal_is_stored_as_a_refusal(stream, store):
    refused = Response(parts=(Refusal("I cannot."),), stop=Stop("refusal"))
    async with world(refused, text_answer("Fine."), store=store) as at:
        first = await create(at.client, stream=stream, model="openai_chat/m", input="Do it")
        assert first.output[0].content[0].refusal == "I cannot."
        await create(at.client, stream=stream, model="openai_chat/m", input="Why?", previous_response_id=first.id)
        assert [text for _, text in at.history()] == ["Do it", "I cannot.", "Why?"]


@MODES
@run
async def test_calls_of_the_gateway_are_hidden_from_the_client_and_return_to_the_model(stream, store):
    called = Response(parts=(ToolCall("c1", "order_status", {"number": 7}),), stop=Stop("tool_calls"))
    script = (called, text_answer("It is shipped."), text_answer("Welcome."))
    async with world(*script, store=store, options={"runners": {"*": Runner(order_status)}}) as at:
        first = await create(at.client, stream=stream, model="anthropic/m", input="Where is 7?")
        assert [item.type for item in first.output] == ["message"] and first.output_text == "It is shipped."
        await create(at.client, stream=stream, model="anthropic/m", input="Thanks", previous_response_id=first.id)
        listed = (await at.client.responses.retrieve(first.id)).output
        assert [item.type for item in listed] == ["message"]
        assert [text for _, text in at.history()] == [
            "Where is 7?",
            "order_status",
            "order 7 is shipped",
            "It is shipped.",
            "Thanks",
        ]


@MODES
@run
async def test_emulated_calls_are_stored_as_calls(stream, store):
    models = {"small": {"upstream": "openai_chat", "model": "m", "emulate": "hermes"}}
    said = text_answer('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>')
    async with world(said, text_answer("Cold."), store=store, models=models) as at:
        fields = {"tools": [WEATHER], "stream": stream}
        first = await create(at.client, model="small", input="Weather in Oslo?", **fields)
        [call] = first.output
        assert (call.type, json.loads(call.arguments)) == ("function_call", {"city": "Oslo"})
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "-3"}
        await create(at.client, model="anthropic/m", input=[result], previous_response_id=first.id, **fields)
        parts = [part for message in at.upstream.requests[-1].request.messages for part in message.parts]
        assert [type(part) for part in parts] == [Text, ToolCall, ToolResult]


@MODES
@run
async def test_servers_that_number_their_calls_from_zero_get_unique_item_ids(stream, store):
    said = Response(parts=(ToolCall("call_0", "get_weather", {"city": "Oslo"}),), stop=Stop("tool_calls"))
    again = Response(parts=(ToolCall("call_0", "get_weather", {"city": "Rome"}),), stop=Stop("tool_calls"))
    async with world(said, again, text_answer("x"), store=store) as at:
        fields = {"model": "openai_chat/m", "tools": [WEATHER], "stream": stream}
        first = await create(at.client, input="Oslo?", **fields)
        second = await create(at.client, input="Rome?", **fields)
        assert first.output[0].id != second.output[0].id
        result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "-3"}
        await create(at.client, input=[{"type": "item_reference", "id": first.output[0].id}, result], **fields)
        [call, _] = [part for message in at.upstream.requests[-1].request.messages for part in message.parts]
        assert call.arguments == {"city": "Oslo"}


@MODES
@run
async def test_system_messages_of_the_input_are_part_of_the_conversation(stream, store):
    """Only the field `instructions` is not inherited."""
    content = [{"type": "input_text", "text": "Be"}, {"type": "input_text", "text": " kind."}]
    async with world(text_answer("Hi."), text_answer("Bye."), store=store) as at:
        items = [{"role": "system", "content": content}, {"role": "user", "content": "Hello"}]
        first = await create(at.client, stream=stream, model="openai_chat/m", input=items)
        await create(at.client, stream=stream, model="openai_chat/m", input="Bye", previous_response_id=first.id)
        assert "".join(text for _, text in at.history()) == "Be kind.HelloHi.Bye"


@run
async def test_events_of_a_stored_stream_carry_one_id(store):
    async with world(text_answer("Rain."), store=store) as at:
        events = [event async for event in await at.client.responses.create(model="gemini/m", input="?", stream=True)]
        whole = [event.response for event in events if hasattr(event, "response")]
        assert len({response.id for response in whole}) == 1 and all(response.store for response in whole)
        items = {event.item_id for event in events if hasattr(event, "item_id")}
        assert items == {whole[-1].output[0].id}
