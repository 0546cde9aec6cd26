"""Servers at an address: our own in both eras, and ones that answer with anything but an answer."""

import asyncio
import itertools

import pytest

from mcp_client.client_helpers import McpClient, cancel_once, run, tool_call, toolbox_of, until
from mcp_client.scripted_http_server import (
    BreakableProxy,
    ScriptedHttpServer,
    discovered,
    error,
    events,
    json_reply,
    result,
)
from mcp_server.server_process import effects_in, http_server, reserved_port
from tables import every_case
from toolwire.ir.errors import ConfigError, ProtocolError
from toolwire.mcp.client import McpServers, NotAuthorized, ServerGone, ServerRefused, ServerSpec
from toolwire.mcp.client.login import Browser, Login
from toolwire.mcp.protocol.rpc import RpcError
from toolwire.net.stores import open_store
from toolwire.net.tools.runner import Runner
from toolwire.run.values.results import result_code
from virtual_time import run_virtual
from waiting import SAFETY

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "paid"}]}


def server_spec(url, **settings):
    return ServerSpec("x", url=url, **settings)


async def call_scripted_server(calls, **options):
    """What a call gives at an address that answers it so, and what the address heard."""
    address = ScriptedHttpServer(calls, **options)
    async with address.serving() as url, McpClient(server_spec(url, timeout=SAFETY)) as client:
        return await client.call(tool_call("pay")), address


