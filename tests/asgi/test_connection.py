"""Requests and answers on a connection, and the limits of both, with a transport in memory."""

import asyncio
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_connection import Client, settle

from raw_client import MemoryReader, read_answer
from tables import every_case
from toolwire.asgi.http_exchange import ClientGone, DirectExchange, HttpExchange, find_direct_exchange
from toolwire.asgi.server_exchange import ServerExchange
from waiting import until

JSON = [(b"content-type", b"application/json")]
POST = b"POST /v1/chat?alt=sse HTTP/1.1\r\nHost: x\r\nX-Twice: 1\r\nx-twice: 2\r\nContent-Length: 5\r\n\r\nhello"
CLOSE = POST.replace(b"Host", b"Connection: close\r\nHost")


def exchange_with(answer, data, size=None, **options):
    """Return the scopes, the bodies, the answers and whether the connection was closed."""
    seen = []

    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        seen.append((dict(scope), await http_exchange.read_body(100, 30.0)))
        await answer(http_exchange)

    async def main():
        client = Client(app, **options)
        written = await client.send(data, size)
        return seen, written, client.connection.closed

    return asyncio.run(main())


def respond(status, headers, body):
    return lambda http_exchange: http_exchange.respond(status, headers, body)


WHOLE = respond(200, [*JSON, (b"x-request-id", b"abc")], b'{"a":1}')


async def stream_pieces(http_exchange):
    await http_exchange.start(200, JSON)
    await http_exchange.write(b"one")
    await http_exchange.end()


@pytest.mark.parametrize("answer", [WHOLE, stream_pieces], ids=["whole", "stream"])
@pytest.mark.parametrize("data", [POST, CLOSE, POST.replace(b"POST", b"HEAD")], ids=["post", "close", "head"])
def test_most_answers_need_no_messages(answer, data, monkeypatch):
    async def refuse(self, message):
        raise AssertionError(message)

    if answer is WHOLE or not data.startswith(b"HEAD"):  # a piece that is dropped is sent as a message
        monkeypatch.setattr(ServerExchange, "send", refuse)
    monkeypatch.setattr(ServerExchange, "receive", refuse)
    _, written, _ = exchange_with(answer, data)
    assert written.count(b"HTTP/1.1 200 OK\r\n") == 1


def test_white_space_around_the_value_of_a_header_is_removed():
    [(scope, _)], _, _ = exchange_with(WHOLE, POST.replace(b"Host: x", b"Host:\t x \t"))
    assert scope["headers"][0] == (b"host", b"x")


def test_scope_has_what_asgi_requires():
    [(scope, body)], _, _ = exchange_with(WHOLE, POST)
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 2),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "method": "POST",
        "root_path": "",
        "path": "/v1/chat",
        "raw_path": b"/v1/chat",
        "query_string": b"alt=sse",
        "headers": [(b"host", b"x"), (b"x-twice", b"1"), (b"x-twice", b"2"), (b"content-length", b"5")],
        "state": {"a": 1},
    }
    assert body == b"hello"


async def answer_with(http_exchange, door, status, headers, pieces):
    if door == "whole":
        await http_exchange.respond(status, headers, b"".join(pieces))
    elif door == "stream":
        await http_exchange.start(status, headers)
        for piece in pieces:
            await http_exchange.write(piece)
        await http_exchange.end()
    else:
        send = http_exchange._send
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})


STATUSES = [200, 204, 304, 404, 599]
DOORS = ["whole", "stream", "messages"]
FIELDS = {
    "none": [],
    "upper case": [(b"Content-Type", b"Text/Plain")],
    "percent": [(b"x-%b", b"100%"), (b"x-c", b"%d")],
    "close": [(b"Connection", b"keep-alive, Close")],
    "coding": [(b"transfer-encoding", b"chunked")],
    "length": [(b"content-length", b"6")],
}


