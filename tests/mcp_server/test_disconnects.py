"""Clients that go away, do not read, or do not answer: the server ends what it can, and waits for nobody who will not come."""

import asyncio
import threading

import pytest

from toolwire import tool
from toolwire.asgi.request import DisconnectWatch
from toolwire.mcp import Server, current_exchange, resource
from toolwire.mcp.protocol.notifications import Progress
from toolwire.mcp.protocol.rpc import Notification, RpcRequest, write
from toolwire.mcp.server.conversation import Conversation
from toolwire.mcp.server.reply_writer import ReplyWriter
from toolwire.mcp.server.sessions import HttpSessions
from toolwire.mcp.server.stdio import LineServer
from toolwire.run.tools.toolbox import Toolbox
from waiting import SAFETY, until

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {}}


@tool
async def order() -> str:
    """Asks before it writes."""
    answer = await current_exchange().elicit("Which one?", {"type": "object"})
    return str(answer)


def test_call_does_not_wait_for_input_of_a_disconnected_client():
    async def test():
        heard = []
        server = Server(Toolbox(order).with_options(timeout=None))
        conversation = Conversation(server, heard.append)
        conversation.receive(RpcRequest(0, "initialize", HELLO))
        conversation.receive(RpcRequest(1, "tools/call", {"name": "order", "arguments": {}}))
        await until(lambda: any(isinstance(one, RpcRequest) for one in heard))
        async with asyncio.timeout(SAFETY):
            await conversation.close(SAFETY)
        assert "disconnected without answering" in str(heard[-1])

    asyncio.run(test())


@pytest.mark.parametrize("turns", range(8))
def test_disconnect_when_the_answer_is_ready_cancels_nothing_later(turns):
    async def test():
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def work():
            gone.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            return "answer"

        assert await DisconnectWatch(receive).run_while_connected(work()) in ("answer", None)
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(test())


def test_cancellation_during_a_client_disconnect_is_not_lost():
    async def test():
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        watching = asyncio.create_task(DisconnectWatch(receive).run_while_connected(asyncio.sleep(3600)))
        await asyncio.sleep(0.01)
        gone.set()
        for _ in range(10):
            if watching.cancelling() == 0:
                await asyncio.sleep(0)
        assert watching.cancelling() == 1
        assert not watching.done()
        watching.cancel()
        await asyncio.wait({watching})
        assert watching.cancelled()

    asyncio.run(test())


def test_progress_is_not_buffered_without_limit_for_a_client_that_does_not_read():
    async def test():
        read = asyncio.Event()

        async def send(message):
            await read.wait()

        reply = ReplyWriter(send)
        for number in range(100_000):
            reply.emit(Progress(1, number).to_notification())
        assert len(reply._queue) < 10_000
        reply.emit(Notification("notifications/tools/list_changed"))
        assert b"list_changed" in reply._queue[-1]
        reply.abandon()
        await asyncio.sleep(0)

    asyncio.run(test())


def test_session_stream_ends_with_the_session():
    async def test():
        sessions = HttpSessions(Server(order))
        session, number = sessions.open("")
        sent = []

        async def send(message):
            sent.append(message)

        streaming = asyncio.create_task(session.stream(ReplyWriter(send)))
        await until(lambda: sent)
        await sessions.end(number)
        async with asyncio.timeout(SAFETY):
            await streaming
        assert sent[-1] == {"type": "http.response.body", "body": b""}

    asyncio.run(test())


def test_session_with_an_open_stream_does_not_expire():
    async def test():
        sessions = HttpSessions(Server(order), idle=0.02)
        session, number = sessions.open("")

        async def send(message):
            pass

        streaming = asyncio.create_task(session.stream(ReplyWriter(send)))
        await asyncio.sleep(0.05)
        sessions.open("")
        assert sessions.find(number, "") is session
        await sessions.close()
        await streaming

    asyncio.run(test())


def test_hanging_resource_does_not_block_shutdown():
    begun, release = threading.Event(), threading.Event()

    @resource("slow://it")
    def slow() -> str:
        """Never comes."""
        begun.set()
        release.wait(SAFETY)
        return ""

    async def test():
        conversation = Conversation(Server(resources=[slow]), lambda _: None)
        conversation.receive(RpcRequest(0, "initialize", HELLO))
        conversation.receive(RpcRequest(1, "resources/read", {"uri": "slow://it"}))
        await until(begun.is_set)
        await conversation.close()

    asyncio.run(test())
    release.set()


class Output:
    """Somewhere that nobody reads."""

    def __init__(self):
        self.written = b""

    def write(self, data):
        self.written += data

    def is_closing(self):
        return False

    def get_write_buffer_size(self):
        return len(self.written)

    def close(self):
        pass


@tool(effect="read")
async def rest() -> str:
    """Take a moment."""
    await asyncio.sleep(0.2)
    return "rested"


def test_started_batch_is_answered_after_end_of_input():
    async def test():
        output = Output()
        lines = LineServer(Server(rest), output)
        hello = {**HELLO, "protocolVersion": "2025-03-26"}
        lines.data_received(write(RpcRequest(0, "initialize", hello)) + b"\n")
        call = write(RpcRequest(1, "tools/call", {"name": "rest", "arguments": {}}))
        lines.data_received(b"[" + call + b"]\n")
        lines.connection_lost(None)
        await lines.close(SAFETY)
        assert output.written.splitlines()[-1].startswith(b"[{")
        assert b"rested" in output.written

    asyncio.run(test())


def test_progress_lines_are_dropped_for_a_client_that_does_not_read():
    async def test():
        output = Output()
        lines = LineServer(Server(rest), output)
        notice = Progress(1, 1, message="x" * 65536).to_notification()
        for _ in range(200):
            lines.emit(notice)
        assert len(output.written) < 6 * 1024 * 1024
        lines.emit(Notification("notifications/tools/list_changed"))
        assert b"list_changed" in output.written[-100:]

    asyncio.run(test())
