"""A server in one process: what its functions are asked, and what becomes of what they say."""

import asyncio
import json
import os
import sys

import pytest

from toolwire import Media, Text, Tool, tool
from toolwire.asgi.access import AccessDenied, Guard
from toolwire.ir.errors import ConfigError
from toolwire.ir.request import Message
from toolwire.mcp import Server, current_exchange, prompt, resource
from toolwire.mcp.protocol.meta import CLIENT_CAPABILITIES, IDEMPOTENCY_KEY, LOG_LEVEL, PROTOCOL_VERSION
from toolwire.mcp.protocol.rpc import Failure, Notification, Result, RpcError, RpcRequest, read, write
from toolwire.mcp.server.conversation import Conversation
from toolwire.mcp.server.offers import make_contents, make_messages
from toolwire.mcp.server.registry import server_json
from toolwire.mcp.server.request_context import InputNeeded
from toolwire.mcp.server.server import RequestState
from toolwire.mcp.server.stdio import serve_stdio
from toolwire.net.stores.memory import MemoryStore
from toolwire.run.tools.toolbox import Entry
from waiting import SAFETY

LATEST = "2026-07-28"
FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ran = []


@tool
async def twice() -> str:
    """Asks two questions and then does something."""
    exchange = current_exchange()
    first = await exchange.elicit("first?", FORM)
    second = await exchange.elicit("second?", FORM)
    ran.append((first["content"]["n"], second["content"]["n"]))
    return f"{first['content']['n']} {second['content']['n']}"


@tool(effect="read")
def in_a_thread() -> str:
    """Reports from a thread."""
    exchange = current_exchange()
    for done in (1, 2, 2, 1, 3):
        exchange.report(done, 3)
    exchange.log("info", "one")
    exchange.log("error", "two")
    return "done"


@tool(effect="read")
async def sampled() -> str:
    """Asks a model."""
    return (await current_exchange().sample([], max_tokens=5))["content"]["text"]


@resource("notes://{day}/{hour}", media_type="text/plain")
def notes(day: str, hour: str) -> str:
    """Notes."""
    return f"{day} {hour}"


@resource("notes://broken")
def broken() -> str:
    """Fails."""
    raise RuntimeError("no disk")


@prompt(complete={"colour": lambda begun: ["red", "rose", "blue"]})
async def paint(colour: str) -> str:
    """Paint."""
    answer = await current_exchange().elicit("sure?", FORM)
    return f"{colour} {answer['content']['n']}"


class RecordedConversation:
    """A conversation of which everything that is said is kept."""

    def __init__(self):
        self.messages = []
        self._coming = asyncio.Queue()
        self.server = Server(
            twice, in_a_thread, sampled, resources=[notes, broken], prompts=[paint], name="s", secret=b"x" * 32
        )
        self.conversation = Conversation(self.server, self._record)

    def _record(self, message):
        self.messages.append(message)
        self._coming.put_nowait(message)

    async def wait_for_message(self, number):
        """Waits for the message with that id."""
        while True:
            message = await self._coming.get()
            if getattr(message, "id", None) == number:
                return message

    async def ask(self, method, params=None, **meta):
        said = {PROTOCOL_VERSION: LATEST, CLIENT_CAPABILITIES: {"elicitation": {}}, **meta}
        message = RpcRequest(len(self.messages) + 100, method, {**(params or {}), "_meta": said})
        return read(await self.conversation.handle(write(message)))

    async def call(self, name, **more):
        meta = more.pop("meta", {})
        return await self.ask("tools/call", {"name": name, "arguments": {}, **more}, **meta)


def accepted(number):
    return {"action": "accept", "content": {"n": number}}


def run(work):
    return asyncio.run(asyncio.wait_for(work(RecordedConversation()), SAFETY))


def test_elicitations_of_a_stateless_call_are_requested_one_at_a_time():
    async def work(talk):
        ran.clear()
        first = (await talk.call("twice")).result
        assert first["resultType"] == "input_required"
        assert first["inputRequests"]["question_1"]["method"] == "elicitation/create"
        again = {"inputResponses": {"question_1": accepted(1)}, "requestState": first["requestState"]}
        second = (await talk.call("twice", **again)).result
        assert list(second["inputRequests"]) == ["question_2"]
        assert ran == []
        last = {"inputResponses": {"question_2": accepted(2)}, "requestState": second["requestState"]}
        done = (await talk.call("twice", **last)).result
        assert done["content"][0]["text"] == "1 2"
        assert ran == [(1, 2)]

    run(work)