@pytest.mark.parametrize("version", ["auto", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_client_works_with_every_version_of_our_server(version):
    async def test(port):
        async with McpClient(server_spec(f"http://127.0.0.1:{port}/mcp", protocol=version)) as client:
            assert client.greeting.is_stateless == (version == "auto")
            results = await asyncio.gather(*(client.call(tool_call("add", a=n, b=n)) for n in range(50)))
            assert [one.text for one in results] == [str(2 * n) for n in range(50)]
            assert (await client.read("notes://monday"))[0]["text"] == "notes of monday"

    with http_server() as (port, _):
        run(test(port))


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_cancellation_reaches_the_server(version, tmp_path):
    effects = tmp_path / "effects"

    async def test(port):
        spec = server_spec(f"http://127.0.0.1:{port}/mcp", protocol=version)
        heard = []
        async with McpClient(spec, watch=lambda *progress: heard.append(progress)) as client:
            await cancel_once(lambda: heard, client.call(tool_call("nap", seconds=3600)))
            await until(lambda: effects_in(effects) == ["woken"])

    with http_server(effects=effects) as (port, _):
        run(test(port))


def test_progress_is_reported_during_the_call():
    heard = []

    async def test(port):
        spec = server_spec(f"http://127.0.0.1:{port}/mcp")
        async with McpClient(spec, watch=lambda tool, progress: heard.append(progress.progress)) as client:
            await client.call(tool_call("nap", seconds=0.01))

    with http_server() as (port, _):
        run(test(port))
    assert heard == [1]


def test_interrupted_call_is_resent_with_its_idempotency_key(tmp_path):
    effects = tmp_path / "effects"

    async def test(port):
        way = BreakableProxy(port)
        async with way.open() as url, toolbox_of(server_spec(url)) as (_, box):
            runner = Runner(box, store=open_store("memory:"))
            call = asyncio.create_task(runner.run([tool_call("pay", amount=5, seconds=1.5)]))
            await until(lambda: effects_in(effects))
            way.cut()
            return (await call)[0]

    with http_server(effects=effects) as (port, _):
        found = run(test(port))
    assert (found.text, result_code(found)) == ("paid 5", "ok")
    assert effects_in(effects) == ["pay 5"]


def test_interrupted_call_without_a_key_leaves_the_outcome_unknown(tmp_path):
    effects = tmp_path / "effects"

    async def test(port):
        way = BreakableProxy(port)
        async with way.open() as url, toolbox_of(server_spec(url)) as (servers, box):
            call = asyncio.create_task(Runner(box).run([tool_call("pay", amount=5, seconds=SAFETY)]))
            await until(lambda: effects_in(effects))
            way.cut()
            (found,) = await call
            withdrawn = box.find("pay").withdrawn
            await until(lambda: servers.clients["x"].unavailable_reason is None)  # the way is there again
            return found, withdrawn, box.find("pay").withdrawn

    with http_server(effects=effects) as (port, _):
        found, withdrawn, after = run(test(port))
    assert result_code(found) == "outcome_unknown"
    assert "the connection to x broke" in found.text
    assert "the server x cannot be used" in withdrawn
    assert after is None
    assert effects_in(effects) == ["pay 5"]


def test_unknown_session_is_replaced_by_a_new_one():
    async def test():
        with http_server() as (port, _process):
            async with McpClient(server_spec(f"http://127.0.0.1:{port}/mcp", protocol="2025-11-25")) as client:
                client.connection.link._session = "what is that"
                assert (await client.call(tool_call("add", a=1, b=2))).text == "3"

    run(test())


def test_bearer_token_is_sent_and_not_shown_in_errors():
    async def test(port):
        url = f"http://127.0.0.1:{port}/mcp"
        async with McpClient(server_spec(url, headers={"Authorization": "Bearer s3cret"})) as client:
            assert (await client.call(tool_call("add", a=1, b=2))).text == "3"
        with pytest.raises(NotAuthorized, match=r"denied access \(HTTP 401\)") as denied:
            await McpClient(server_spec(url, headers={"Authorization": "Bearer wr0ng"})).connect()
        assert "wr0ng" not in str(denied.value)

    with _with_token() as (port, _):
        run(test(port))


def _with_token():
    from mcp_server.server_process import WORKSHOP

    return http_server(WORKSHOP, "--store", "memory:", "--token-env", "T", variables={"T": "s3cret"})


def test_answer_in_an_event_stream_is_read():
    def calls(message):
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
        return events(progress, result(message, DONE))

    assert run(call_scripted_server(calls))[0].text == "paid"


def test_request_headers_match_the_body():
    _, address = run(call_scripted_server(lambda message: json_reply(result(message, DONE))))
    headers = next(headers for headers, message in address.requests if message["method"] == "tools/call")
    assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "pay")
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert "mcp-session-id" not in headers


@every_case(
    ("calls", "kind", "words"),
    [
        (lambda m: events(whole=False), ServerGone, "ended its event stream without an answer"),
        (lambda m: events({"jsonrpc": "2.0", "method": "x"}), ServerGone, "ended its event stream without an answer"),
        (lambda m: b"", ServerGone, "the connection to x broke"),
        (lambda m: json_reply(result(m, DONE))[:-5], ServerGone, "the connection to x broke"),
        (lambda m: json_reply(b"busy", 503), ServerGone, "answered with HTTP 503"),
        (lambda m: json_reply(b"{nonsense"), ProtocolError, "cannot read the answer"),
        (lambda m: json_reply(b"[" * 200_000 + b"]" * 200_000), ProtocolError, "nested more than 200 levels deep"),
        (lambda m: json_reply(result({"id": 999}, DONE)), ProtocolError, "another request"),
        (lambda m: json_reply({"jsonrpc": "2.0"}), ProtocolError, "cannot read the answer"),
        (lambda m: json_reply(b"<html>", content_type="text/html"), ProtocolError, "cannot read the answer"),
        (lambda m: json_reply(result(m, {"content": "no list"})), ProtocolError, "expected an array"),
        (
            lambda m: json_reply(result(m, {"resultType": "task", "content": []})),
            ProtocolError,
            "unknown result type 'task'",
        ),
        (lambda m: json_reply(b"gone", 404), ServerRefused, "answered with HTTP 404"),
        (lambda m: json_reply(b"", 307, location="http://evil.example/"), ServerRefused, "answered with HTTP 307"),
        (lambda m: json_reply(error(m, -32020, "Header mismatch"), 400), RpcError, "Header mismatch"),
        (lambda m: json_reply(error(m, -32603, "oops")), RpcError, "oops"),
    ],
)
def test_invalid_answer_raises_the_matching_error(calls, kind, words):
    async def test():
        address = ScriptedHttpServer(calls)
        async with address.serving() as url, McpClient(server_spec(url, timeout=SAFETY)) as client:
            with pytest.raises(kind, match=words):
                await client.call(tool_call("pay"))
        assert address.methods.count("tools/call") == 1

    run(test())


def test_refused_connection_raises_server_gone():
    with pytest.raises(ServerGone, match="cannot be reached") as gone:
        run(McpClient(server_spec("http://127.0.0.1:9/mcp")).connect())
    assert not gone.value.sent


def test_plain_http_is_rejected_for_remote_hosts():
    with pytest.raises(ConfigError, match="is not encrypted"):
        server_spec("http://mcp.example.com/")


def test_missing_answer_times_out():
    async def test():
        hanging = asyncio.Event()
        address = ScriptedHttpServer(lambda message: b"")
        handle = address.handle

        async def slow(reader, writer):
            if "tools/list" in address.methods:
                await hanging.wait()
            await handle(reader, writer)

        address.handle = slow
        async with address.serving() as url, McpClient(server_spec(url, timeout=1.0)) as client:
            with pytest.raises(ServerGone, match="did not answer in 1 seconds"):
                await client.call(tool_call("pay"))
            hanging.set()

    run_virtual(test())


def test_supported_version_is_negotiated_and_unknown_versions_are_rejected():
    refusals = iter([["2026-07-28"], None])

    def discover(message):
        supported = next(refusals)
        if supported:
            return json_reply(error(message, -32022, "Unsupported", {"supported": supported}), 400)
        value = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        return json_reply(result(message, value))

    found, address = run(call_scripted_server(lambda m: json_reply(result(m, DONE)), **{"server/discover": discover}))
    assert found.text == "paid"
    assert address.methods[:2] == ["server/discover", "server/discover"]

    strange = {"server/discover": lambda m: json_reply(error(m, -32022, "No", {"supported": ["2999-01-01"]}), 400)}
    with pytest.raises(RpcError, match="No"):
        run(call_scripted_server(lambda m: b"", **strange))


def test_tools_return_when_an_unreachable_server_comes_back():
    async def test(port):
        address = ScriptedHttpServer(lambda message: json_reply(result(message, DONE)))
        async with address.serving(port) as url:
            servers = McpServers([server_spec(url, reconnects=6)])
            await servers.__aenter__()
            box = servers.toolbox()
        (found,) = await Runner(box.with_options(retries=0)).run([tool_call("pay")])
        assert result_code(found) == "failed"  # it had not left
        assert "cannot be reached" in found.text
        assert "cannot be reached" in box.find("pay").withdrawn
        async with address.serving(port):
            await until(lambda: box.find("pay").withdrawn is None)
            (found,) = await Runner(box).run([tool_call("pay")])
            assert found.text == "paid"
            await servers.close()

    with reserved_port() as port:
        run(test(port))


def session_server(calls, **acts):
    """An address of the handshake era. `calls` and `acts` answer as `Address` has it; GET and DELETE are methods, too."""

    def initialize(message):
        value = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}
        return json_reply(result(message, value), mcp_session_id="s")

    greeting = {
        "initialize": initialize,
        "server/discover": None,
        "notifications/initialized": lambda _: json_reply(b"", 202),
        "DELETE": lambda _: json_reply(b""),
    }
    return ScriptedHttpServer(calls, **{**greeting, **acts})


