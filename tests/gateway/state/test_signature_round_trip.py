"""What a provider signs comes back to it, whatever the client drops; and to nobody else."""

import asyncio
import json

import pytest

from chat_client import ChatClient
from serving import WIRES, serving, upstream_rows
from toolwire import tool
from toolwire.bridge.conversation.turns import InMemoryTurns
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.gateway.state.opening import open_state
from toolwire.ir.parts import Artefact, Reasoning, Text, ToolCall
from toolwire.ir.response import Response, Stop, Usage
from toolwire.net.tools.runner import Runner
from toolwire.testing.upstream import Upstream
from waiting import SAFETY

SIGNED = "Rk9PK/8=" * 40 + "\u00fc\u2028"  # not only what base64 has
HISTORY = [{"role": "user", "content": "How warm is it in Paris?"}]
CALL = ToolCall("call_1", "weather", {"city": "Paris", "hours": 24})
DONE = Response(parts=(Text("21 °C"),), stop=Stop("stop"))
KEYS = {name: {"hash": hash_key(f"the key of {name}")} for name in ("ann", "bob")}


def thought(provider, kind):
    return Reasoning("It is about Paris.", artefacts=(Artefact(provider, kind, SIGNED),))


ANSWERS = {
    "gemini": (ToolCall("call_1", "weather", {"city": "Paris"}, artefacts=(Artefact("google", "thought_signature", SIGNED),)),),
    "anthropic": (thought("anthropic", "signature"), CALL),
    "openai_responses": (thought("openai", "encrypted"), CALL),
}  # fmt: skip


def signed(wire):
    return Response(parts=ANSWERS[wire], stop=Stop("tool_calls"), usage=Usage(10, 5))


def artefacts(heard):
    parts = [part for message in heard.request.messages if message.role == "assistant" for part in message.parts]
    return [one.data for part in parts for one in part.artefacts]


@pytest.fixture(params=["memory", "redis"])
def state_row(request):
    return {} if request.param == "memory" else {"url": request.getfixturevalue("redis_url"), "timeout": SAFETY}


async def conversation(state_row, script, go_on, *, stream=False):
    """What the upstream heard; `go_on` is called with a client and the first answer."""
    async with Upstream(*script) as upstream, Upstream(DONE, DONE) as other:
        rows = {**upstream_rows(upstream.url), "elsewhere": {"base_url": other.url, "wire": "anthropic"}}
        document = {"upstreams": rows, "keys": KEYS, "state": state_row}
        state = open_state(parse_settings(document), {})
        try:
            async with (
                serving(document, limiter=state.limiter, turn_store=state.turn_store) as gateway,
                ChatClient([gateway.url], "the key of ann", stream=stream) as client,
            ):
                await go_on(gateway, client)
        finally:
            await state.aclose()
        return upstream.requests, other.requests


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", ANSWERS)
def test_signature_is_restored_byte_for_byte(state_row, wire, stream):
    async def go_on(gateway, client):
        message = await client.ask(f"{wire}/m", HISTORY)
        assert (await client.send_tool_results(f"{wire}/m", HISTORY, message)).status == 200

    heard, _ = asyncio.run(conversation(state_row, [signed(wire), DONE], go_on, stream=stream))
    assert json.dumps(SIGNED, ensure_ascii=False).encode() in heard[1].body
    assert artefacts(heard[1]) == [SIGNED]


@pytest.mark.parametrize("wire", ANSWERS)
def test_signature_is_not_restored_for_another_client(state_row, wire):
    async def go_on(gateway, client):
        message = await client.ask(f"{wire}/m", HISTORY)
        async with ChatClient([gateway.url], "the key of bob") as stranger:
            assert (await stranger.send_tool_results(f"{wire}/m", HISTORY, message)).status == 200

    heard, _ = asyncio.run(conversation(state_row, [signed(wire), DONE], go_on))
    assert SIGNED[:80].encode() not in heard[1].body


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("wire", "to"), [(wire, to) for wire in ANSWERS for to in (*WIRES, "elsewhere") if to != wire])
def test_signature_is_not_sent_to_another_provider(state_row, wire, to):
    async def go_on(gateway, client):
        message = await client.ask(f"{wire}/m", HISTORY)
        assert (await client.send_tool_results(f"{to}/m", HISTORY, message)).status == 200

    heard, elsewhere = asyncio.run(conversation(state_row, [signed(wire), DONE], go_on))
    assert SIGNED[:80].encode() not in (elsewhere[0] if to == "elsewhere" else heard[1]).body


