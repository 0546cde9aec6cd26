"""Measure the CPU time of an HTTP server for a request: ours, uvicorn's, and the least that asyncio and httptools need.

    python bench/gateway/http_server.py [--rounds 15] [--requests 4000] [--json FILE]

Each server is a process that answers a POST of 200 bytes with 200 bytes of JSON; 8 connections send a request each, and
the next one after the answer. All servers run during the whole measurement; each has its turn in every round. The time
is the CPU time of the server's process, and the result the median of the rounds, with the quartiles.

    raw              a protocol that parses with httptools and writes a constant
    uvicorn          `receive` and `send`
    own, messages    our server, `receive` and `send`
    own, direct      our server, and the synchronous steps of its `DirectExchange`
    own, exchange    our server and `HttpExchange`, which uses these steps, as the gateway does; it also decodes the headers
"""

import argparse
import asyncio
import json
import selectors
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 146 + b'"}]}'
ANSWER = b'{"text":"' + b"y" * 189 + b'"}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:8000\r\naccept: */*\r\naccept-encoding: gzip, deflate\r\n"
    b"connection: keep-alive\r\nuser-agent: bench/1.0\r\nauthorization: Bearer sk-0123456789\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
CONNECTIONS = 8
WARM_UP = 500  # requests
SERVERS = ("raw", "uvicorn", "own, messages", "own, direct", "own, exchange")
JSON = [(b"content-type", b"application/json")]


async def answer_with_messages(_scope, receive, send):
    message = await receive()
    while message["more_body"]:
        message = await receive()
    headers = [*JSON, (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


async def answer_directly(_scope, receive, send):
    from toolwire.asgi.http_exchange import find_direct_exchange

    direct = find_direct_exchange(receive, send)
    assert direct is not None
    assert direct.take_whole_body() is not None
    assert direct.try_respond(200, JSON, ANSWER)


async def answer_with_exchange(scope, receive, send):
    from toolwire.asgi.http_exchange import HttpExchange

    exchange = HttpExchange(scope, receive, send)
    await exchange.read_body(100_000, 30.0)
    await exchange.respond(200, JSON, ANSWER)


class Raw(asyncio.Protocol):
    """Parses requests, and answers each of them with the same bytes."""

    def connection_made(self, transport):
        from httptools import HttpRequestParser

        self._transport = transport
        self._parser = HttpRequestParser(self)

    def data_received(self, data):
        self._parser.feed_data(data)

    def on_url(self, url):
        self._headers = []

    def on_header(self, name, value):
        self._headers.append((name.lower(), value))

    def on_body(self, body):
        pass

    def on_message_complete(self):
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
        )


async def serve_raw(listener):
    server = await asyncio.get_running_loop().create_server(Raw, sock=listener)
    await server.serve_forever()


async def serve_uvicorn(listener):
    import uvicorn

    options = {"http": "httptools", "ws": "none", "lifespan": "off", "interface": "asgi3"}
    quiet = {"access_log": False, "log_config": None, "server_header": False, "proxy_headers": False}
    config = uvicorn.Config(answer_with_messages, timeout_keep_alive=75, **options, **quiet)
    await uvicorn.Server(config).serve([listener])


async def serve_own(listener, app):
    from toolwire.asgi.server import HttpServer
    from toolwire.asgi.server_context import ServerContext

    await HttpServer(ServerContext(app, keep_alive=75.0), grace=1.0).serve([listener])


def serve(name: str) -> None:
    """Serve on the socket that is the standard input of this process."""
    import uvloop

    listener = socket.socket(fileno=0)
    serving = {
        "raw": lambda: serve_raw(listener),
        "uvicorn": lambda: serve_uvicorn(listener),
        "own, messages": lambda: serve_own(listener, answer_with_messages),
        "own, direct": lambda: serve_own(listener, answer_directly),
        "own, exchange": lambda: serve_own(listener, answer_with_exchange),
    }[name]
    uvloop.run(serving())


class Candidate:
    """A server in a process, and the connections to it."""

    def __init__(self, name: str) -> None:
        self.micros: list[float] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._process = subprocess.Popen([sys.executable, __file__, "--serve", name], stdin=listener)
            self._connections = [socket.create_connection(listener.getsockname()) for _ in range(CONNECTIONS)]
        self._clock = (~self._process.pid << 3) | 2  # CPU time of another process: clock_getcpuclockid(3)

    def run(self, requests: int) -> None:
        """Send requests, and note the CPU time of each."""
        before = time.clock_gettime(self._clock)
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                selector.register(connection, selectors.EVENT_READ)
                connection.sendall(REQUEST)
            sent, answered = len(self._connections), 0
            while answered < requests:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)
                    assert data, "the server has closed the connection"
                    if not data.endswith(ANSWER):
                        continue  # a server may write the head alone
                    answered += 1
                    if sent < requests:
                        key.fileobj.sendall(REQUEST)
                        sent += 1
        self.micros.append((time.clock_gettime(self._clock) - before) / requests * 1e6)

    def stop(self) -> None:
        for connection in self._connections:
            connection.close()
        self._process.terminate()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", choices=SERVERS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    candidates = {name: Candidate(name) for name in SERVERS}
    for candidate in candidates.values():
        candidate.run(WARM_UP)
        candidate.micros.clear()
    for _ in range(arguments.rounds):
        for candidate in candidates.values():
            candidate.run(arguments.requests)
    results = {}
    for name, candidate in candidates.items():
        candidate.stop()
        first, median, third = statistics.quantiles(candidate.micros, n=4)
        results[name] = {"median": round(median, 1), "quartiles": [round(first, 1), round(third, 1)]}
        print(f"{name:<15} {median:6.1f} µs   ({first:.1f} to {third:.1f})")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
