"""Servers that are closed, or given up, while something is under way: nothing starts again, and nobody is left behind."""

import asyncio
import subprocess
import sys

import pytest

from mcp_client.client_helpers import McpClient, misbehaving, run, tool_call, toolbox_of, until
from mcp_server.server_process import effects_in
from toolwire.mcp.client import McpServers, ServerGone, ServerSpec
from toolwire.mcp.client.stdio import StdioLink
from toolwire.net.tools.runner import Runner
from waiting import SAFETY

SLEEPS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"


def processes(words):
    return subprocess.run(["pgrep", "-f", str(words)], capture_output=True, check=False).stdout.split()


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


def identifiable_server(effects, *options, **settings):
    """A server whose processes can be told from all others."""
    return misbehaving(str(effects), *options, effects=effects, **settings)


def test_server_closed_during_a_call_is_not_restarted(effects):
    async def test():
        async with toolbox_of(identifiable_server(effects)) as (_, box):
            call = asyncio.create_task(Runner(box).run([tool_call("slow")]))
            await until(lambda: effects_in(effects))
        await call
        await asyncio.sleep(1.5)  # longer than it pauses before it opens a connection again
        assert not processes(effects)

    run(test())


def test_closed_client_does_not_reconnect_by_itself(effects):
    async def test():
        async with McpClient(identifiable_server(effects)) as client:
            pass
        with pytest.raises(ServerGone, match="it is closed") as gone:
            await client.call(tool_call("echo", text="?"))
        assert not gone.value.sent
        assert not processes(effects)
        await client.connect()
        assert (await client.call(tool_call("echo", text="again"))).text == "again"
        await client.close()

    run(test())


def test_client_closed_while_connecting_leaves_no_process(effects):
    async def test():
        client = McpClient(identifiable_server(effects, "never-greets", timeout=3600.0))
        connecting = asyncio.create_task(client.connect())
        await until(lambda: processes(effects))
        await asyncio.sleep(0.3)
        await client.close()
        async with asyncio.timeout(SAFETY):
            with pytest.raises(ServerGone):
                await connecting
        await until(lambda: not processes(effects))

    run(test())


def test_client_closed_while_the_old_connection_closes_opens_no_new_one(monkeypatch):
    opened = []

    class SlowLink:
        """A connection that stays open until it is closed, and has no requests."""

        has_pending = False

        def __init__(self):
            self.closing, self.may_close = asyncio.Event(), asyncio.Event()

        async def close(self):
            self.closing.set()
            await self.may_close.wait()

    async def test():
        client = McpClient(ServerSpec("s", url="http://127.0.0.1:9/mcp"))
        monkeypatch.setattr(client.connection, "_make_link", lambda: opened.append(1))
        client.connection.link = old = SlowLink()
        restoring = asyncio.create_task(client.restore())
        await old.closing.wait()
        await client.close()
        old.may_close.set()
        async with asyncio.timeout(SAFETY):
            with pytest.raises(ServerGone, match="it is closed"):
                await restoring
        assert not opened

    run(test())


def test_stdio_connection_closed_while_opening_leaves_no_process(effects):
    async def test():
        link = StdioLink(identifiable_server(effects), lambda _: None, lambda _: None)
        opening = asyncio.create_task(link.open())
        await asyncio.sleep(0)
        await link.close()
        with pytest.raises(ServerGone, match="was closed"):
            await opening
        assert not processes(effects)

    run(test())


def test_cancelled_connect_to_several_servers_leaves_none_running(effects):
    async def test():
        with pytest.raises(TimeoutError):
            async with (
                asyncio.timeout(2),
                McpServers([identifiable_server(effects), misbehaving("never-greets", name="n")]),
            ):
                pass
        await until(lambda: not processes(effects))

    run(test())


def test_server_that_never_initializes_does_not_affect_the_others():
    async def test():
        mute = misbehaving("dies-of-discover", "never-greets", name="mute", timeout=1.0, start_timeout=1.0)
        async with McpServers([mute, misbehaving()]) as servers:
            assert [str(one) for one in servers.problems if one.server == "mute"] == [
                "mute: mute did not initialize within 1 seconds"
            ]
            assert servers.toolbox().find("echo") is not None

    run(test())


def test_second_cancellation_kills_the_server_process(effects):
    async def test():
        client = McpClient(ServerSpec("s", command=sys.executable, args=("-c", SLEEPS, str(effects)), timeout=3600.0))
        connecting = asyncio.create_task(client.connect())
        await until(lambda: processes(effects))
        connecting.cancel()
        await asyncio.sleep(0.2)
        connecting.cancel()  # it was about to be patient with the server
        await asyncio.wait({connecting})
        await until(lambda: not processes(effects))

    run(test())