def test_invalid_elicitation_answer_is_requested_again():
    async def work(talk):
        wrong = await talk.call("twice", inputResponses={"question_1": accepted("one")})
        assert list(wrong.result["inputRequests"]) == ["question_1"]
        no_object = await talk.call("twice", inputResponses={"question_1": 7})
        assert no_object.code == -32602

    run(work)


def test_request_state_is_valid_only_for_its_own_request():
    async def work(talk):
        state = (await talk.call("twice")).result["requestState"]
        for changed in (state + "x", "x" + state, "", ".", "a.b", state.replace(".", "")):
            assert (await talk.call("twice", requestState=changed)).code == -32602
        elsewhere = await talk.ask("tools/call", {"name": "twice", "arguments": {"a": 1}, "requestState": state})
        assert elsewhere.code == -32602

    run(work)


def test_request_state_expires_and_is_bound_to_its_caller():
    now = [0.0]
    state = RequestState(b"secret", lambda: now[0], lifetime=10)
    sealed = state.seal({"a": 1}, "tools/call", {"name": "t"}, "me")
    assert state.open(sealed, "tools/call", {"name": "t"}, "me") == {"a": 1}
    for method, params, who in (
        ("prompts/get", {"name": "t"}, "me"),
        ("tools/call", {"name": "u"}, "me"),
        ("tools/call", {"name": "t"}, "you"),
    ):
        with pytest.raises(RpcError):
            state.open(sealed, method, params, who)
    with pytest.raises(RpcError):
        RequestState(b"other", lambda: 0.0).open(sealed, "tools/call", {"name": "t"}, "me")
    now[0] = 11.0
    with pytest.raises(RpcError, match="has expired"):
        state.open(sealed, "tools/call", {"name": "t"}, "me")


def test_missing_client_capability_is_an_error():
    async def work(talk):
        refused = await talk.call("sampled")
        assert (refused.code, refused.data) == (-32021, {"requiredCapabilities": {"sampling": {}}})

    run(work)


def test_progress_and_logs_from_a_thread_keep_their_order():
    async def work(talk):
        await talk.call("in_a_thread", meta={"progressToken": "t", LOG_LEVEL: "warning"})
        assert [note.params.get("progress") for note in talk.messages] == [1, 2, 3, None]
        assert talk.messages[-1].params == {"level": "error", "data": "two"}
        talk.messages.clear()
        await talk.call("in_a_thread")
        assert talk.messages == []

    run(work)


def test_elicitation_in_a_handshake_session_is_answered_during_the_call():
    async def work(talk):
        ran.clear()
        hello = {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {}}
        talk.conversation.receive(RpcRequest(1, "initialize", hello))
        talk.conversation.receive(RpcRequest(2, "tools/call", {"name": "twice", "arguments": {}}))
        for number in (1, 2):
            assert (await talk.wait_for_message(f"toolwire-{number}")).method == "elicitation/create"
            talk.conversation.receive(Result("nobody", {}))
            talk.conversation.receive(Result(f"toolwire-{number}", accepted(number)))
        assert (await talk.wait_for_message(2)).result["content"][0]["text"] == "1 2"
        talk.conversation.receive(RpcRequest(3, "tools/call", {"name": "twice", "arguments": {}}))
        await talk.wait_for_message("toolwire-3")
        talk.conversation.receive(Failure("toolwire-3", -1, "not now"))
        refused = (await talk.wait_for_message(3)).result
        assert refused["isError"] is True
        assert "not now" in refused["content"][0]["text"]
        assert ran == [(1, 2)]

    run(work)


def test_request_id_in_use_is_rejected():
    async def work(talk):
        call = {"name": "in_a_thread", "arguments": {}}
        talk.conversation.receive(RpcRequest(1, "initialize", {"protocolVersion": "2025-06-18"}))
        talk.conversation.receive(RpcRequest(5, "tools/call", call))
        talk.conversation.receive(RpcRequest(5, "tools/call", call))
        assert talk.messages[-1].code == -32600
        await talk.conversation.close(5.0)
        assert talk.messages[-1].result["content"][0]["text"] == "done"

    run(work)


