"""What a model may ask of the tools that the gateway runs itself, and what an MCP client may send to them."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import toolwire
from hostile import TEXT_ANSWER, ask, connect, gateway_to, post, read_answer, recorded, request_bytes, run
from mcp_server.server_process import stateless_request
from toolwire import Message, Request, Response, Text, Tool, ToolCall, ToolResult
from toolwire.ir.errors import StoreError
from toolwire.ir.response import Stop
from toolwire.mcp.server.server import Server
from toolwire.net.stores import open_store
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.tools.isolation import disk_jail
from toolwire.net.tools.runner import Runner
from toolwire.run.calls.policy import Policy
from toolwire.run.tools.toolbox import Toolbox
from virtual_time import in_virtual_time
from waiting import SAFETY

HI = Request(messages=(Message("user", (Text("hi"),)),))


def calling(name, /, *, call_id="s1", **arguments):
    return Response(parts=(ToolCall(call_id, name, arguments),), stop=Stop("tool_calls"))


async def tool_results(runner, *turns):
    """What the model hears of its calls, one turn after the other; the client gets its answer in any case."""
    async with gateway_to(*turns, TEXT_ANSWER, runners={"*": runner}) as (gateway, upstream):
        answer = await ask(gateway, "openai_chat", HI)
        assert (answer.status, answer.document["choices"][0]["finish_reason"]) == (200, "stop")
        parts = [part for one in upstream.requests[-1].request.messages for part in one.parts]
    return [part.text for part in parts if isinstance(part, ToolResult)]


@pytest.mark.bad_input(32)
@pytest.mark.gateway_bad_input(32)
@run
async def test_client_tool_takes_precedence_over_a_gateway_tool_of_the_same_name():
    ran = []

    @toolwire.tool(effect="read")
    def look_up(name: str) -> str:
        ran.append(name)
        return name

    theirs = Tool("look_up", "The client's", {"type": "object", "properties": {"name": {"type": "string"}}})
    async with gateway_to(calling("look_up", name="x"), runners={"*": Runner(look_up)}) as (gateway, upstream):
        answer = await ask(gateway, "openai_chat", Request(messages=HI.messages, tools=(theirs,)))
        (call,) = answer.document["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "look_up", "arguments": '{"name":"x"}'}
        assert [(tool.name, tool.description) for tool in upstream.requests[0].request.tools] == [
            ("look_up", "The client's")
        ]
    assert ran == []


@pytest.fixture
def files(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("fine")
    (tmp_path / "secret").write_text("SECRET")
    (tmp_path / "files" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "files" / "way").symlink_to(tmp_path)
    return tmp_path / "files"


PATHS = [
    "../secret",
    "a/../../secret",
    "..\\secret",
    "link",
    "way/secret",
    "~/secret",
    "~root",
    "a.txt\x00.png",
    "/etc/passwd",
]


@pytest.mark.gateway_bad_input(82)
@pytest.mark.parametrize("path", [*PATHS, "a.txt"])
@run
async def test_path_outside_the_root_is_denied(path, files):
    read = []

    @toolwire.tool(effect="read")
    def read_file(path: str) -> str:
        read.append(path)
        return Path(path).expanduser().read_text()

    policy = Policy(checks=(disk_jail("path", str(files)),))
    (words,) = await tool_results(Runner(read_file, policy=policy), calling("read_file", path=path))
    assert ("path must stay below" in words) == (path != "a.txt")
    assert read == ([str(files / "a.txt")] if path == "a.txt" else [])


@pytest.mark.gateway_bad_input(83)
@pytest.mark.parametrize(
    "text", ["; touch pwned", "$(touch pwned)", "`touch pwned`", "a && touch pwned", "| sh", "x\ntouch pwned"]
)
@run
async def test_shell_metacharacters_reach_the_tool_unchanged(text, tmp_path):
    @toolwire.tool(effect="read")
    def echo(text: str) -> str:
        return subprocess.run(["printf", "%s", text], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert await tool_results(Runner(echo), calling("echo", text=text)) == [text]
    assert list(tmp_path.iterdir()) == []


given_up = threading.Event()


def much() -> str:
    return "x" * 50_000_000


def numbers():
    yield from itertools.count()


def slow_numbers():
    try:
        for number in itertools.count():
            yield number
            time.sleep(0.01)
    finally:
        given_up.set()


async def letters():
    while True:
        yield "a" * 1_000_000


def leave() -> str:
    raise SystemExit(1)


def never() -> str:
    return threading.Event().wait(3600) or ""


async def never_either() -> str:
    return await asyncio.get_running_loop().create_future()


def odd() -> object:
    return {"when": time, "set": {1}}


ENDINGS = {
    much: "characters omitted",
    numbers: "more than 100,000 items",
    slow_numbers: "did not finish within 0.5 seconds",
    letters: "more than 67,108,864 characters",
    leave: "failed: SystemExit: 1",
    never: "did not finish within 0.5 seconds",
    never_either: "did not finish within 0.5 seconds",
    odd: "<module 'time'",
}


@pytest.mark.gateway_bad_input(84)
@pytest.mark.parametrize("function", ENDINGS, ids=lambda one: one.__name__)
@run
async def test_endless_or_failing_tool_becomes_a_result(function):
    timeout = 0.5 if "did not finish" in ENDINGS[function] else SAFETY
    box = Toolbox(toolwire.tool(effect="read")(function)).with_options(timeout=timeout, retries=0)
    (words,) = await tool_results(Runner(box), calling(function.__name__))
    assert ENDINGS[function] in words
    assert len(words) < 70_000
    if function is slow_numbers:  # its thread ends, too
        assert await asyncio.to_thread(given_up.wait, SAFETY)


def payments(**options):
    paid = []

    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        paid.append(amount)
        time.sleep(0.05)
        return f"paid {amount}"

    return paid, lambda store: Runner(pay, store=store, **options)


@pytest.mark.gateway_bad_input(91)
@run
async def test_idempotency_key_is_bound_to_one_call():
    paid, runner = payments()
    first = calling("pay", amount=1, idempotency_key="k-1")
    second = calling("pay", call_id="s2", amount=100, idempotency_key="k-1")
    again = calling("pay", call_id="s3", amount=1, idempotency_key="k-1")
    words = await tool_results(runner(open_store("memory:")), first, second, again)
    assert words[0] == words[2] == "paid 1"
    assert "key was used for a call with different arguments" in words[1]
    assert paid == [1]


@pytest.mark.gateway_bad_input(92)
@run
async def test_clock_jump_forgets_a_key_only_after_its_ttl():
    now = [1_000_000.0]
    paid, runner = payments()
    held = runner(MemoryStore(lambda: now[0]))
    pay = calling("pay", amount=1, idempotency_key="k-1")
    for jump, times in ((0, 1), (-7200, 1), (7200 + 86_000, 1), (-86_000, 1), (90_000, 2)):
        now[0] += jump
        assert await tool_results(held, pay) == ["paid 1"]
        assert len(paid) == times, jump


@pytest.mark.gateway_bad_input(93)
@run
async def test_gateways_sharing_a_store_run_a_keyed_write_once(tmp_path):
    paid, runner = payments()
    pay = calling("pay", amount=1, idempotency_key="k-1")
    address = str(tmp_path / "runs.db")
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(open_store(address))) for _ in range(4)]
        both = await asyncio.gather(*(tool_results(runner(store), pay) for store in stores))
    assert both == [["paid 1"]] * 4
    assert paid == [1]


VERSION = "io.modelcontextprotocol/protocolVersion"
ACCEPT = {"accept": "application/json, text/event-stream"}


def headers_of(message):
    """As a client of the stateless era sends them; of what is no message, nothing can be said."""
    if not message:
        return ACCEPT
    version = message["params"]["_meta"][VERSION]
    return {**ACCEPT, "mcp-protocol-version": version, "mcp-method": message["method"]}


MCP = {
    "an unknown method": (json.dumps(stateless_request("no/such")).encode(), -32601),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "an id of null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    "an id with a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    "the id twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
    "no JSON": (b"{", -32700),
    "90,000 deep": (b"[" * 90_000, -32700),
    "a cursor of nobody's": (json.dumps(stateless_request("tools/list", {"cursor": "????"})).encode(), -32602),
    "a version of nobody's": (json.dumps(stateless_request("ping", **{VERSION: "1999-01-01"})).encode(), -32022),
}


@pytest.mark.gateway_bad_input(94)
@pytest.mark.parametrize("kind", MCP)
@run
async def test_malformed_mcp_request_returns_the_matching_error_code(kind):
    body, code = MCP[kind]
    _, runner = payments()
    async with gateway_to(publish=Server(runner=runner(open_store("memory:")))) as (gateway, _):
        said = json.loads(body) if code in (-32601, -32602, -32022) else {}
        answer = await post(gateway, "/mcp", body, headers_of(said))
        assert 400 <= answer.status < 500 or answer.status == 200
        assert answer.document["error"]["code"] == code


@pytest.mark.gateway_bad_input(94)
@run
async def test_guessed_mcp_session_id_is_rejected():
    _, runner = payments()
    async with gateway_to(publish=Server(runner=runner(open_store("memory:")))) as (gateway, _):
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        for guess in ("1", "0" * 32, "../..", "%00"):
            assert (await post(gateway, "/mcp", ping, {**ACCEPT, "mcp-session-id": guess})).status == 404


@run
async def test_mcp_disconnect_during_the_body_is_logged_as_client_gone(caplog):
    _, runner = payments()
    async with gateway_to(publish=Server(runner=runner(open_store("memory:")))) as (gateway, _):
        _, writer = await connect(gateway)
        writer.write(request_bytes("/mcp", b"{", {**ACCEPT, "content-length": "100"}))
        await asyncio.sleep(0.05)
        writer.close()
        await recorded(gateway)
    assert [(turn.status, turn.error) for turn in gateway.turns] == [(499, "client_gone")]
    assert "Exception" not in caplog.text


@in_virtual_time
async def test_slow_mcp_request_body_times_out():
    _, runner = payments()
    server = Server(runner=runner(open_store("memory:")))
    async with gateway_to(publish=server, document={"limits": {"slow_client": 0.3}}) as (gateway, _):
        reader, writer = await connect(gateway)
        writer.write(request_bytes("/mcp", b"{", {**ACCEPT, "content-length": "100"}))
        answer = asyncio.ensure_future(read_answer(reader))
        for _ in range(20):
            await asyncio.sleep(0.05)
            if answer.done():
                break
            writer.write(b" ")
        assert answer.done() and answer.result().status == 400
        writer.close()


@pytest.mark.parametrize("error", [StoreError, RuntimeError])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@run
async def test_failure_after_tools_may_have_run_is_not_retryable(error, stream):
    _, runner = payments()
    hosted = runner(open_store("memory:"))

    async def broken(*args, **options):
        raise error("something is away")

    hosted.run = broken
    name = hosted.box.tools[0].name
    said = Response(parts=(Text("I pay."), ToolCall("c1", name, {})), stop=Stop("tool_calls"))
    async with gateway_to(said, runners={"*": hosted}) as (gateway, _):
        answer = await ask(gateway, "openai_chat", HI, stream=stream)
    if stream:
        assert answer.whole and b"I pay." in answer.body and b'"error"' in answer.body
    else:
        assert answer.status >= 500 and answer.headers["x-should-retry"] == "false"
    assert gateway.turns[0].error is not None