@every_case("method", [b"GET", b"HEAD"])
@every_case("version", [b"1.1", b"1.0"])
@every_case("fields", FIELDS)
@every_case("status", STATUSES)
@every_case("door", DOORS)
def test_every_answer_is_framed_for_its_client(door, status, fields, version, method):
    """All doors write an answer that a client reads as it was meant, before the next answer or the end."""
    headers = FIELDS[fields]
    data = b"%b / HTTP/%b\r\nhost: x\r\n\r\n" % (method, version)
    _, written, is_closed = exchange_with(
        lambda http_exchange: answer_with(http_exchange, door, status, headers, [b"abc", b"", b"def"]), data * 2
    )
    has_body = method == b"GET" and status not in (204, 304)
    closes = fields == "close" or version == b"1.0"
    reader = MemoryReader(written)
    answers = []
    while (answer := read_answer(reader, method)) is not None:
        answers.append(answer)
    assert [answer.status for answer in answers] == [status] * (1 if closes else 2)
    assert {answer.body for answer in answers} == {b"abcdef" if has_body else b""}
    head = answers[0].head
    assert is_closed == closes == (b"onnection: " in head and b"lose\r\n" in head)
    assert (b"transfer-encoding" in head) == (
        has_body and version == b"1.1" and door != "whole" and fields != "length"
    ) or (method == b"HEAD" and b"transfer-encoding" not in head)
    assert not (status == 204 and b"content-length" in head)
    for name, value in headers:
        if name not in (b"transfer-encoding", b"content-length"):
            assert name.lower() + b": " + value + b"\r\n" in head


NAMES = st.text(st.characters(codec="latin-1"), max_size=3).map(lambda text: text.encode("latin-1"))
TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@given(st.lists(st.tuples(NAMES, st.binary(max_size=3)), max_size=3))
def test_headers_are_written_as_they_are_or_refused(headers):
    is_valid = all(
        name and TOKEN.issuperset(name) and not any((byte < 32 and byte != 9) or byte == 127 for byte in value)
        for name, value in headers
    )
    _, written, _ = exchange_with(respond(200, headers, b"x"), POST)
    lines = b"".join(name.lower() + b": " + value + b"\r\n" for name, value in headers)
    assert written.startswith(b"HTTP/1.1 200" if is_valid else b"HTTP/1.1 500")
    assert lines in written if is_valid else b"x\r\n\r\nx" not in written


@pytest.mark.parametrize("pieces", [[b"abcde"], [b"abc"], [b"abc", b"abcd"]])
def test_body_of_another_length_than_declared_ends_the_connection(pieces):
    async def answer(http_exchange):
        await answer_with(http_exchange, "messages", 200, [(b"content-length", b"4")], pieces)

    _, written, is_closed = exchange_with(answer, POST)
    assert is_closed and len(written.partition(b"\r\n\r\n")[2]) < 4


def test_whole_answer_of_another_length_than_declared_is_not_sent():
    _, written, is_closed = exchange_with(respond(200, [(b"content-length", b"4")], b"abc"), POST)
    assert is_closed and written == b""


@pytest.mark.parametrize("kinds", [["body"], ["start", "start"], ["start", "body", "body"]])
def test_message_out_of_order_is_an_error(kinds):
    errors = []

    async def answer(http_exchange):
        try:
            for kind in kinds:
                await http_exchange._send({"type": f"http.response.{kind}", "status": 200})
        except RuntimeError as error:
            errors.append(str(error))

    exchange_with(answer, POST)
    assert len(errors) == 1 and "unexpected ASGI message" in errors[0]


def test_application_that_fails_after_its_answer_does_not_end_the_next_request():
    async def answer(http_exchange):
        await http_exchange.respond(200, JSON, b"{}")
        raise RuntimeError("a bug after the answer")

    _, written, is_closed = exchange_with(answer, POST * 3)
    assert written.count(b"HTTP/1.1 200") == 3 and not is_closed


def test_continue_is_sent_only_before_the_body():
    expecting = POST.replace(b"Host", b"Expect: 100-continue\r\nHost")
    _, written, _ = exchange_with(WHOLE, expecting[:-5] + expecting[-5:])
    assert b"100 Continue" not in written
    _, written, is_closed = exchange_with(WHOLE, expecting, len(expecting) - 5)
    assert written.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200") and not is_closed


