"""An application behaves the same on our server and on others: requests, answers and ends of connections, over sockets."""

import asyncio
import json
import socket
from contextlib import closing

import pytest
from asgi_servers import SERVERS, running

from hostile import TEXT_ANSWER, Answer, body_of, decode_answer, path_of, request_bytes
from raw_client import read_answers
from serving import upstream_rows
from tables import every_case
from toolwire import Toolbox
from toolwire.asgi.http_exchange import ClientGone, HttpExchange
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.mcp.server.http import HttpApp
from toolwire.mcp.server.server import Server as McpServer
from toolwire.testing import Upstream
from waiting import SAFETY, wait_until

JSON = [(b"content-type", b"application/json")]
POST = b"POST /v1/chat?alt=sse HTTP/1.1\r\nHost: x\r\nX-Twice: 1\r\nx-twice: 2\r\nContent-Length: 5\r\n\r\nhello"
CLOSE = POST.replace(b"Host", b"Connection: close\r\nHost")
REQUESTS = {
    "post": POST,
    "get with an escaped path": b"GET /a%20b/%C3%BC?q=%20 HTTP/1.1\r\nhost: x\r\n\r\n",
    "head": b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n",
    "http 1.0": b"GET / HTTP/1.0\r\n\r\n",
    "close": CLOSE,
    "expect": CLOSE.replace(b"Host", b"Expect: 100-Continue\r\nHost"),
    "chunked": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "pipelined": POST + POST.replace(b"chat", b"other") + POST,
    "close after another": POST + CLOSE,
}
PATHS = {
    "get with an escaped path": [("/a b/\u00fc", b"q=%20", b"")],
    "head": [("/", b"", b"")],
    "http 1.0": [("/", b"", b"")],
    "chunked": [("/", b"", b"hello")],
    "pipelined": [(f"/v1/{name}", b"alt=sse", b"hello") for name in ("chat", "other", "chat")],
    "close after another": [("/v1/chat", b"alt=sse", b"hello")] * 2,
}
SEVERAL = ("pipelined", "close after another")
ONE_POST = [("/v1/chat", b"alt=sse", b"hello")]


async def stream(http_exchange):
    await http_exchange.start(200, JSON)
    for piece in (b"one", b"", b"x" * 70_000, b"two"):
        await http_exchange.write(piece)
    await http_exchange.end()


def respond(status, headers, body):
    return lambda http_exchange: http_exchange.respond(status, headers, body)


async def send_messages(http_exchange):
    """Send the messages of ASGI, as an application without `HttpExchange` does."""
    await http_exchange._send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"6")]})
    await http_exchange._send({"type": "http.response.body", "body": b"abc", "more_body": True})
    await http_exchange._send({"type": "http.response.body", "body": b"def"})


async def fail(http_exchange):
    raise RuntimeError("a bug in the application")


ANSWERS = {
    "whole": (respond(200, [*JSON, (b"x-request-id", b"abc")], b'{"a":1}'), 200, b'{"a":1}'),
    "without headers or body": (respond(404, [], b""), 404, b""),
    "no content": (respond(204, [], b""), 204, b""),
    "large": (respond(200, JSON, b"x" * 70_000), 200, b"x" * 70_000),
    "upper case": (respond(200, [(b"Content-Type", b"Text/Plain")], b"x"), 200, b"x"),
    "close": (respond(200, [(b"connection", b"close")], b"x"), 200, b"x"),
    "stream": (stream, 200, b"one" + b"x" * 70_000 + b"two"),
    "messages": (send_messages, 201, b"abcdef"),
    "failure": (fail, 500, None),
}


class App:
    """Answers as the query or the header says, and records what it gets."""

    def __init__(self):
        self.answer = None
        self.seen = []
        self.disconnects = 0

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            raise RuntimeError("no other scope is supported")
        http_exchange = HttpExchange(scope, receive, send)
        self.seen.append((scope, await http_exchange.read_body(100, SAFETY)))
        await self.answer(http_exchange)


@pytest.fixture(scope="module", params=SERVERS)
def served(request):
    app = App()
    with running(request.param, app) as address:
        yield request.param, app, address


def exchange(served, answer, data, size):
    """Return the requests that the application got, the answers, and whether the server closed the connection."""
    _, app, address = served
    app.seen, app.answer = [], ANSWERS[answer][0]
    with closing(socket.create_connection(address, SAFETY)) as client:
        for start in range(0, len(data), size or len(data)):
            client.sendall(data[start : start + (size or len(data))])
        answers = read_answers(client, data)
    return app.seen, answers


