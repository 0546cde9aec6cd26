"""Text of an MCP server in the output of `toolwire mcp` and of `[tools]` rows: readable, and never obeyed by a terminal."""

import asyncio
import json
import shlex
import sys
from contextlib import AsyncExitStack

import pytest

from mcp_client.test_cli import toolwire
from toolwire.cli.serve.tools import ToolLoader
from toolwire.gateway.config.settings import Settings, ToolsRow

READABLE = "one\n\ttwo\u00a0\U0001f469\u200d\U0001f467\r\n\u05e9\u05dc\u05d5\u05dd\u200f!\n"
HOSTILE = "\x1b[2J\x9b31m\x7f safe\revil"
SHOWN = r"\x1b[2J\x9b31m\x7f safe\revil"
SERVER = f"""
import json, sys

HOSTILE, READABLE = {HOSTILE!r}, {READABLE!r}
SCHEMA = {{"type": "object", "properties": {{"a": {{"type": "string", "description": HOSTILE}}}}}}
TOOLS = [
    {{"name": "look", "description": HOSTILE, "inputSchema": SCHEMA}},
    {{"name": "wrong\\n" + HOSTILE, "inputSchema": {{"type": "string"}}}},
]
CONTENT = [
    {{"type": "text", "text": READABLE + HOSTILE}},
    {{"type": "image", "data": "AAAA", "mimeType": "image/" + HOSTILE}},
]

def answer(method, params):
    if method == "initialize":
        info = {{"name": "s\\n" + HOSTILE, "version": "1"}}
        version = params["protocolVersion"]
        return {{"protocolVersion": version, "capabilities": {{"tools": {{}}}}, "serverInfo": info}}
    if method == "tools/list":
        return {{"tools": TOOLS}}
    if method == "tools/call":
        progress = {{"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "half\\n" + HOSTILE}}
        send(method="notifications/progress", params=progress)
        return {{"content": CONTENT}}

def send(**message):
    print(json.dumps({{"jsonrpc": "2.0", **message}}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        send(id=message["id"], error={{"code": -32601, "message": "Method not found"}})
    elif "id" in message:
        send(id=message["id"], result=answer(message["method"], message.get("params", {{}})))
"""


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "server.py"
    path.write_text(SERVER, encoding="utf-8")
    return path


def controls_in(written):
    return {char for char in written if char not in "\n\t\r" and (char < " " or "\x7f" <= char < "\xa0")}


@pytest.mark.finding("U1")
def test_call_shows_the_text_as_written(server):
    target = shlex.join([sys.executable, str(server)])
    code, out, err = toolwire("call", target, "look")
    assert code == 0, err
    assert out == f"{READABLE}{SHOWN}\n[image/{SHOWN}, 3 bytes; --output FILE saves it]\n".replace(
        "\r\n", "\n"
    )  # read with universal newlines
    assert err == f"1 half\\n{SHOWN}\n"
    code, out, _ = toolwire("call", target, "look", "--json")
    assert json.loads(out)["content"][0]["text"] == READABLE + HOSTILE
    assert not controls_in(out)


@pytest.mark.finding("U1")
@pytest.mark.parametrize("options", [[], ["--schema", "openai_strict"], ["--json"]])
def test_inspect_shows_names_and_descriptions_without_control_sequences(server, options):
    code, out, err = toolwire("inspect", shlex.join([sys.executable, str(server)]), *options)
    assert code == 1
    assert not controls_in(out + err)
    if not options:
        assert out.splitlines()[0] == f"s\\n{SHOWN} 1, MCP 2025-11-25: 1 tool, 0 resources, 0 prompts"
        assert f"skipped: server.wrong\\n{SHOWN}: arguments must be an object, got 'string'" in err


@pytest.mark.finding("U1")
def test_gateway_reports_skipped_tools_without_control_sequences(server, tmp_path, capsys):
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"s": {"command": sys.executable, "args": [str(server)]}}}))

    async def test():
        async with AsyncExitStack() as stack:
            served = ToolLoader([])
            stack.push_async_callback(served.aclose)
            served.activate(await served.prepare(Settings(tools={"*": ToolsRow(mcp=str(config))})))

    asyncio.run(test())
    assert capsys.readouterr().err.startswith(
        f"toolwire: skipped: s.wrong\\n{SHOWN}: arguments must be an object, got 'string'"
    )
