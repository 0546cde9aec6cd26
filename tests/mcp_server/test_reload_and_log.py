"""`toolwire mcp serve`: changed tools without a restart, the log of requests, and other MCP servers as a source."""

import json
import signal
import threading

import pytest

from mcp_client.client_helpers import run, tool_call, workshop
from mcp_server.server_process import (
    LATEST,
    TIMEOUT,
    WORKSHOP,
    StdioClient,
    command,
    environment,
    http_server,
    post,
    tool_call_request,
)
from toolwire.cli.mcp.serve import ToolsFile
from toolwire.mcp import McpClient, ServerSpec
from waiting import until

HELPER = "def greeting():\n    return {text!r}\n"
TOOLS = 'import helper_of_{stem}\n\ndef {name}() -> str:\n    "Greet."\n    return helper_of_{stem}.greeting()\n'


def write_tools(folder, name, text="hello", stem="reloaded"):
    (folder / f"helper_of_{stem}.py").write_text(HELPER.format(text=text), encoding="utf-8")
    file = folder / f"{stem}.py"
    file.write_text(TOOLS.format(name=name, stem=stem), encoding="utf-8")
    return file


async def follow(client, file, folder, log):
    """Change the file of a running server in every way, and see the changes in one connection. `log`: lines of its log."""
    link = client.connection.link
    assert (await client.call(tool_call("greet"))).text == "hello"
    write_tools(folder, "welcome")
    await until(lambda: list(client.tools) == ["welcome"])
    file.write_text("def welcome(:", encoding="utf-8")
    await until(lambda: any("cannot reload, the old tools stay" in line for line in list(log)))
    assert (await client.call(tool_call("welcome"))).text == "hello"  # the old tools stay
    write_tools(folder, "salute", "good day")
    await until(lambda: list(client.tools) == ["salute"])
    assert (await client.call(tool_call("salute"))).text == "good day"
    assert client.connection.link is link


@pytest.mark.parametrize("version", ["2025-11-25", LATEST])
def test_changed_tools_reach_open_sessions_over_http(tmp_path, version):
    file = write_tools(tmp_path, "greet")

    lines = []

    async def test(port):
        async with McpClient(ServerSpec("s", url=f"http://127.0.0.1:{port}/mcp", protocol=version)) as client:
            await follow(client, file, tmp_path, lines)

    with http_server(file, "--store", "memory:", "--reload") as (port, process):
        reader = threading.Thread(target=lambda: lines.extend(line.decode() for line in process.stderr))
        reader.start()
        try:
            run(test(port))
        finally:
            process.terminate()
            reader.join(TIMEOUT)
        assert process.wait(TIMEOUT) == 0
    log = "".join(lines)
    assert "ERROR toolwire.mcp.reload: cannot reload, the old tools stay: cannot load" in log
    assert "INFO toolwire.mcp.reload: offering 1 tool: salute" in log


def test_changed_tools_reach_a_client_over_stdio(tmp_path):
    file = write_tools(tmp_path, "greet")

    async def test():
        async with McpClient(workshop("--store", "memory:", "--reload", tools=file)) as client:
            await follow(client, file, tmp_path, client.connection.link._stderr_lines)

    run(test())


def test_change_of_an_imported_module_is_noticed(tmp_path):
    file = ToolsFile(str(write_tools(tmp_path, "greet", stem="imported")), will_reload=True)
    assert not file.reload_if_changed()
    (tmp_path / "helper_of_imported.py").write_text(HELPER.format(text="olleh"), encoding="utf-8")
    assert file.reload_if_changed()
    (entry,) = file.live_entries()
    assert (entry.function(), file.version) == ("olleh", 1)


