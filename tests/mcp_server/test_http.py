"""The ASGI app without a server: who goes away, and what is left of it."""

import asyncio
import json
import re
import threading

import pytest

from tables import every_case
from toolwire import ToolError, tool
from toolwire.asgi.access import Guard
from toolwire.mcp import HttpApp, Server, current_exchange, resource
from toolwire.mcp.protocol.rpc import RpcError
from toolwire.mcp.server.reply_writer import ReplyWriter
from toolwire.mcp.server.sessions import HttpSessions
from toolwire.run.tools.function_tool import Parameters
from virtual_time import run_virtual

LATEST = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": LATEST, "io.modelcontextprotocol/clientCapabilities": {}}
finished = []


@tool(effect="read")
async def nap(seconds: float) -> str:
    """Sleep, after a word."""
    current_exchange().report(1)
    try:
        await asyncio.sleep(seconds)
    finally:
        finished.append("woken" if seconds > 1 else "rested")
    return "rested"


class Request:
    """One request to the app, of which the client may go away."""

    def __init__(self, app, body, headers=(), method="POST"):
        self.sent = []
        self._app = app
        self._gone = asyncio.Event()
        self._events = [{"type": "http.request", "body": json.dumps(body).encode()}]
        usual = {"host": "localhost", "content-type": "application/json", **dict(headers)}
        raw = [(name.encode(), value.encode()) for name, value in usual.items()]
        self.scope = {"type": "http", "method": method, "path": "/mcp", "headers": raw}
        self.started = asyncio.Event()

    async def _receive(self):
        if self._events:
            return self._events.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.sent.append(message)
        if len(self.sent) > 1:
            self.started.set()

    def disconnect(self):
        self._gone.set()

    async def run(self):
        await self._app(self.scope, self._receive, self._send)
        return self

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent[1:])


def stateless(seconds):
    params = {"name": "nap", "arguments": {"seconds": seconds}, "_meta": {**META, "progressToken": 1}}
    headers = {"mcp-protocol-version": LATEST, "mcp-method": "tools/call", "mcp-name": "nap"}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