def test_connection_is_closed_after_an_answer_without_continue():
    """The client may send the body or not, so the next bytes are ambiguous (RFC 9110, 10.1.1)."""

    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(404, JSON, b"{}")

    async def main():
        client = Client(app)
        expecting = POST.replace(b"Host", b"Expect: 100-continue\r\nHost")[:-5]
        await client.send(expecting)
        return await client.send(POST), client.connection.closed

    written, is_closed = asyncio.run(main())
    assert written.count(b"HTTP/1.1 404") == written.count(b"HTTP/1.1") == 1
    assert b"connection: close\r\n" in written and is_closed


def test_nothing_after_the_last_request_is_processed():
    """RFC 9112, 9.6."""
    seen, written, is_closed = exchange_with(WHOLE, CLOSE + POST)
    assert (len(seen), written.count(b"HTTP/1.1"), is_closed) == (1, 1, True)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", b"505"),
        (b"GET / HTTP/0.9\r\nhost: x\r\n\r\n", b"505"),
        (b"GET /\r\n\r\n", b"505"),
        (b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    ],
)
def test_head_that_is_not_supported_is_refused(head, status):
    seen, written, is_closed = exchange_with(WHOLE, head + POST)
    assert (seen, written.count(b"content-length: "), is_closed) == ([], 1, True)
    assert written.startswith(b"HTTP/1.1 " + status)


def test_endless_trailer_is_refused():
    """A field without an end is no event of the parser, so its bytes are counted as they arrive."""
    data = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: "
    _, written, is_closed = exchange_with(WHOLE, data + b"x" * 5000, 1000, head=1000)
    assert written.startswith(b"HTTP/1.1 431") and is_closed


def test_small_chunks_are_not_counted_as_part_of_the_head():
    chunks = b"1;" + b"e" * 500 + b"\r\nx\r\n"
    data = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunks * 50 + b"0\r\n\r\n"
    [(_, body)], written, _ = exchange_with(WHOLE, data, 700, head=1000)
    assert body == b"x" * 50 and written.startswith(b"HTTP/1.1 200")


class Echo:
    """A protocol after an upgrade."""

    def __init__(self, connection, scope):
        self._connection = connection
        self.scope = scope
        self.events = []
        connection.transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")

    def data_received(self, data):
        self._connection.transport.write(data)
        if data == b"end":
            self._connection.close()

    def connection_lost(self, error):
        self.events.append("lost")

    def shutdown(self):
        self.events.append("shutdown")


WEBSOCKET = b"GET /ws?a=b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"


def switch(data, size=None, *, takes=True):
    """Return the protocol of the hook, its written bytes, and the client."""
    switched = []

    def hook(connection, scope):
        if not takes:
            return None
        switched.append(Echo(connection, scope))
        return switched[0]

    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(426, JSON, b"{}")

    async def main():
        client = Client(app, upgrade=hook)
        await client.send(data, size)
        if switched:
            client.protocol.shutdown()
            client.protocol.data_received(b"end")
            is_closed = client.connection.closed
            client.protocol.connection_lost(None)
            assert is_closed and switched[0].events == ["shutdown", "lost"]
        return switched, client

    return asyncio.run(main())


@pytest.mark.parametrize("size", [None, 9])
def test_hook_takes_a_websocket_handshake_and_the_data_after_it(size):
    [echo], client = switch(WEBSOCKET + b"hello", size)
    assert client.connection.written.endswith(b"\r\n\r\nhelloend")
    assert (echo.scope["path"], echo.scope["query_string"]) == ("/ws", b"a=b")


@pytest.mark.parametrize("size", [None, 9])
def test_upgrade_that_no_hook_takes_is_a_request(size):
    ignored = WEBSOCKET.replace(b"Connection", b"Proxy-Connection")  # llhttp reads it as `connection`
    for data, takes in ((WEBSOCKET, False), (WEBSOCKET.replace(b"WebSocket", b"h2c"), True), (ignored, True)):
        switched, client = switch(data + WEBSOCKET.replace(b"WebSocket", b"h2c"), size, takes=takes)
        assert not switched
        assert client.connection.written.count(b"HTTP/1.1 426") == 2


def test_switched_connection_has_no_time_limit(virtual_time):
    async def main():
        client = Client(None, upgrade=Echo)
        await client.send(WEBSOCKET)
        await asyncio.sleep(3600)
        return client.connection.closed

    assert not asyncio.run(main())