def test_signature_is_not_restored_for_changed_arguments(state_row):
    async def go_on(gateway, client):
        message = await client.ask("anthropic/m", HISTORY)
        message["tool_calls"][0]["function"]["arguments"] = '{"city": "Rome"}'
        assert (await client.send_tool_results("anthropic/m", HISTORY, message)).status == 200

    heard, _ = asyncio.run(conversation(state_row, [signed("anthropic"), DONE], go_on))
    assert SIGNED[:80].encode() not in heard[1].body


def test_signature_kept_by_the_client_is_not_duplicated(state_row):
    async def go_on(gateway, client):
        async def ask(messages):
            body = {"model": "anthropic/m", "max_tokens": 99, "messages": messages, "tools": [{"name": "weather", "input_schema": {"type": "object"}}]}  # fmt: skip
            return (await client.http.post(f"{gateway.url}/v1/messages", body)).json()["content"]

        answer = await ask(HISTORY)
        result = {"type": "tool_result", "tool_use_id": "call_1", "content": "21 °C"}
        await ask([*HISTORY, {"role": "assistant", "content": answer}, {"role": "user", "content": [result]}])
        assert [turn.passed_through for turn in gateway.turns] == [True, True]  # bytes, as they came

    heard, _ = asyncio.run(conversation(state_row, [signed("anthropic"), DONE], go_on))
    assert artefacts(heard[1]) == [SIGNED]


@tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    return f"{name} is 42"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_gateway_tool_results_and_signatures_are_restored_together(state_row, stream):
    both = (*ANSWERS["anthropic"][:1], ToolCall("ours", "look_up", {"name": "x"}), CALL)

    async def ask():
        async with Upstream(Response(parts=both, stop=Stop("tool_calls")), DONE) as upstream:
            document = {"upstreams": upstream_rows(upstream.url), "state": state_row}
            state = open_state(parse_settings(document), {})
            async with (
                serving(document, turn_store=state.turn_store, runners={"*": Runner(look_up)}) as gateway,
                ChatClient([gateway.url], stream=stream) as client,
            ):
                message = await client.ask("anthropic/m", HISTORY)
                assert [call["id"] for call in message["tool_calls"]] == ["call_1"]
                assert (await client.send_tool_results("anthropic/m", HISTORY, message)).status == 200
            await state.aclose()
            return upstream.requests[1]

    heard = asyncio.run(ask())
    assert artefacts(heard) == [SIGNED]
    assert b"x is 42" in heard.body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", ["anthropic", "openai_chat"])
def test_signature_is_stored_before_the_answer_ends(wire, stream):
    """A client may go on at once, and on another machine."""

    class Slow(InMemoryTurns):
        async def save(self, *args):
            await asyncio.sleep(0.2)
            await super().save(*args)

    async def ask():
        call = ToolCall(
            "call_1", "weather", {"city": "Paris"}, artefacts=(Artefact("google", "thought_signature", "c2ln"),)
        )
        answer = Response(parts=(call,), stop=Stop("tool_calls")) if wire == "openai_chat" else signed(wire)
        memory = Slow(10, 10**6, 60.0, lambda: 0.0)
        async with (
            Upstream(answer) as upstream,
            serving({"upstreams": upstream_rows(upstream.url)}, turn_store=memory) as gateway,
        ):
            body = json.dumps({"model": f"{wire}/m", "messages": HISTORY, "stream": stream}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
            writer.write(head.encode() + body)
            await reader.readuntil(b"[DONE]" if stream else b"finish_reason")  # no client waits for more
            known = await memory.load("", ["call_1"])
            writer.close()
            return known

    assert asyncio.run(ask())


def test_signature_is_restored_without_redis_unless_strict(redis_server):
    """…and strict says that it does not."""

    async def go_on(gateway, client):
        message = await client.ask("anthropic/m", HISTORY)
        answers.append((await client.send_tool_results("anthropic/m", HISTORY, message)).status)

    answers = []
    nowhere = {"url": "redis://127.0.0.1:1"}
    heard, _ = asyncio.run(conversation(nowhere, [signed("anthropic"), DONE], go_on))
    assert SIGNED[:80].encode() in heard[1].body
    asyncio.run(conversation({**nowhere, "strict": True}, [signed("anthropic"), DONE], go_on))
    assert answers == [200, 503]
