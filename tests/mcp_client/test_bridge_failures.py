"""A command behind HTTP, whose clients and processes do not behave."""

import asyncio
import json

from mcp_client.client_helpers import misbehaving, until, workshop
from mcp_client.scripted_http_server import events
from mcp_server.server_process import effects_in
from toolwire.mcp import bridge as bridge_module
from toolwire.mcp.bridge import BridgeApp, StdioBridge
from toolwire.mcp.client import ServerSpec, stdio
from toolwire.mcp.protocol.rpc import Notification, RpcRequest
from waiting import SAFETY

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class AppRequest:
    """One HTTP request to the app; `go_away` ends it from the client's side."""

    def __init__(self, app, body=None, session=None, method="POST"):
        self.sent = []
        self._gone = asyncio.Event()
        self._events = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}]
        headers = {"host": "localhost", "content-type": "application/json"}
        headers.update({} if session is None else {"mcp-session-id": session})
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": "/mcp", "headers": raw}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if self._events:
            return self._events.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.sent.append(message)

    def disconnect(self):
        self._gone.set()

    async def done(self):
        await asyncio.wait_for(self.task, SAFETY)
        return self

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def session(self):
        return dict(self.sent[0]["headers"])[b"mcp-session-id"].decode()

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)


def initialize():
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}


def call(name, number=1, meta=None, **arguments):
    params = {"name": name, "arguments": arguments, **({} if meta is None else {"_meta": meta})}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def run(work, spec):
    async def alone():
        before = asyncio.all_tasks()
        app = BridgeApp(spec)
        try:
            await work(app)
        finally:
            await app.close()
        await until(lambda: asyncio.all_tasks() == before)

    asyncio.run(asyncio.wait_for(alone(), 2 * SAFETY))


def test_processes_exit_before_shutdown_completes(tmp_path, monkeypatch):
    monkeypatch.setattr(stdio, "_GRACE", SAFETY)
    effects = tmp_path / "effects"

    async def work(app):
        assert (await AppRequest(app, initialize()).done()).status == 200
        said, heard = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}], []

        async def receive():
            return said.pop(0)

        async def send(message):
            heard.append((message["type"], effects_in(effects)))

        await app({"type": "lifespan"}, receive, send)
        assert heard[-1] == ("lifespan.shutdown.complete", ["input ended"])

    run(work, misbehaving(effects=effects))


def test_command_that_never_answers_initialize_is_terminated():
    async def work(app):
        hello = await AppRequest(app, initialize()).done()
        assert "did not answer initialize within 1 seconds" in str(json.loads(hello.body)["error"])
        assert not app._sessions

    run(work, misbehaving("never-greets", timeout=1.0))


def test_disconnect_during_initialize_leaves_no_process():
    async def work(app):
        hello = AppRequest(app, initialize())
        await asyncio.sleep(0.5)
        hello.disconnect()
        await hello.done()
        assert not app._sessions

    run(work, misbehaving("never-greets", timeout=3600.0))


def test_dead_process_ends_its_session_and_the_shared_process_restarts():
    async def work(app):
        session = (await AppRequest(app, initialize()).done()).session
        died = await AppRequest(app, call("die"), session).done()
        assert "has ended" in str(json.loads(died.body)["error"])
        assert (await AppRequest(app, call("echo", text="?"), session).done()).status == 404
        assert not app._sessions
        await AppRequest(app, call("die", meta=META)).done()
        again = await AppRequest(app, call("echo", meta=META, text="again")).done()
        assert json.loads(again.body)["result"]["content"][0]["text"] == "again"

    run(work, misbehaving())


def test_idle_sessions_are_evicted_at_the_limit(monkeypatch):
    monkeypatch.setattr(bridge_module, "_MAX_SESSIONS", 2)

    async def work(app):
        first, second, third = [(await AppRequest(app, initialize()).done()).session for _ in range(3)]
        assert (await AppRequest(app, call("echo", text="?"), first).done()).status == 404
        waiting = [AppRequest(app, call("silent"), one) for one in (second, third)]
        await until(lambda: all(process.is_in_use for process in app._sessions.values()))
        assert (await AppRequest(app, initialize()).done()).status == 503
        for one in waiting:
            one.task.cancel()
            await asyncio.wait({one.task})

    run(work, misbehaving())


def test_concurrent_deletes_end_the_session_once():
    async def work(app):
        session = (await AppRequest(app, initialize()).done()).session
        ends = [AppRequest(app, session=session, method="DELETE") for _ in range(2)]
        assert sorted([(await one.done()).status for one in ends]) == [200, 404]

    run(work, misbehaving())


def test_cancelled_session_call_ends_without_a_result(tmp_path):
    effects = tmp_path / "effects"

    async def work(app):
        session = (await AppRequest(app, initialize()).done()).session
        slow = AppRequest(app, call("slow", number=7), session)
        await until(lambda: effects_in(effects))
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await AppRequest(app, cancel, session).done()).status == 202
        await slow.done()
        assert b"result" not in slow.body
        await until(lambda: any(one.startswith("cancelled") for one in effects_in(effects)))

    run(work, misbehaving(effects=effects))


def test_client_cannot_cancel_the_call_of_another_client():
    async def work(app):
        nap = AppRequest(app, call("nap", number=1, meta=META, seconds=1.0))
        await asyncio.sleep(0.8)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "_meta": META}}
        await AppRequest(app, cancel).done()
        assert b"error" not in (await nap.done()).body
        assert b"result" in nap.body

    run(work, workshop())


def test_disconnect_from_a_stream_leaves_no_tasks():
    async def work(app):
        nap = AppRequest(app, call("nap", meta={**META, "progressToken": 1}, seconds=30.0))
        await until(lambda: len(nap.sent) > 1)
        nap.disconnect()
        await nap.done()

    run(work, workshop())


def test_subscription_outlives_the_call_timeout_and_ends_on_close(monkeypatch):
    from toolwire.mcp.client import http

    monkeypatch.setattr(http, "_LATER", 0.1)

    async def test():
        opened = asyncio.Event()

        async def stay(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(events().partition(b"content-length")[0] + b"transfer-encoding: chunked\r\n\r\n")
            opened.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(stay, "127.0.0.1", 0)
        async with server:
            heard = []
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
            line = StdioBridge(ServerSpec("x", url=url, timeout=0.2), heard.append)
            line.receive(RpcRequest(1, "subscriptions/listen", {"notifications": {}, "_meta": META}))
            await opened.wait()
            await asyncio.sleep(1.0)
            assert heard == []
            async with asyncio.timeout(SAFETY):
                await line.close()

    asyncio.run(test())


def test_cancelled_bridge_call_closes_the_connection_immediately():
    async def test():
        asked, closed = asyncio.Event(), asyncio.Event()

        async def silent(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            while await reader.read(65536):
                pass
            closed.set()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
            line = StdioBridge(ServerSpec("x", url=url), lambda _: None)
            line.receive(RpcRequest(1, "tools/call", {"name": "pay", "arguments": {}, "_meta": META}))
            await asked.wait()
            line.receive(Notification("notifications/cancelled", {"requestId": 1}))
            async with asyncio.timeout(SAFETY):
                await closed.wait()
            await line.close()

    asyncio.run(test())
