"""Slow clients do not hold connections of an MCP server: neither its app alone nor `toolwire mcp serve --http`."""

from __future__ import annotations

import asyncio
import json
import socket
from argparse import Namespace

import pytest
import uvicorn

from hostile import Answer, read_answer, run
from serving import listening
from toolwire import Toolbox
from toolwire.asgi.admission import DefaultLimits
from toolwire.asgi.server import HttpServer
from toolwire.cli.main import main
from toolwire.cli.mcp import command as mcp_bridge
from toolwire.mcp.server.http import HttpApp
from toolwire.mcp.server.server import Server

HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n"


async def send_slowly(data: bytes, *, other_server: bool = False) -> Answer:
    """Send data that is incomplete, and return the server's answer. Our own server closes the connection after it."""
    app = HttpApp(Server(Toolbox()), slow_client=0.2)
    if other_server:
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
        listener = socket.create_server(("127.0.0.1", 0))
        address, task = listener.getsockname(), asyncio.ensure_future(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*address)
        writer.write(data)
        answer = await read_answer(reader)
        writer.close()
        server.should_exit = True
        await task
        return answer
    async with listening(app, lambda: DefaultLimits(slow_client=0.2)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        answer = await read_answer(reader)
        assert await reader.read() == b""
        writer.close()
        return answer


@pytest.mark.finding("Z12")
@pytest.mark.parametrize("other_server", [False, True])
@run
async def test_incomplete_message_times_out(other_server):
    answer = await send_slowly(HEAD + b'\r\n{"jsonrpc":', other_server=other_server)
    assert answer.status == 408
    assert "incomplete" in json.loads(answer.body)["error"]["message"]


@pytest.mark.finding("Z12")
@run
async def test_incomplete_head_times_out():
    assert (await send_slowly(HEAD)).status == 408


@pytest.mark.finding("Z12")
@pytest.mark.parametrize("command", ["serve", "bridge"])
def test_commands_serve_with_limits(command, monkeypatch, tmp_path, capsys):
    started, ports = [], []

    async def serve(server, listeners):
        started.append((server.context.limits(), [listener.getsockname()[0] for listener in listeners]))
        ports.extend(listener.getsockname()[1] for listener in listeners)
        for listener in listeners:
            listener.close()

    monkeypatch.setattr(HttpServer, "serve", serve)
    given = {"http": "127.0.0.1:0", "path": "/mcp", "token_env": None, "allow_host": [], "allow_origin": []}
    if command == "serve":
        (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
        assert main(["mcp", "serve", str(tmp_path / "tools.py"), "--http", "127.0.0.1:0", "--store", "memory:"]) == 0
    else:
        monkeypatch.setattr(mcp_bridge, "parse_spec", lambda *_: None)
        mcp_bridge._serve(Namespace(target="x", **given))
    assert started == [(DefaultLimits(), ["127.0.0.1"])]
    assert f"at http://127.0.0.1:{ports[0]}/mcp" in capsys.readouterr().err