CUT_OFF = json_reply(b"id: 7\nretry: 1\ndata:\n\n", content_type="text/event-stream")


def test_denied_stream_resumption_leaves_the_outcome_unknown():
    async def test():
        address = session_server(lambda _: CUT_OFF, GET=lambda _: json_reply(b"", 401))
        async with address.serving() as url, toolbox_of(server_spec(url, timeout=SAFETY)) as (_, box):
            (found,) = await Runner(box).run([tool_call("pay")])
        assert address.methods.count("GET") == 1
        assert address.methods.count("tools/call") == 1
        assert result_code(found) == "outcome_unknown"

    run(test())


@pytest.mark.parametrize(
    ("ping", "sessions"),
    [
        (lambda message: json_reply(result(message, {})), 1),
        (lambda message: json_reply(error(message, -32601, "Method not found")), 1),
        (lambda _: json_reply(b"busy", 503), 2),
        (lambda _: b"", 2),
    ],
    ids=["still there", "does not know ping", "still busy", "cut off"],
)
def test_failed_call_does_not_end_the_session_of_another_call(ping, sessions):
    may_answer = asyncio.Event()

    async def calls(message):
        if message["params"]["arguments"]:
            return json_reply(b"busy", 503)
        await may_answer.wait()
        return json_reply(result(message, DONE))

    async def test():
        address = session_server(calls, ping=ping)
        async with address.serving() as url, toolbox_of(server_spec(url, timeout=SAFETY)) as (servers, box):
            paying = asyncio.create_task(Runner(box).run([tool_call("pay")]))
            await until(lambda: "tools/call" in address.methods)
            (failed,) = await Runner(box).run([tool_call("pay", twice=True)])
            assert result_code(failed) == "outcome_unknown"
            assert "HTTP 503" in box.find("pay").withdrawn
            await until(lambda: servers.clients["x"].unavailable_reason is None)
            assert address.methods.count("initialize") == sessions
            assert "DELETE" not in address.methods
            may_answer.set()
            (paid,) = await paying
            assert paid.text == "paid"
            await until(lambda: address.methods.count("DELETE") == sessions - 1)  # nobody uses the old one any more

    run(test())