def head_of_size(size):
    """A request whose URL and fields count as `size` bytes."""
    head = b"GET / HTTP/1.1\r\nhost:x\r\n"
    counted = 1 + 4 + 1 + 4
    while size - counted > 200:
        head += b"a:" + b"b" * 10 + b"\r\n"
        counted += 1 + 10 + 4
    return head + b"a:" + b"b" * (size - counted - 5) + b"\r\n\r\n"


@pytest.mark.parametrize("size", [None, 100, 1])
@pytest.mark.parametrize("start", [0, 15, 120], ids=["alone", "after its first line", "within its fields"])
def test_size_of_a_head_is_limited_exactly(start, size):
    """Also if it begins in the same data as the end of another request."""

    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(200, JSON, b"{}")

    async def main(head):
        client = Client(app, 1000)
        await client.send(POST + head[:start])
        return await client.send(head[start:], size)

    for head_size, status in ((1000, b"200"), (1001, b"431")):
        _, first, second = asyncio.run(main(head_of_size(head_size))).split(b"HTTP/1.1 ")
        assert first.startswith(b"200")
        assert second.startswith(status)


@pytest.mark.parametrize("size", [None, 50])
def test_trailers_count_as_part_of_the_head(size):
    for length, status in ((500, b"200"), (501, b"431")):
        body = (
            b"POST / HTTP/1.1\r\nhost:x\r\nb:" + b"b" * 470 + b"\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
        )
        head_size = 1 + 9 + 475 + 28
        data = body + b"t:" + b"t" * (length - head_size + 500 - 5) + b"\r\n\r\n"
        _, written, _ = exchange_with(WHOLE, data, size, head=1000)
        assert written.startswith(b"HTTP/1.1 " + status)


def test_connection_is_closed_after_the_timeout_since_its_last_answer(virtual_time):
    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(200, JSON, b"{}")

    async def main():
        client = Client(app)
        closed = []
        for seconds in (3, 3, 1.9, 0.2):
            if len(closed) < 2:
                await client.send(POST)
            await asyncio.sleep(seconds)
            closed.append(client.connection.closed)
        return closed

    assert asyncio.run(main()) == [False, False, False, True]


