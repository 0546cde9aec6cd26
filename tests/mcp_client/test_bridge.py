"""A server of one transport, used over the other: the same answers, both eras, both ways."""

import asyncio
import json
import subprocess
from contextlib import asynccontextmanager, contextmanager

import pytest

from mcp_client.client_helpers import ROOT, McpClient, cancel_once, misbehaving, tool_call
from mcp_client.scripted_http_server import ScriptedHttpServer, json_reply, result
from mcp_server.server_process import (
    WORKSHOP,
    command,
    effects_in,
    environment,
    http_server,
    is_listening,
    post,
    reserved_port,
    wait_until,
)
from toolwire.mcp.client import Handlers, ServerSpec
from waiting import SAFETY
from waiting import until as until_async
from warm_command import WARM

ERAS = ["2025-06-18", "2026-07-28"]


def run(test):
    return asyncio.run(asyncio.wait_for(test, 2 * SAFETY))


def bridge(*arguments):
    return [*WARM, "mcp", "bridge", *arguments]


@contextmanager
def over_http(line, effects=None):
    passed = [
        option for name in ("PYTHONPATH", "EFFECTS") for option in ("--env", f"{name}={environment(effects)[name]}")
    ]
    with reserved_port() as port:
        process = subprocess.Popen([*bridge(line, "--http", f":{port}", *passed)], env=environment(effects))
        try:
            wait_until(lambda: is_listening(port))
            yield port
        finally:
            process.terminate()
            process.wait(SAFETY)


def over_stdio(port, **settings):
    program, *args = bridge(f"http://127.0.0.1:{port}/mcp")
    env = {"PYTHONPATH": str(ROOT / "src")}
    return ServerSpec("bridged", command=program, args=tuple(args), env=env, **settings)


async def check_all_features(spec):
    """Everything that has to pass: results, errors, progress, questions, resources."""
    heard = []

    def colour(_):
        return {"action": "accept", "content": {"colour": "red"}}

    def watch(_, progress):
        heard.append(progress.message)

    async with McpClient(spec, handlers=Handlers(elicit=colour), watch=watch) as client:
        results = await asyncio.gather(*(client.call(tool_call("add", a=n, b=n)) for n in range(20)))
        assert [one.text for one in results] == [str(2 * n) for n in range(20)]
        assert (await client.call(tool_call("add", a="x", b=1))).is_error
        await client.call(tool_call("nap", seconds=0.01))
        assert heard == ["half asleep"]
        assert (await client.call(tool_call("order", item="car"))).text == "ordered a red car"
        assert (await client.read("notes://monday"))[0]["text"] == "notes of monday"
        return client.greeting.version


@pytest.mark.parametrize("version", ERAS)
def test_http_server_works_over_stdio(version):
    with http_server() as (port, _):
        assert run(check_all_features(over_stdio(port, protocol=version))) == version


@pytest.mark.parametrize("version", ERAS)
def test_stdio_server_works_over_http(version):
    line = " ".join(command(WORKSHOP, "--store", "memory:"))
    with over_http(line) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        assert run(check_all_features(ServerSpec("bridged", url=url, protocol=version))) == version


LARGE = "x" * 1_000_000  # more than a pipe holds


@asynccontextmanager
async def bridged(calls):
    """A bridge on stdio to an address that answers calls so."""
    address = ScriptedHttpServer(calls)
    async with address.serving() as url:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *bridge(url), stdin=pipe, stdout=pipe, env=environment(), limit=2**16
        )

        def ask(number):
            meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "pay", "_meta": meta}}
            process.stdin.write(json.dumps(call).encode() + b"\n")

        try:
            yield address, process, ask
        finally:
            if process.returncode is None:
                process.kill()
            process.stdin.close()
            await process.wait()
            process._transport.close()


def test_client_that_does_not_read_does_not_block_other_calls():
    async def test():
        def calls(message):
            return json_reply(result(message, {"content": [{"type": "text", "text": LARGE}]}))

        async with bridged(calls) as (address, process, ask):
            ask(1)
            await until_async(lambda: len(address.requests) == 1)
            await asyncio.sleep(0.5)  # the answer does not fit into the pipe
            ask(2)
            await until_async(lambda: len(address.requests) == 2)
            process.stdin.close()
            said = [json.loads(line) for line in (await process.stdout.read()).splitlines()]
            assert [one["id"] for one in said] == [1, 2]
            assert all(one["result"]["content"][0]["text"] == LARGE for one in said)
            assert await process.wait() == 0

    run(test())


def test_bridge_exits_when_its_output_is_closed():
    async def test():
        is_over = asyncio.Event()

        async def calls(_):
            await is_over.wait()
            return b""

        async with bridged(calls) as (address, process, ask):
            ask(1)
            await until_async(lambda: len(address.requests) == 1)
            process._transport.get_pipe_transport(1).close()
            assert await asyncio.wait_for(process.wait(), SAFETY) == 0
            is_over.set()
            await asyncio.sleep(0.1)

    run(test())


def test_cancellation_is_forwarded_to_the_server(tmp_path):
    effects = tmp_path / "effects"

    async def test(port):
        heard = []
        async with McpClient(over_stdio(port), watch=lambda *progress: heard.append(progress)) as client:
            await cancel_once(lambda: heard, client.call(tool_call("nap", seconds=3600)))
            await until_async(lambda: effects_in(effects) == ["woken"])

    with http_server(effects=effects) as (port, _):
        run(test(port))


def test_handshake_server_works_over_http_with_host_and_session_checks():
    spec = misbehaving()
    line = f"{spec.command} {spec.args[0]}"

    async def test(port):
        async with McpClient(ServerSpec("bridged", url=f"http://127.0.0.1:{port}/mcp")) as client:
            assert client.greeting.version == "2025-11-25"
            assert (await client.call(tool_call("echo", text="hi"))).text == "hi"

    with over_http(line) as port:
        run(test(port))
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        assert post(port, hello, {"host": "evil.example"})[0] == 403
        lost = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert post(port, lost, {"mcp-session-id": "guessed"})[0] == 404
