"""Slow clients do not hold connections of an MCP server: neither its app alone nor `toolwire mcp serve --http`."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace

import pytest
import uvicorn

from hostile import Answer, read_answer, run
from toolwire import Toolbox
from toolwire.asgi.admission import DefaultLimits
from toolwire.asgi.limited_http import make_limited_protocol
from toolwire.cli.main import main
from toolwire.cli.mcp import command as mcp_bridge
from toolwire.mcp.server.http import HttpApp
from toolwire.mcp.server.server import Server
from waiting import until

HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n"


async def send_slowly(data: bytes, *, protocol: bool) -> Answer:
    """Send data that is incomplete, and return the server's answer. The connection must be closed after it."""
    app = HttpApp(Server(Toolbox()), slow_client=0.2)
    http = make_limited_protocol(lambda: DefaultLimits(slow_client=0.2)) if protocol else "auto"
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, http=http, timeout_graceful_shutdown=1))
    task = asyncio.ensure_future(server.serve())
    await until(lambda: server.started)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.servers[0].sockets[0].getsockname()[1])
        writer.write(data)
        answer = await read_answer(reader)
        if protocol:
            assert await reader.read() == b""
        writer.close()
        return answer
    finally:
        server.should_exit = True
        await task


@pytest.mark.finding("Z12")
@pytest.mark.parametrize("protocol", [False, True])
@run
async def test_incomplete_message_times_out(protocol):
    answer = await send_slowly(HEAD + b'\r\n{"jsonrpc":', protocol=protocol)
    assert answer.status == 408
    assert "incomplete" in json.loads(answer.body)["error"]["message"]


@pytest.mark.finding("Z12")
@run
async def test_incomplete_head_times_out():
    assert (await send_slowly(HEAD, protocol=True)).status == 408


@pytest.mark.finding("Z12")
@pytest.mark.parametrize("command", ["serve", "bridge"])
def test_commands_serve_with_limits(command, monkeypatch, tmp_path):
    started = []

    async def serve(server):
        started.append(server.config)

    monkeypatch.setattr(uvicorn.Server, "serve", serve)
    given = {"http": "127.0.0.1:0", "path": "/mcp", "token_env": None, "allow_host": [], "allow_origin": []}
    if command == "serve":
        (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
        assert main(["mcp", "serve", str(tmp_path / "tools.py"), "--http", "127.0.0.1:0", "--store", "memory:"]) == 0
    else:
        monkeypatch.setattr(mcp_bridge, "parse_spec", lambda *_: None)
        mcp_bridge._serve(Namespace(target="x", **given))
    [config] = started
    assert config.http.func is make_limited_protocol().func