def test_connection_answered_before_its_body_is_closed_after_the_body(virtual_time):
    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(404, JSON, b"{}")

    async def main():
        client = Client(app)
        await client.send(b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n")
        await asyncio.sleep(0.2)
        await client.send(b"x")
        was_closed = client.connection.closed
        await asyncio.sleep(3600)
        return was_closed, client.connection.closed

    assert asyncio.run(main()) == (False, True)


@pytest.mark.parametrize(
    "request_name",
    ["post", "close", "not HTTP", "early"],
    ids=["after the keep-alive", "after the answer", "after an error", "after an early answer"],
)
def test_client_that_does_not_read_its_last_answer_is_disconnected(virtual_time, request_name):
    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(200, JSON, b"{}")

    async def main():
        client = Client(app)
        client.connection.unread = 40_000
        if request_name == "early":
            await client.send(POST[:-1])  # it is answered before the last byte
            await client.send(POST[-1:])
        else:
            await client.send({"post": POST, "close": CLOSE}.get(request_name, b"NOT HTTP\r\n\r\n"))
        await asyncio.sleep(20)
        client.connection.unread = 30_000  # it has read a part, and gets more time
        await asyncio.sleep(30)
        early = client.connection.aborted
        await asyncio.sleep(30)
        return client.connection.closed, early, client.connection.aborted

    assert asyncio.run(main()) == (True, False, True)


def test_answers_that_a_client_begins_to_read_are_limited_in_time_to_the_end(virtual_time):
    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        await http_exchange.start(200, JSON)
        await http_exchange.end()
        client.connection.unread = 100_000
        client.protocol.pause_writing()

    async def main():
        nonlocal client
        client = Client(app)
        await client.send(CLOSE)
        client.connection.unread = 10_000
        client.protocol.resume_writing()
        await asyncio.sleep(61)
        return client.connection.aborted

    client = None
    assert asyncio.run(main())


def answer_when(released, paths):
    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        await http_exchange.read_body(1_000_000, 30.0)
        await released.wait()
        paths.append(scope["path"])
        await http_exchange.respond(200, JSON, b"{}")

    return app


def test_queued_requests_are_limited_and_the_connection_is_closed_after_them():
    async def main():
        released, paths = asyncio.Event(), []
        client = Client(answer_when(released, paths))
        await client.send(POST * 5000)
        await client.send(POST * 100)
        released.set()
        await until(lambda: client.connection.closed)
        return len(paths), client.connection

    answered, connection = asyncio.run(main())
    assert 400 < answered < 600
    assert connection.closed and not connection.read_paused  # the others are read, and ignored
    assert connection.written.count(b"HTTP/1.1 200 OK") == answered
    assert connection.written.count(b"connection: close") == 1
    assert connection.written.endswith(b"connection: close\r\n\r\n{}")


def test_reading_is_paused_while_large_requests_are_queued():
    large = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 70000\r\n\r\n" + b"x" * 70_000

    async def main():
        released, paths = asyncio.Event(), []
        client = Client(answer_when(released, paths))
        states = []
        for data in (POST, POST, large):
            await client.send(data)
            states.append(client.connection.read_paused)
        client.protocol.resume_reading()  # as a request does that watches for a disconnect
        states.append(client.connection.read_paused)
        released.set()
        await settle()
        return states, client.connection.read_paused, len(paths)

    assert asyncio.run(main()) == ([False, False, True, True], False, 3)


def test_queued_request_with_an_incomplete_body_does_not_end_the_request_before_it(virtual_time):
    start = b"POST /third HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nx"

    async def main():
        paths = []

        async def app(scope, receive, send):
            http_exchange = HttpExchange(scope, receive, send)
            await http_exchange.read_body(10, 30.0)
            await asyncio.sleep(1 if not paths else 100)
            paths.append(scope["path"])
            await http_exchange.respond(200, JSON, b"{}")

        client = Client(app)
        await client.send(POST + POST + start)
        await asyncio.sleep(110)
        answered = len(paths)
        await client.send(b"x")
        await asyncio.sleep(110)
        return answered, len(paths), client.connection.aborted

    assert asyncio.run(main()) == (2, 3, False)


def test_body_after_an_ignored_upgrade_is_read_on_a_connection_that_closes():
    upgrade = b"Connection: close, Upgrade\r\nUpgrade: h2c\r\nHost"
    seen, written, is_closed = exchange_with(WHOLE, POST.replace(b"Host", upgrade) + POST)
    assert [body for _, body in seen] == [b"hello"]
    assert written.startswith(b"HTTP/1.1 200 OK") and is_closed


@pytest.mark.parametrize(
    ("url", "path", "query"), [(b"http://x", "/", b""), (b"http://x?a=b", "/", b"a=b"), (b"http://x/y", "/y", b"")]
)
def test_url_with_a_host_has_the_path_of_its_resource(url, path, query):
    """A server accepts the absolute form (RFC 9112, 3.2.2), in which an empty path is `/`."""
    data = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % url
    [(scope, _)], written, _ = exchange_with(respond(200, JSON, b"{}"), data)
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, path.encode(), query)
    assert written.startswith(b"HTTP/1.1 200 OK")


def test_expectation_of_an_http_1_0_client_is_ignored():
    """RFC 9110, 10.1.1: such a client takes 100 for its answer."""
    data = POST.replace(b"Host", b"Expect: 100-Continue\r\nHost").replace(b"HTTP/1.1", b"HTTP/1.0")
    [(_, body)], written, is_closed = exchange_with(respond(200, JSON, b"{}"), data, 80)
    assert body == b"hello"
    assert written.startswith(b"HTTP/1.1 200 OK") and is_closed


def test_stream_waits_for_a_client_that_does_not_read():
    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        await http_exchange.start(200, JSON)
        client.protocol.pause_writing()
        await http_exchange.write(b"one")
        await http_exchange.end()

    async def main():
        nonlocal client
        client = Client(app)
        before = await client.send(POST)
        client.protocol.resume_writing()
        await settle()
        return before, client.connection.written

    client = None
    before, after = asyncio.run(main())
    assert before.endswith(b"\r\n\r\n")
    assert after == before + b"3\r\none\r\n0\r\n\r\n"