def test_replaced_session_is_deleted_when_the_client_closes():
    is_over = asyncio.Event()

    async def calls(message):
        if not message["params"]["arguments"]:
            await is_over.wait()
        return b""

    async def test():
        address = session_server(calls, ping=lambda _: b"")
        async with address.serving() as url:
            async with toolbox_of(server_spec(url, timeout=SAFETY)) as (servers, box):
                paying = asyncio.create_task(Runner(box).run([tool_call("pay")]))
                await until(lambda: "tools/call" in address.methods)
                await Runner(box).run([tool_call("pay", twice=True)])
                await until(lambda: servers.clients["x"].unavailable_reason is None)
                assert address.methods.count("initialize") == 2
            assert address.methods.count("DELETE") == 2
            is_over.set()
            await paying

    run(test())


def test_reconnect_delay_of_zero_is_raised_to_a_minimum():
    async def test():
        changes = {"tools": {"listChanged": True}}
        at_once = json_reply(b"retry: 0\n\n", content_type="text/event-stream")
        address = ScriptedHttpServer(
            lambda _: b"",
            **{
                "server/discover": lambda message: discovered(message, **changes),
                "subscriptions/listen": lambda _: at_once,
            },
        )
        async with address.serving() as url:
            async with McpClient(server_spec(url)):
                await asyncio.sleep(1.0)
            await asyncio.sleep(0.1)  # a connection accepted at the last moment is closed, too
        assert 2 <= address.methods.count("subscriptions/listen") <= 12

    run_virtual(test())


def test_closing_a_session_never_starts_a_login():
    class Login:
        challenges = 0

        async def token(self):
            return "t"

        async def handle_challenge(self, *_):
            self.challenges += 1

    async def test():
        login = Login()
        address = session_server(lambda _: b"", DELETE=lambda _: json_reply(b"", 401))
        async with address.serving() as url, McpClient(server_spec(url), login=login):
            pass
        assert address.methods.count("DELETE") == 1
        assert address.requests[-1][0]["authorization"] == "Bearer t"
        assert login.challenges == 0

    run(test())


def test_failed_login_raises_not_authorized():
    async def test():
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        redirect = f"http://127.0.0.1:{taken.sockets[0].getsockname()[1]}/callback"
        login = Login(Browser(redirect), redirect=redirect, client_id="us")
        address = ScriptedHttpServer(lambda _: b"", **{"server/discover": lambda _: json_reply(b"", 401)})
        async with taken, address.serving() as url:
            with pytest.raises(NotAuthorized, match="cannot listen for the redirect"):
                await McpClient(server_spec(url), login=login).connect()

    run(test())


