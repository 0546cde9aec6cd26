"""Approvals of an MCP server: by elicitation, or stored for a person."""

import asyncio

import pytest

from run_logs import read_state
from toolwire import open_store, tool
from toolwire.ir.errors import ConfigError
from toolwire.mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolwire.mcp.protocol.rpc import Result, RpcRequest, read, write
from toolwire.mcp.server.conversation import Conversation
from toolwire.mcp.server.server import Server
from toolwire.net import approve_call
from toolwire.net.tools.runner import Runner
from toolwire.run import Policy, Session
from toolwire.wire.mcp.versions import LATEST

ran = []


@tool(effect="write")
def pay(amount: int) -> str:
    """Pay an amount."""
    ran.append(amount)
    return f"paid {amount}"


@pytest.fixture(autouse=True)
def _fresh():
    ran.clear()


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "runs.db"))
    yield opened
    opened.close()


class Client:
    """A client of a server whose writes need approval."""

    def __init__(self, approve, store=None, *, capabilities=("elicitation",)):
        server = Server(pay, policy=Policy(approve=("write",)), approve=approve, store=store, secret=b"x" * 32)
        self._capabilities = {name: {} for name in capabilities}
        self.conversation = Conversation(server, lambda message: None)

    async def pay(self, amount=5, **more):
        meta = {PROTOCOL_VERSION: LATEST, CLIENT_CAPABILITIES: self._capabilities}
        params = {"name": "pay", "arguments": {"amount": amount}, **more, "_meta": meta}
        return read(await self.conversation.handle(write(RpcRequest(1, "tools/call", params)))).result

    def answer(self, asked, content, action="accept"):
        (key,) = asked["inputRequests"]
        return {"inputResponses": {key: {"action": action, "content": content}}, "requestState": asked["requestState"]}


def text_of(result):
    return result["content"][0]["text"]


def test_user_of_a_stateless_client_approves_by_elicitation():
    async def scenario():
        client = Client("elicit")
        asked = await client.pay()
        assert asked["resultType"] == "input_required"
        (question,) = asked["inputRequests"].values()
        assert question["params"]["message"] == 'pay({"amount":5}): pay is a write tool. Approve this call.'
        assert ran == []
        done = await client.pay(**client.answer(asked, {"approve": True}))
        assert (text_of(done), ran) == ("paid 5", [5])

    asyncio.run(scenario())


@pytest.mark.parametrize(("content", "action"), [({"approve": False}, "accept"), ({}, "decline"), ({}, "cancel")])
def test_user_declines_by_elicitation(content, action):
    async def scenario():
        client = Client("elicit")
        asked = await client.pay()
        done = await client.pay(**client.answer(asked, content, action))
        assert done["isError"]
        assert "the user declined" in text_of(done)
        assert ran == []

    asyncio.run(scenario())


def test_elicited_approval_is_valid_for_its_arguments_only():
    async def scenario():
        client = Client("elicit")
        asked = await client.pay()
        answers = client.answer(asked, {"approve": True})["inputResponses"]
        again = await client.pay(500, inputResponses=answers)
        assert again["resultType"] == "input_required"
        assert ran == []

    asyncio.run(scenario())


def test_user_of_a_handshake_client_approves_during_the_call():
    async def scenario():
        server = Server(pay, policy=Policy(approve=("write",)), approve="elicit")
        done = asyncio.get_running_loop().create_future()

        def receive(message):
            if isinstance(message, RpcRequest) and message.method == "elicitation/create":
                conversation.receive(Result(message.id, {"action": "accept", "content": {"approve": True}}))
            elif getattr(message, "id", None) == 2:
                done.set_result(message.result)

        conversation = Conversation(server, receive)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {}}
        conversation.receive(RpcRequest(1, "initialize", hello))
        conversation.receive(RpcRequest(2, "tools/call", {"name": "pay", "arguments": {"amount": 5}}))
        assert text_of(await asyncio.wait_for(done, 300)) == "paid 5"

    asyncio.run(scenario())


@pytest.mark.parametrize(("approve", "capabilities"), [("suspend", ("elicitation",)), ("elicit", ())])
def test_question_is_stored_if_the_operator_decides_or_the_client_cannot_elicit(store, approve, capabilities):
    async def scenario():
        client = Client(approve, store, capabilities=capabilities)
        waiting = await client.pay()
        (run,) = store.runs.list("waiting")
        assert run.run_id in text_of(waiting)
        assert ran == []
        (call,) = Session.load(read_state(store, run.run_id), now=lambda: 0.0).waiting
        approve_call(store, run.run_id, call.call_id)
        assert text_of(await client.pay()) == "paid 5"
        assert "waits for approval" in text_of(await client.pay())
        assert ran == [5]

    asyncio.run(scenario())


def test_calls_are_denied_without_an_approver():
    async def scenario():
        assert "was not approved" in text_of(await Client(None).pay())

    asyncio.run(scenario())


def test_long_arguments_are_not_elicited(store):
    @tool(effect="write")
    def pay(amount: str) -> str:
        """Pay."""
        return ""

    async def scenario():
        server = Server(pay, policy=Policy(approve=("write",)), approve="elicit", store=store)
        client = Client("elicit")
        client.conversation = Conversation(server, lambda message: None)
        assert "waits for approval" in text_of(await client.pay("x" * 5000))

    asyncio.run(scenario())


def test_suspend_needs_a_store():
    with pytest.raises(ConfigError, match="needs a store"):
        Server(pay, approve="suspend")


@pytest.mark.parametrize("option", [{"policy": Policy(approve=("write",))}, {"approve": "elicit"}, {"store": "given"}])
def test_runner_excludes_the_options_that_it_replaces(option, store):
    option = {name: store if value == "given" else value for name, value in option.items()}
    with pytest.raises(ConfigError, match="runner= excludes sources, store, policy and approve"):
        Server(runner=Runner(pay), **option)
    with pytest.raises(ConfigError, match="runner= excludes sources"):
        Server(pay, runner=Runner(pay))