def test_subscriptions_are_notified_until_cancelled_and_get_an_end_message():
    async def work(talk):
        server, conversation = talk.server, talk.conversation
        for number, wanted in ((1, {"toolsListChanged": True}), (2, {"resourceSubscriptions": ["notes://a/1"]})):
            said = {PROTOCOL_VERSION: LATEST, CLIENT_CAPABILITIES: {}}
            conversation.receive(RpcRequest(number, "subscriptions/listen", {"notifications": wanted, "_meta": said}))
        talk.messages.clear()
        server.listeners.changed("prompts")
        server.listeners.changed("tools")
        server.listeners.updated("notes://a/1")
        server.listeners.updated("notes://b/1")
        assert [note.method for note in talk.messages] == [
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]
        conversation.receive(Notification("notifications/cancelled", {"requestId": 1}))
        talk.messages.clear()
        server.listeners.changed("tools")
        assert talk.messages == []
        await conversation.close()
        assert talk.messages[-1].id == 2
        assert len(server.listeners) == 0

    run(work)


def test_resources_completions_and_prompts_are_served():
    async def work(talk):
        note = await talk.ask("resources/read", {"uri": "notes://a%20b/7"})
        assert note.result["contents"] == [{"uri": "notes://a%20b/7", "mimeType": "text/plain", "text": "a b 7"}]
        assert note.result["ttlMs"] == 60_000
        failed = await talk.ask("resources/read", {"uri": "notes://broken"})
        assert (failed.code, "no disk" in failed.message) == (-32603, True)
        ref = {"ref": {"type": "ref/prompt", "name": "paint"}, "argument": {"name": "colour", "value": "r"}}
        found = await talk.ask("completion/complete", ref)
        assert found.result["completion"] == {"values": ["red", "rose"], "total": 2, "hasMore": False}
        assert (await talk.ask("completion/complete", {})).code == -32602
        missing = await talk.ask("prompts/get", {"name": "paint"})
        assert missing.code == -32602
        wanted = await talk.ask("prompts/get", {"name": "paint", "arguments": {"colour": "red"}})
        assert wanted.result["resultType"] == "input_required"
        answers = {"inputResponses": {"question_1": accepted(3)}, "requestState": wanted.result["requestState"]}
        done = await talk.ask("prompts/get", {"name": "paint", "arguments": {"colour": "red"}, **answers})
        assert done.result["messages"] == [{"role": "user", "content": {"type": "text", "text": "red 3"}}]

    run(work)


def test_template_variables_must_match_the_function_parameters():
    with pytest.raises(ConfigError, match="do not match the parameters"):

        @resource("notes://{day}")
        def wrong(hour: str) -> str:
            return hour


def test_return_values_become_resource_contents_and_prompt_messages():
    assert make_contents(b"\x00", "u", None) == [{"uri": "u", "mimeType": "application/octet-stream", "blob": "AA=="}]
    assert make_contents({"a": 1}, "u", None) == [{"uri": "u", "mimeType": "application/json", "text": '{"a":1}'}]
    assert make_contents([Text("x"), "y"], "u", None) == [{"uri": "u", "text": "x"}, {"uri": "u", "text": "y"}]
    assistant = Message("assistant", (Text("a"), Media("image", "image/png", "AA==")))
    assert [one["role"] for one in make_messages(["q", assistant])] == ["user", "assistant", "assistant"]
    with pytest.raises(ConfigError):
        make_messages(7)


def test_needed_input_is_requested_before_any_effect():
    needed = InputNeeded()
    assert needed.before_effect
    assert needed.retry_after == float("inf")


def test_host_origin_and_token_are_checked():
    guard = Guard(("tools.example.com", "localhost:8000"), ("https://app.example.com",), {"t": "me"})
    good = {"host": "tools.example.com:443", "authorization": "Bearer t"}
    assert guard.admit(good) == "me"
    assert guard.admit({**good, "origin": "https://app.example.com"}) == "me"
    for changed, status in (
        ({"host": ""}, 403),
        ({"host": "localhost:9000"}, 403),
        ({"origin": "https://evil.example.com"}, 403),
        ({"origin": "http://[broken"}, 403),
        ({"origin": "file://tools.example.com"}, 403),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Bearer \udcff"}, 401),
    ):
        with pytest.raises(AccessDenied) as caught:
            guard.admit({**good, **changed})
        assert caught.value.status == status
    assert Guard(("*",)).admit({"host": "anything"}) == ""


