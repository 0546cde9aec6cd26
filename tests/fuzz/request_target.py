"""The HTTP server as a target: a client's bytes mean the same in any cut."""

import asyncio
import sys
from pathlib import Path

from engine import Target

from toolwire.asgi.admission import ConnectionCounts, DefaultLimits
from toolwire.asgi.connection import Connection
from toolwire.asgi.server_context import ServerContext

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
from raw_client import MemoryReader, read_answer

TURNS = 6  # of the event loop between two pieces, as many as an answer needs
LIMITS = DefaultLimits(head=300)  # bytes, so that inputs reach the limit
REQUEST = b"POST /a?b=c HTTP/1.1\r\nhost: x\r\n"
_loop = asyncio.new_event_loop()


class _Client(asyncio.Transport):
    """The side of a client that sends what the fuzzer says."""

    def __init__(self):
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data):
        assert not self.closed, "data after the end"
        self.written += data

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.closed = True

    close = abort = write_eof

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def get_write_buffer_size(self):
        return 0


async def exchange(pieces):
    """Return the requests that the application got, the statuses of the answers, and whether the server closed the connection."""
    seen = []

    async def app(scope, receive, send):
        message, body = {"type": "http.request", "more_body": True}, b""
        while message["type"] == "http.request" and message["more_body"]:
            message = await receive()
            body += message.get("body", b"")
        if message["type"] != "http.disconnect":
            seen.append((scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], body))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

    client = _Client()
    context = ServerContext(app, limits=lambda: LIMITS, counts=ConnectionCounts(10, 10))
    connection = Connection(context)
    connection.connection_made(client)
    for piece in pieces:
        connection.data_received(piece)
        for _ in range(TURNS):
            await asyncio.sleep(0)
    for _ in range(TURNS * b"".join(pieces).count(b"HTTP/")):  # queued requests are answered one after the other
        await asyncio.sleep(0)
    closed = client.closed
    connection.connection_lost(None)
    while context.exchanges:  # noqa: ASYNC110
        await asyncio.sleep(0)
    reader, statuses = MemoryReader(client.written), []
    while True:
        method = seen[len(statuses)][0].encode() if len(statuses) < len(seen) else b"GET"
        if (answer := read_answer(reader, method)) is None:
            return seen, statuses, closed
        statuses.append(answer.status)


def check_request(data, random):
    """The requests and the answers are the same in any cut, in the order of the requests, and a refusal is the last one."""
    whole = _loop.run_until_complete(exchange([data]))
    pieces, position = [], 0
    while position < len(data):
        size = random.choice((1, 1, 2, 3, 8, 64, 1024))
        pieces.append(data[position : position + size])
        position += size
    seen, statuses, closed = _loop.run_until_complete(exchange(pieces))
    assert statuses[: len(seen)] == [200] * len(seen)
    assert len(statuses) - len(seen) in (0, 1)
    assert closed or len(statuses) == len(seen)
    for _, path, query, headers, _ in seen:  # nothing is joined from parts of different requests
        assert path == b"/" or path in data
        assert query in data
        lines = [line.partition(b":")[2].strip() for line in data.split(b"\n")]
        assert all(value in lines for name, value in headers if name != b"connection")
    if 431 not in (*statuses, *whole[1]):  # white space counts only while a head is incomplete
        assert (seen, statuses, closed) == whole
    return len(seen), tuple(statuses[len(seen) :]), closed, tuple(bool(body) for *_, body in seen)


TARGET = Target(
    "request",
    check_request,
    [
        *(b"\r\n", b"\n", b"\r\n\r\n", b":", b" ", b"\t", b"0\r\n\r\n", b"5\r\nhello\r\n", b"HTTP/1.1", b"HTTP/1.0"),
        *(
            b"content-length: 5\r\n",
            b"transfer-encoding: chunked\r\n",
            b"connection: close\r\n",
            b"expect: 100-continue\r\n",
        ),
        *(
            b"connection: upgrade\r\nupgrade: h2c\r\n",
            b"proxy-connection: upgrade\r\nupgrade: x\r\n",
            b"te: trailers\r\n",
            b"x: y\r\n",
            b";ext",
            b"ffffffff",
            b"\x00",
            b"\xff",
        ),
        *(b"GET ", b"HEAD ", b"CONNECT ", b"*", b"http://h/", b"%41", b"x" * 100, REQUEST),
    ],
    [
        REQUEST + b"content-length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nhost: x\r\n\r\n",
        REQUEST + b"transfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nt: 1\r\n\r\n" + REQUEST + b"\r\n",
        REQUEST + b"connection: upgrade, close\r\nupgrade: websocket\r\ncontent-length: 2\r\n\r\nhi",
        (REQUEST + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n") * 3 + REQUEST + b"\r\n",
        REQUEST + b"proxy-connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nhi" + REQUEST + b"\r\n",
        b"HEAD / HTTP/1.0\r\n\r\n" + REQUEST,
        REQUEST + b"expect: 100-continue\r\ncontent-length: 5\r\n\r\nhello",
    ],
)