@pytest.mark.parametrize("end", ["", "1 / 0\n"], ids=["loaded", "failed"])
def test_change_during_a_reload_is_noticed(tmp_path, end):
    """The second version replaces itself by the third one while it is loaded."""
    path = write_tools(tmp_path, "greet", stem="replaced")
    file = ToolsFile(str(path), will_reload=True)
    second, third = (TOOLS.format(name=name, stem="replaced") for name in ("welcome", "salute"))
    path.write_text(f"from pathlib import Path\nPath(__file__).write_text({third!r})\n{second}{end}", encoding="utf-8")
    assert file.reload_if_changed() == (not end)
    assert file.reload_if_changed()
    (entry,) = file.live_entries()
    assert entry.name == "salute"


def log_of(requests, *options, variables=None):
    with http_server(WORKSHOP, "--store", "memory:", *options, variables=variables) as (port, process):
        for body, headers in requests:
            post(port, body, headers)
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT)
        log = process.stderr.read().decode()
    return [line.partition("toolwire.mcp.requests: ")[2] for line in log.splitlines() if "mcp.requests" in line]


ADD = tool_call_request("add", {"a": 1, "b": 41414141})
PAY = tool_call_request("pay", {"amount": 5, "password": "hunter2hunter2"})


def test_requests_over_http_are_logged_without_arguments():
    hostile = tool_call_request("no\x1b[2J", {})
    add, pay, unknown, refused = log_of(
        [(ADD, {}), (PAY, {}), (tool_call_request("ad", {}), {}), (hostile, {"mcp-name": None})]
    )
    assert add.startswith('POST 200 tools/call add client="test 1" ') and add.endswith(" ms")
    assert pay.startswith("POST 200 tools/call pay ") and pay.endswith(" ms, tool error")
    assert "tools/call ad " in unknown and "error -32602: Unknown tool: ad" in unknown
    assert refused.startswith(r"POST 400 tools/call no\x1b[2J ")
    assert "41414141" not in add and "hunter2" not in pay


def test_arguments_are_logged_without_secrets_on_request():
    add, pay = log_of([(ADD, {}), (PAY, {})], "--log-arguments")
    assert 'arguments={"a":1,"b":41414141}' in add
    assert '"amount":5' in pay and "hunter2" not in pay


def test_sessions_are_logged_by_a_hash():
    async def test(port):
        async with McpClient(ServerSpec("s", url=f"http://127.0.0.1:{port}/mcp", protocol="2025-11-25")) as client:
            await client.call(tool_call("add", a=1, b=2))
            return client.connection.link._session

    with http_server(WORKSHOP) as (port, process):
        session = run(test(port))
        process.terminate()
        process.wait(TIMEOUT)
        log = process.stderr.read().decode()
    (line,) = [line for line in log.splitlines() if "tools/call" in line]
    assert 'client="toolwire ' in line and "session=" in line
    assert session not in log


@pytest.mark.parametrize(("options", "count"), [(("--verbose",), 1), ((), 0)])
def test_requests_over_stdio_are_logged_with_verbose(options, count):
    with StdioClient(WORKSHOP, "--store", "memory:", *options) as client:
        client.call("add", {"a": 1, "b": 2})
        _, log = client.end()
    lines = [line for line in log.splitlines() if 'stdio tools/call add client="test 1" ' in line]
    assert len(lines) == count


def test_other_mcp_servers_are_a_source(tmp_path):
    config = tmp_path / "servers.json"
    program, *rest = command(write_tools(tmp_path, "greet", stem="inner"), "--store", "memory:")
    entry = {"command": program, "args": rest, "env": {"PYTHONPATH": environment()["PYTHONPATH"]}}
    config.write_text(json.dumps({"mcpServers": {"inner": entry}}), encoding="utf-8")

    async def test(port):
        async with McpClient(ServerSpec("s", url=f"http://127.0.0.1:{port}/mcp")) as client:
            return (await client.call(tool_call("greet"))).text

    with http_server(config, "--store", "memory:") as (port, process):
        assert run(test(port)) == "hello"
        process.terminate()
        assert process.wait(TIMEOUT) == 0