@pytest.mark.parametrize("next_request", ["none", "after the answer", "during the answer"])
def test_request_after_a_stream_is_answered_if_the_server_stops_meanwhile(next_request):
    """The head of the stream was written before the stop, so the client uses its connection again."""
    paths = []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        http_exchange = HttpExchange(scope, receive, send)
        await http_exchange.start(200, JSON)
        if len(paths) == 1:
            client.protocol.shutdown()
            if next_request == "during the answer":
                client.protocol.data_received(POST)
        await http_exchange.end()

    async def main():
        nonlocal client
        client = Client(app)
        written = await client.send(POST)
        if next_request != "during the answer":
            assert written.endswith(b"\r\n\r\n0\r\n\r\n") and not client.connection.closed
        if next_request == "after the answer":
            await client.send(POST)
        if next_request == "none":  # it is closed after a second
            await until(lambda: client.connection.closed)
        return client.connection

    client = None
    connection = asyncio.run(main())
    count = 1 if next_request == "none" else 2
    assert len(paths) == connection.written.count(b"HTTP/1.1 200") == count
    assert connection.written.count(b"connection: close") == count - 1
    assert connection.closed


@pytest.mark.parametrize("data", [POST, POST * 2], ids=["alone", "with a queued request"])
@pytest.mark.parametrize("is_early", [False, True], ids=["while it is watched", "before it is watched"])
def test_disconnect_interrupts_the_task(is_early, data):
    outcomes = []

    async def main():
        async def app(scope, receive, send):
            http_exchange = HttpExchange(scope, receive, send)
            if is_early:
                client.protocol.connection_lost(None)
            http_exchange.watch()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                outcomes.append((http_exchange.interruption.caught("client_gone"), http_exchange.disconnected))

        client = Client(app)
        await client.send(data)
        assert not client.connection.read_paused  # only a connection that is read reports a disconnect
        if not is_early:
            client.protocol.connection_lost(None)
        await settle()

    asyncio.run(main())
    assert outcomes == [(True, True)]


def test_end_of_input_interrupts_the_task_once():
    """The rest of its answer cannot be sent, and the connection may last until the client has read the first part."""
    outcomes = []

    async def main():
        async def app(scope, receive, send):
            http_exchange = HttpExchange(scope, receive, send)
            await http_exchange.start(200, JSON)
            http_exchange.watch()
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if not http_exchange.interruption.caught("client_gone"):
                        raise  # at the end of the test
                    outcomes.append(http_exchange.disconnected)
                    await http_exchange.write(b"rest")

        client = Client(app)
        await client.send(POST)
        client.protocol.eof_received()
        await settle()
        assert outcomes == [True] and not client.connection.written.endswith(b"rest\r\n")
        client.protocol.connection_lost(None)
        await settle()

    asyncio.run(main())
    assert outcomes == [True]


def test_disconnect_has_no_effect_after_the_watch():
    outcomes = []

    async def main():
        async def app(scope, receive, send):
            http_exchange = HttpExchange(scope, receive, send)
            http_exchange.watch()
            http_exchange.unwatch()
            client.protocol.connection_lost(None)
            await asyncio.sleep(0)
            outcomes.append(http_exchange.disconnected)
            with pytest.raises(ClientGone):
                await http_exchange.read_body(10, 30.0)

        client = Client(app)
        await client.send(POST)

    asyncio.run(main())
    assert outcomes == [False]


def test_middleware_gets_all_messages():
    class Exchange(DirectExchange):
        async def receive(self): ...

        async def send(self, message): ...

    exchange = Exchange()

    async def wrapped(*message): ...

    assert find_direct_exchange(exchange.receive, exchange.send) is exchange
    assert find_direct_exchange(wrapped, exchange.send) is None
    assert find_direct_exchange(exchange.receive, wrapped) is None
    assert find_direct_exchange(exchange.receive, Exchange().send) is None


def test_connection_that_the_client_has_reset_is_closed_without_an_error(caplog):
    """The end of the answer cannot be sent any more (ENOTCONN)."""

    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(404, JSON, b"{}")

    async def main():
        client = Client(app)
        client.connection.write_eof = Mock(side_effect=OSError)
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1\r\n\r\n")
        client.connection.write_eof.assert_called_once()
        return client.connection.written

    assert asyncio.run(main()).startswith(b"HTTP/1.1 404")
    assert not caplog.records