def test_invalid_resource_metadata_url_raises_not_authorized():
    async def test():
        challenge = {"www_authenticate": 'Bearer resource_metadata="https://[nonsense"'}
        refused = {"server/discover": lambda _: json_reply(b"", 401, **challenge)}
        async with ScriptedHttpServer(lambda _: b"", **refused).serving() as url:
            with pytest.raises(NotAuthorized, match="nonsense"):
                await McpClient(server_spec(url), login=Login(Browser())).connect()

    run(test())


IDEMPOTENT = {"server/discover": lambda message: discovered(message, experimental={"dev.toolwire/idempotency": {}})}


@pytest.mark.parametrize(
    "second",
    [
        lambda _: json_reply(b"", 403),
        lambda _: json_reply(b"", 404),
        lambda message: json_reply(error(message, -32602, "no")),
        lambda message: json_reply(result(message, {**DONE, "isError": True})),
        lambda _: b"",
    ],
    ids=["403", "404", "rpc error", "failed", "cut again"],
)
def test_resent_call_leaves_the_outcome_unknown_whatever_the_second_answer(second):
    async def test():
        answers = iter([lambda _: b"", second])
        address = ScriptedHttpServer(lambda message: next(answers, second)(message), **IDEMPOTENT)
        async with address.serving() as url, toolbox_of(server_spec(url, timeout=SAFETY)) as (_, box):
            store = open_store("memory:")
            (found,) = await Runner(box, store=store).run([tool_call("pay")])
            assert address.methods.count("tools/call") == 2
            assert result_code(found) == "outcome_unknown"
            assert [record.state for record in store.records()] == ["unknown"]

    run(test())


def test_failed_second_answer_does_not_mark_the_connection_broken():
    async def test():
        failed = lambda message: json_reply(result(message, {**DONE, "isError": True}))
        answers = iter([lambda _: b"", failed])
        address = ScriptedHttpServer(lambda message: next(answers)(message), **IDEMPOTENT)
        async with address.serving() as url, toolbox_of(server_spec(url, timeout=SAFETY)) as (servers, box):
            await Runner(box, store=open_store("memory:")).run([tool_call("pay")])
            assert servers.clients["x"].unavailable_reason is None
            assert address.methods.count("server/discover") == 2

    run(test())


def test_rejected_call_counts_as_not_run_when_a_new_session_fails():
    async def test():
        sound = []

        def forgotten(_):
            sound.append("no longer")
            return json_reply(b"", 404)

        def initialize(message):
            if sound:
                return json_reply(b"what?")
            value = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}
            return json_reply(result(message, value), mcp_session_id="s")

        address = session_server(forgotten, initialize=initialize)
        async with address.serving() as url, toolbox_of(server_spec(url, timeout=SAFETY)) as (_, box):
            (found,) = await Runner(box.with_options(retries=0)).run([tool_call("pay")])
        assert result_code(found) == "failed"

    run(test())


def test_slow_endless_tool_list_times_out():
    async def test():
        pages = itertools.count()

        def page(message):
            value = {"resultType": "complete", "tools": [], "nextCursor": str(next(pages)), "ttlMs": 0}
            return json_reply(result(message, {**value, "cacheScope": "private"}))

        address = ScriptedHttpServer(lambda _: b"", **{"tools/list": page})
        handle = address.handle

        async def slow(reader, writer):
            try:
                await asyncio.sleep(0.2)
                await handle(reader, writer)
            finally:
                writer.close()

        address.handle = slow
        async with address.serving() as url:
            async with asyncio.timeout(5):
                with pytest.raises(ServerGone, match="did not list its tools within 1 seconds"):
                    async with McpClient(server_spec(url, timeout=1.0)):
                        pass
            await asyncio.sleep(0.3)

    run_virtual(test())
