"""A toolwire server whose tools are on another toolwire server; both keep their calls in the default store."""

import asyncio
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from mcp_server.server_process import (
    META,
    StdioClient,
    command,
    effects_in,
    environment,
    http_server,
    post,
    tool_call_request,
    wait_until,
)
from toolwire import tool
from toolwire.mcp import Server
from toolwire.mcp.protocol.meta import CLIENT_CAPABILITIES, IDEMPOTENCY_KEY, PROTOCOL_VERSION
from toolwire.mcp.protocol.rpc import RpcRequest, read, write
from toolwire.mcp.server.conversation import Conversation
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.tools.runner import Runner
from toolwire.wire.mcp.versions import LATEST

TOOLS = """\
import os
import time
from pathlib import Path


def pay(amount: int, seconds: float = 0.0) -> str:
    '''Pay.'''
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{amount} {os.getpid()}\\n")
    time.sleep(seconds)
    return f"paid {amount}"
"""


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """Return a context manager of an inner and an outer server; its value calls `pay` of the outer server."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    return lambda way, *options: _chain(tmp_path, way, ("--quiet", *options))


@contextmanager
def _chain(folder, way, options):
    servers, tools, effects = folder / "mcp.json", folder / "tools.py", folder / "effects"
    if way == "stdio":
        program, *arguments = command(tools, *options)
        variables = {name: environment(effects)[name] for name in ("PYTHONPATH", "EFFECTS", "XDG_STATE_HOME")}
        _write_servers(servers, {"command": program, "args": arguments, "env": variables})
        with StdioClient(servers, "--quiet") as client:
            yield lambda meta, **arguments: client.call("pay", arguments, meta={**META, **meta})["result"]
    else:
        with http_server(tools, *options, effects=effects) as (inner_port, _):
            _write_servers(servers, {"url": f"http://127.0.0.1:{inner_port}/mcp"})
            with http_server(servers, "--quiet") as (port, _):
                yield lambda meta, **arguments: _post(port, tool_call_request("pay", arguments, **meta))


def _write_servers(file, server):
    file.write_text(json.dumps({"mcpServers": {"inner": server}}), encoding="utf-8")


def _post(port, message):
    return json.loads(post(port, message)[2])["result"]


def _text(result):
    return result["content"][0]["text"]


def _payments(folder):
    """Return (amount, process id) of each execution."""
    return [tuple(map(int, line.split())) for line in effects_in(folder / "effects")]


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_write_of_a_chained_server_runs_once_per_key(way, chain, tmp_path):
    key = {IDEMPOTENCY_KEY: "k1"}
    with chain(way) as pay:
        assert [_text(pay(key, amount=5)) for _ in range(2)] == ["paid 5", "paid 5"]
        assert "different arguments" in _text(pay(key, amount=6))
        assert [_text(pay({}, amount=7)) for _ in range(2)] == ["paid 7", "paid 7"]  # without a key, each call runs
    with chain(way) as pay:  # other processes, the same store
        assert _text(pay(key, amount=5)) == "paid 5"
    assert [amount for amount, _ in _payments(tmp_path)] == [5, 7, 7]
    assert (tmp_path / "state" / "toolwire" / "runs.db").exists()


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_killed_inner_server_leaves_the_write_unknown(way, chain, tmp_path):
    key = {IDEMPOTENCY_KEY: "k1"}
    with chain(way, "--lease", "1") as pay, ThreadPoolExecutor() as threads:
        answer = threads.submit(pay, key, amount=5, seconds=3600.0)
        wait_until(lambda: _payments(tmp_path))
        os.kill(_payments(tmp_path)[0][1], signal.SIGKILL)
        assert "may have taken effect" in _text(answer.result())
        assert pay(key, amount=5, seconds=3600.0)["isError"] is True
    with chain(way, "--lease", "1") as pay:  # other processes, the same store
        repeated = pay(key, amount=5, seconds=3600.0)
    assert (repeated["isError"], "may or may not have taken effect" in _text(repeated)) == (True, True)
    assert [amount for amount, _ in _payments(tmp_path)] == [5]


class _Caller:
    """Calls `pay` of a server in this process, as a client with the name `principal`."""

    def __init__(self, store, *, tenant=""):
        self.ran = []

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.ran.append(amount)
            return f"paid {amount} ({len(self.ran)})"

        runner = Runner(pay, store=store, tenant=tenant, keeps_keyless=True)
        self._server = Server(runner=runner)

    def __call__(self, key, principal="", **arguments):
        meta = {PROTOCOL_VERSION: LATEST, CLIENT_CAPABILITIES: {}, **({IDEMPOTENCY_KEY: key} if key else {})}
        params = {"name": "pay", "arguments": {"amount": 1, **arguments}, "_meta": meta}
        conversation = Conversation(self._server, lambda _: None, principal=principal)
        return _text(read(asyncio.run(conversation.handle(write(RpcRequest(1, "tools/call", params))))).result)


@pytest.mark.parametrize(("a", "b"), [("", "x"), ("x", "y"), ("x", "x/y")])
def test_clients_do_not_share_keys(a, b):
    call = _Caller(MemoryStore())
    assert call("y/k", a) == call("y/k", a) == "paid 1 (1)"
    assert call("k", b) == "paid 1 (2)"
    assert call(None, a, idempotency_key="k") == call("k", a) == "paid 1 (3)"
    assert call(None, b, idempotency_key="k") == "paid 1 (2)"


@pytest.mark.parametrize("length", [1, 90, 255])
def test_key_passes_any_number_of_servers(length):
    store, key, keys = MemoryStore(), "k" * length, set()
    for tenant in ("", "t" * 100, "", "", "", ""):
        call = _Caller(store, tenant=tenant)
        assert call(key) == call(key) == "paid 1 (1)"
        (key,) = {record.key for record in store.records()} - keys
        keys.add(key)