@tool
async def paid() -> str:
    """Pays."""
    ran.append("paid")
    return "paid"


@pytest.mark.parametrize(("is_given", "kept"), [(False, 1), (True, 3)])
def test_without_a_store_only_calls_with_a_key_are_recorded(monkeypatch, is_given, kept):
    store = MemoryStore()
    monkeypatch.setattr("toolwire.mcp.server.server.open_store", lambda _: store)
    ran.clear()

    async def work(talk):
        talk.conversation = Conversation(Server(paid, store=store if is_given else None), talk.messages.append)
        for meta in ({}, {}, {IDEMPOTENCY_KEY: "k"}, {IDEMPOTENCY_KEY: "k"}):
            assert (await talk.call("paid", meta=meta)).result["content"][0]["text"] == "paid"

    run(work)
    assert ran == ["paid"] * 3
    assert len(store.records()) == kept


def test_losses_in_a_tool_declaration_are_logged(caplog):
    declared = Entry(Tool("t", examples=({"a": 1},)), lambda: None)
    Server(declared).catalog.list_result("tools/list", {}, LATEST)
    assert "examples" in caplog.text


def test_server_json_is_validated():
    document = server_json("io.github.me/weather", "1.0.0", "Weather.", pypi="my-weather", url="https://e.com/mcp")
    assert document["packages"][0]["identifier"] == "my-weather"
    assert document["remotes"] == [{"type": "streamable-http", "url": "https://e.com/mcp"}]
    good = {"name": "io.github.me/x", "version": "1.0.0", "description": "x", "pypi": "p"}
    for changed in (
        {"name": "weather"},
        {"name": "a/b"},
        {"version": "^1.0"},
        {"version": "latest"},
        {"description": ""},
        {"description": "x" * 101},
        {"pypi": None},
        {"url": "http://e.com"},
        {"repository": "https://sr.ht/x"},
    ):
        with pytest.raises(ConfigError):
            server_json(**{**good, **changed})
    assert json.dumps(server_json(**good, title="T", repository="https://github.com/me/x"))


@pytest.mark.anyio
async def test_interrupt_of_the_last_wait_cancels_the_calls():
    """The input has ended and a call runs; then Ctrl-C cancels the wait for it."""
    started, ended = asyncio.Event(), []

    async def call():
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    conversation = Conversation(Server(store=MemoryStore()), lambda message: None)
    conversation.track(1, call())
    async with asyncio.timeout(SAFETY):
        await started.wait()
        closing = asyncio.create_task(conversation.close(SAFETY))
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
    assert ended == [True]


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("effect", ["read", "write"])
def test_interrupted_server_has_no_call_in_progress_when_it_returns(effect, is_batch, monkeypatch):
    """Then its caller closes the store, which the end of a call uses. A read is cancelled, a write is finished."""
    ended = []

    async def main():
        started, released = asyncio.Event(), asyncio.Event()

        @tool(effect=effect)
        async def wait() -> str:
            """Wait until released or cancelled."""
            started.set()
            try:
                await released.wait()
                ended.append("write")
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                ended.append("read")
                raise
            return "waited"

        call = {"name": "wait", "arguments": {}}
        hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        request = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        lines = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            [request] if is_batch else request,
        ]
        server = Server(wait, store=MemoryStore())
        serving = asyncio.create_task(serve_stdio(server))
        os.write(writing, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        async with asyncio.timeout(SAFETY):
            await started.wait()
            os.write(writing, json.dumps({**request, "id": 3}).encode() + b"\n")
            serving.cancel()
            if effect == "write":
                asyncio.get_running_loop().call_later(0.01, released.set)
            await asyncio.wait([serving])
        assert ended == [effect]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        server.close()

    reading, writing = os.pipe()
    with os.fdopen(reading) as source:
        monkeypatch.setattr(sys, "stdin", source)
        asyncio.run(main())
    os.close(writing)