async def session(app, address="10.0.0.1"):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    greeting = Request(app, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    greeting.scope["client"] = (address, 1234)
    await greeting.run()
    return {"mcp-session-id": dict(greeting.sent[0]["headers"])[b"mcp-session-id"].decode()}


def handshake(seconds, number=1):
    params = {"name": "nap", "arguments": {"seconds": seconds}, "_meta": {"progressToken": 1}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def run(work):
    finished.clear()

    async def alone():
        before = asyncio.all_tasks()
        await asyncio.wait_for(work(HttpApp(Server(nap))), 30)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before, "something was left behind"

    run_virtual(alone())


def test_client_disconnect_cancels_a_stateless_request():
    async def work(app):
        body, headers = stateless(30)
        request = Request(app, body, headers)
        running = asyncio.create_task(request.run())
        await request.started.wait()
        request.disconnect()
        await running
        assert finished == ["woken"]
        assert b'"result"' not in request.body

    run(work)


def test_client_disconnect_does_not_cancel_a_session_request():
    async def work(app):
        headers = await session(app)
        request = Request(app, handshake(0.2), headers)
        running = asyncio.create_task(request.run())
        await request.started.wait()
        request.disconnect()
        await running
        assert finished == []
        await asyncio.sleep(0.5)
        assert finished == ["rested"]

    run(work)


def test_request_id_in_use_by_a_session_is_rejected():
    async def work(app):
        headers = await session(app)
        first = Request(app, handshake(0.1), headers)
        running = asyncio.create_task(first.run())
        await first.started.wait()
        second = await Request(app, handshake(0.1), headers).run()
        assert (second.sent[0]["status"], json.loads(second.body)["error"]["code"]) == (400, -32600)
        await running
        assert b'"rested"' in first.body

    run(work)


def test_client_without_stream_support_gets_a_json_answer():
    async def work(app):
        body, headers = stateless(0)
        request = await Request(app, body, {**headers, "accept": "application/json"}).run()
        assert json.loads(request.body)["result"]["content"][0]["text"] == "rested"

    run(work)


def test_truncated_body_is_rejected():
    async def work(app):
        body, headers = stateless(0)
        request = Request(app, body, headers)
        request._events = [{"type": "http.disconnect"}]
        await request.run()
        assert request.sent[0]["status"] == 400
        assert finished == []

    run(work)


def test_body_above_the_limit_is_rejected():
    async def work(_):
        body, headers = stateless(0)
        request = await Request(HttpApp(Server(nap), limit=50), body, headers).run()
        assert request.sent[0]["status"] == 413

    run(work)


def test_lifespan_events_are_acknowledged():
    async def work(app):
        said = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        heard = []

        async def receive():
            return said.pop(0)

        async def send(message):
            heard.append(message["type"])

        await session(app)
        await app({"type": "lifespan"}, receive, send)
        assert heard == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    run(work)


def test_idle_and_surplus_sessions_are_removed():
    async def work():
        sessions = HttpSessions(Server(nap), max_sessions=2)
        numbers = [sessions.open("")[1] for _ in range(3)]
        with pytest.raises(RpcError):
            sessions.find(numbers[0], "")
        assert sessions.find(numbers[2], "")
        with pytest.raises(RpcError):
            sessions.find(numbers[2], "somebody else")
        idle = HttpSessions(Server(nap), idle=0.0)
        _, old = idle.open("")
        await asyncio.sleep(0.01)
        idle.open("")
        with pytest.raises(RpcError):
            idle.find(old, "")
        await sessions.close()
        await idle.close()

    asyncio.run(work())


@pytest.mark.finding("RU7")
@pytest.mark.parametrize(("principal", "other"), [("", ""), ("", "key"), ("key", "other key"), ("key", "")])
def test_client_with_many_sessions_evicts_only_its_own(principal, other):
    async def work():
        sessions = HttpApp(Server(nap))._sessions
        _, used = sessions.open(principal, "10.0.0.1")
        _, first = sessions.open(other, "10.0.0.2")
        for _ in range(1_200):
            _, last = sessions.open(other, "10.0.0.2")
        assert sessions.find(used, principal)
        assert sessions.find(last, other)
        with pytest.raises(RpcError):
            sessions.find(first, other)
        assert len(sessions._sessions) == 1 + 1000
        await sessions.close()
        assert not sessions._by_owner

    asyncio.run(work())


@pytest.mark.finding("RU7")
def test_session_with_an_open_stream_outlives_idle_ones_of_its_client():
    async def work():
        sessions = HttpSessions(Server(nap), max_per_client=2)
        streaming, stream_id = sessions.open("key")
        streaming._streams.append(ReplyWriter(None))
        _, idle = sessions.open("key")
        sessions.open("key")
        assert sessions.find(stream_id, "key")
        with pytest.raises(RpcError):
            sessions.find(idle, "key")
        await sessions.close()

    asyncio.run(work())


@pytest.mark.finding("RU7")
@pytest.mark.parametrize(
    "addresses",
    [
        ("10.0.0.1", "10.0.0.2", "10.0.0.2"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", "10.0.0.2"),
        ("2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:1::2"),
    ],
)
def test_clients_without_keys_are_told_apart_by_their_networks(addresses):
    async def work():
        app = HttpApp(Server(nap))
        app._sessions._max_per_client = 1
        found = []
        for address in addresses:
            found.append((await session(app, address))["mcp-session-id"])
        assert app._sessions.find(found[0], "")
        with pytest.raises(RpcError):
            app._sessions.find(found[1], "")
        await app.close()

    asyncio.run(work())


@pytest.mark.finding("Z7")
@every_case(
    ("server", "options", "status"),
    [
        (("127.0.0.1", 8000), {}, 200),
        (("::1", 8000), {}, 200),
        (("::ffff:127.0.0.1", 8000), {}, 200),
        (("testserver", 80), {}, 200),
        (("/run/mcp.sock", None), {}, 200),
        (None, {}, 200),
        (("192.168.1.5", 8000), {}, 403),
        (("2001:db8::1", 8000), {}, 403),
        (("::ffff:192.168.1.5", 8000), {}, 403),
        (("192.168.1.5", 8000), {"hosts": ("localhost:8000", "localhost")}, 403),
        (("192.168.1.5", 8000), {"tokens": {"secret": "me"}}, 200),
        (("192.168.1.5", 8000), {"hosts": ("localhost", "tools.example.com")}, 200),
    ],
)
def test_app_without_a_token_serves_only_loopback_clients(server, options, status):
    """The client calls it `localhost`, wherever it is: only the address of the connection tells."""

    async def work():
        app = HttpApp(Server(nap), guard=Guard(**options))
        body, headers = stateless(0)
        request = Request(app, body, {**headers, "authorization": "Bearer secret", "accept": "application/json"})
        request.scope["server"] = server
        await request.run()
        return request

    request = asyncio.run(work())
    assert request.sent[0]["status"] == status
    if status == 403:
        assert b"without a token only clients on this machine are served" in request.body


@tool(effect="read")
def read_row() -> str:
    raise ConnectionError("cannot connect to postgresql://admin:hunter2@10.0.0.5/db")


@tool(effect="write")
def write_row() -> str:
    raise ValueError("hunter2")


@tool(effect="read")
def refuse() -> str:
    raise ToolError("there is no such row")


class Unencodable:
    def model_dump(self, mode):
        raise RuntimeError("hunter2")


@tool(effect="read")
def unencodable() -> object:
    return Unencodable()


@pytest.mark.finding("Z25")
@pytest.mark.parametrize("name", ["read_row", "write_row", "unencodable"])
def test_exceptions_of_tools_stay_in_the_log(name, caplog):
    async def main():
        app = HttpApp(Server(read_row, write_row, unencodable))
        params = {"name": name, "arguments": {}, "_meta": META}
        headers = {"mcp-protocol-version": LATEST, "mcp-method": "tools/call", "mcp-name": name}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await Request(app, body, headers).run()

    request = asyncio.run(main())
    text = b"".join(message.get("body", b"") for message in request.sent).decode()
    assert "hunter2" not in text and "Error" not in text.replace("isError", "")
    [error_id] = re.findall(r"internal error ([0-9a-f]{8})", text)
    [record] = [record for record in caplog.records if error_id in record.getMessage()]
    assert "hunter2" in record.getMessage()


@pytest.mark.finding("Z25")
def test_refusals_of_tools_reach_the_client():
    async def main():
        params = {"name": "refuse", "arguments": {}, "_meta": META}
        headers = {"mcp-protocol-version": LATEST, "mcp-method": "tools/call", "mcp-name": "refuse"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await Request(HttpApp(Server(refuse)), body, headers).run()

    assert b"there is no such row" in b"".join(message.get("body", b"") for message in asyncio.run(main()).sent)


@pytest.mark.finding("Z25")
def test_exceptions_of_resources_stay_in_the_log(caplog):
    @resource("row://1")
    def row() -> str:
        raise ValueError("hunter2")

    async def main():
        params = {"uri": "row://1", "_meta": META}
        headers = {"mcp-protocol-version": LATEST, "mcp-method": "resources/read", "mcp-name": "row://1"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}
        return await Request(HttpApp(Server(resources=[row])), body, headers).run()

    text = b"".join(message.get("body", b"") for message in asyncio.run(main()).sent).decode()
    assert "hunter2" not in text
    [error_id] = re.findall(r"internal error ([0-9a-f]{8})", text)
    assert any(error_id in record.getMessage() and record.exc_info for record in caplog.records)


@pytest.mark.finding("Z11")
def test_message_with_too_many_values_is_refused():
    async def main():
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"x": [1] * 200_000}}
        return await Request(HttpApp(Server(refuse)), body).run()

    request = asyncio.run(main())
    assert request.sent[0]["status"] == 413
    assert b"200,005 JSON values; the limit is 100,000" in request.sent[1]["body"]


@pytest.mark.finding("Z11")
def test_batch_with_too_many_values_is_refused():
    async def main():
        app = HttpApp(Server(refuse))
        return await Request(app, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * 40_000, await session(app)).run()

    request = asyncio.run(main())
    assert request.sent[0]["status"] == 413
    assert b"the limit is 100,000" in request.sent[1]["body"]


LARGE_ARGUMENTS = {
    "values": {"rows": [None] * 90_000},
    "members": {str(number): number for number in range(45_000)},
    "text": {"rows": "x" * 100_000},
}


def call_of_add_rows(arguments):
    params = {"name": "add_rows", "arguments": arguments, "_meta": META}
    headers = {"mcp-protocol-version": LATEST, "mcp-method": "tools/call", "mcp-name": "add_rows"}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


@pytest.mark.finding("Z11")
@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("arguments", [{"rows": []}, *LARGE_ARGUMENTS.values()], ids=["small", *LARGE_ARGUMENTS])
def test_only_large_arguments_are_checked_in_a_thread(monkeypatch, effect, arguments):
    """The checks of large arguments take hundreds of milliseconds, for which other clients would wait."""
    threads = []

    @tool(effect=effect)
    async def add_rows(rows: list[int]) -> int:
        threads.append(("function", threading.get_ident()))
        return len(rows)

    def record_thread(parameters, given):
        threads.append(("check", threading.get_ident()))
        return accept(parameters, given)

    async def main():
        return await Request(HttpApp(Server(add_rows)), *call_of_add_rows(arguments)).run()

    accept = Parameters.accept
    monkeypatch.setattr(Parameters, "accept", record_thread)
    request = asyncio.run(main())
    assert request.sent[0]["status"] == 200
    own = threading.get_ident()
    is_small = arguments == {"rows": []}
    checks = [thread for name, thread in threads if name == "check"]
    assert checks
    assert all((thread == own) is is_small for thread in checks)
    assert [thread for name, thread in threads if name == "function"] == [own] * is_small