@every_case("size", [None, 7])
@every_case("answer", ANSWERS)
@every_case("request_name", REQUESTS)
def test_exchange_is_the_same_on_all_servers(served, request_name, answer, size):
    if served[0] != "own" and answer in ("close", "failure") and request_name in SEVERAL:
        return  # they may close a connection with unread data, which resets it, and the answer can be lost
    seen, answers = exchange(served, answer, REQUESTS[request_name], size)
    _, status, body = ANSWERS[answer]
    expected = PATHS.get(request_name, ONE_POST)
    if answer in ("close", "failure"):
        expected = expected[:1]
    assert [(scope["path"], scope["query_string"], found) for scope, found in seen] == expected
    for scope, _ in seen:
        assert scope["method"] == REQUESTS[request_name].split(b" ")[0].decode()
        assert scope["http_version"] == ("1.0" if request_name == "http 1.0" else "1.1")
        if scope["method"] == "POST" and request_name != "chunked":
            assert [(name, value) for name, value in scope["headers"] if name == b"x-twice"] == [
                (b"x-twice", b"1"),
                (b"x-twice", b"2"),
            ]
    assert [found.status for found in answers] == [status] * len(expected)
    for found in answers:
        assert body is None or found.body == (b"" if request_name == "head" else body)
        assert b"\r\ndate: " in found.head.lower()


def test_invalid_header_is_not_sent(served):
    async def inject(http_exchange):
        await http_exchange.respond(200, [(b"x-a", b"b\r\nset-cookie: c")], b"x")

    ANSWERS["injected"] = (inject, 500, None)
    try:
        _, answers = exchange(served, "injected", POST, None)
    finally:
        del ANSWERS["injected"]
    assert not answers or (answers[0].status == 500 and b"set-cookie" not in answers[0].head)


def test_disconnect_is_reported_to_the_application(served):
    _, app, address = served
    outcomes = []

    async def wait(http_exchange):
        await http_exchange.start(200, JSON)
        await http_exchange.write(b"first")
        try:
            await http_exchange.read_piece(SAFETY)
        except ClientGone:
            outcomes.append("gone")

    app.answer = wait
    with closing(socket.create_connection(address, SAFETY)) as client:
        client.sendall(POST)
        while b"first" not in client.recv(1000):
            pass
    wait_until(lambda: outcomes == ["gone"])


def gateway_scene(server, scene):
    """Call the scene with a gateway on this server, in a thread."""

    async def main():
        async with Upstream(TEXT_ANSWER, TEXT_ANSWER) as upstream:
            gateway = Gateway(parse_settings({"upstreams": upstream_rows(upstream.url)}), environment={})
            with running(server, gateway) as address:
                await asyncio.to_thread(scene, address)

    asyncio.run(main())


@pytest.mark.parametrize("server", SERVERS)
def test_gateway_is_served_by_each_server(server):
    def scene(address):
        with closing(socket.create_connection(address, SAFETY)) as client:
            for is_stream in (False, True):
                body = body_of("openai_chat", stream=is_stream)
                data = request_bytes(path_of("openai_chat"), body, {})
                client.sendall(data)
                [answer] = read_answers(client, b"POST /")
                assert answer.status == 200
                assert (
                    TEXT_ANSWER.text
                    in decode_answer(Answer(200, {}, answer.body), "openai_chat", stream=is_stream).text
                )
            client.sendall(b"HEAD /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            [answer] = read_answers(client, b"HEAD /")
            assert (answer.status, answer.body) == (200, b"")
            client.sendall(b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
            [answer] = read_answers(client, b"GET /")
            assert answer.status == 404 and json.loads(answer.body)["error"]

    gateway_scene(server, scene)


@pytest.mark.parametrize("server", SERVERS)
def test_mcp_server_is_served_by_each_server(server):
    def add(a: int, b: int) -> int:
        return a + b

    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    message["params"] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    body = json.dumps(message).encode()
    head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream"
    with (
        running(server, HttpApp(McpServer(Toolbox([add])))) as address,
        closing(socket.create_connection(address, SAFETY)) as client,
    ):
        client.sendall(head + b"\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        [answer] = read_answers(client, b"POST /")
    assert answer.status == 200 and json.loads(answer.body)["result"]["serverInfo"]
