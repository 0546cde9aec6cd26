"""Requests and answers on a connection: the same as with uvicorn's own protocol, byte for byte."""

import asyncio
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_connection import Client, Connection, limited, settle
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tables import every_case
from toolwire.asgi.http_exchange import ClientGone, HttpExchange, find_direct_exchange
from toolwire.asgi.request_cycle import RequestCycle, encode_fields

JSON = [(b"content-type", b"application/json")]
POST = b"POST /v1/chat?alt=sse HTTP/1.1\r\nHost: x\r\nX-Twice: 1\r\nx-twice: 2\r\nContent-Length: 5\r\n\r\nhello"
REQUESTS = {
    "post": POST,
    "get with an escaped path": b"GET /a%20b/%C3%BC?q=%20 HTTP/1.1\r\nhost: x\r\n\r\n",
    "head": b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n",
    "http 1.0": b"GET / HTTP/1.0\r\n\r\n",
    "close": POST.replace(b"Host", b"Connection: close\r\nHost"),
    "expect": POST.replace(b"Host", b"Expect: 100-Continue\r\nHost"),
    "chunked": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "pipelined": POST + POST.replace(b"chat", b"other") + POST,
    "close after another": POST + POST.replace(b"Host", b"Connection: close\r\nHost"),
}


def exchange_with(make_protocol, answer, data, size):
    """Return the scopes, the bodies, the answers and whether the connection was closed."""
    seen = []

    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        seen.append((dict(scope), await http_exchange.read_body(100, 30.0)))
        await answer(http_exchange)

    async def main():
        client = Client(make_protocol, app)
        written = await client.send(data, size)
        return seen, written, client.connection.closed

    return asyncio.run(main())


async def stream(http_exchange):
    await http_exchange.start(200, JSON)
    for piece in (b"one", b"", b"x" * 70_000, b"two"):
        await http_exchange.write(piece)
    await http_exchange.end()


def respond(status, headers, body):
    return lambda http_exchange: http_exchange.respond(status, headers, body)


def start_and_end(status, *headers):
    async def answer(http_exchange):
        await http_exchange.start(status, [*JSON, *headers])
        await http_exchange.end()

    return answer


ANSWERS = {
    "whole": respond(200, [*JSON, (b"x-request-id", b"abc")], b'{"a":1}'),
    "without headers or body": respond(404, [], b""),
    "no content": respond(204, JSON, b""),
    "large": respond(200, JSON, b"x" * 70_000),
    "upper case": respond(200, [(b"Content-Type", b"Text/Plain")], b"x"),
    "close": respond(200, [(b"connection", b"keep-alive, Close")], b"x"),
    "injected header": respond(200, [(b"x-a", b"b\r\nset-cookie: c")], b"x"),
    "invalid name": respond(200, [(b"x a", b"b")], b"x"),
    "stream": stream,
    "stream without a body": start_and_end(304),
    "stream that closes": start_and_end(200, (b"connection", b"close")),
}


@every_case("size", [None, 7])
@every_case("answer", ANSWERS)
@every_case("request_name", REQUESTS)
def test_exchange_equals_that_of_uvicorn(request_name, answer, size):
    arguments = ANSWERS[answer], REQUESTS[request_name], size
    ours, theirs = exchange_with(limited(), *arguments), exchange_with(HttpToolsProtocol, *arguments)
    assert ours == theirs


async def stream_pieces(http_exchange):
    await http_exchange.start(200, JSON)
    await http_exchange.write(b"one")
    await http_exchange.end()


@pytest.mark.parametrize("answer", [ANSWERS["whole"], stream_pieces], ids=["whole", "stream"])
def test_most_answers_need_no_messages(answer, monkeypatch):
    """The answers of the test above would also be equal if all of them were sent by uvicorn."""

    async def refuse(self, message):
        raise AssertionError(message)

    monkeypatch.setattr(RequestCycle, "send", refuse)
    monkeypatch.setattr(RequestCycle, "receive", refuse)
    _, written, _ = exchange_with(limited(), answer, POST + POST, len(POST))
    assert written.count(b"HTTP/1.1 200 OK\r\n") == 2


NAMES = st.binary(max_size=3) | st.sampled_from([b"connection", b"content-length", b"x-a", b"X-B"])


@given(st.lists(st.tuples(NAMES, st.binary(max_size=3)), max_size=3))
def test_encoded_fields_equal_those_of_uvicorn(headers):
    lines = encode_fields(headers)
    if lines is None:
        return  # uvicorn sends them

    async def send():
        connection = Connection()
        flow = type("Flow", (), {"write_paused": False})()
        cycle = RequestCycle({"method": "GET", "headers": []}, connection, flow, [], b"", lambda: None, True, False)
        await cycle.send({"type": "http.response.start", "status": 200, "headers": headers})
        return connection.written

    assert asyncio.run(send()) == b"HTTP/1.1 200 OK\r\n" + lines + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("value", [b"a\r\nb", b"a\nb", b"\0", b"\x7f"])
def test_value_with_a_control_character_is_left_to_uvicorn_which_refuses_it(value):
    assert encode_fields([(b"x-a", b"b"), (b"x-c", value)]) is None


def test_percent_signs_of_fields_are_encoded_as_they_are():
    assert encode_fields([(b"x-%b", b"100%"), (b"x-c", b"%d")]) == b"x-%b: 100%\r\nx-c: %d\r\n"


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
        client = Client(limited(1000), app)
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
        _, written, _ = exchange_with(limited(1000), ANSWERS["whole"], data, size)
        assert written.startswith(b"HTTP/1.1 " + status)


def test_connection_is_closed_after_the_timeout_since_its_last_answer(virtual_time):
    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(200, JSON, b"{}")

    async def main():
        client = Client(limited(), app)
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
        client = Client(limited(), app)
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
        client = Client(limited(), app)
        client.connection.unread = 40_000
        if request_name == "early":
            await client.send(POST[:-1])  # it is answered before the last byte
            await client.send(POST[-1:])
        else:
            await client.send(REQUESTS.get(request_name, b"NOT HTTP\r\n\r\n"))
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
        client = Client(limited(), app)
        await client.send(REQUESTS["close"])
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
        client = Client(limited(), answer_when(released, paths))
        await client.send(POST * 5000)
        queued = len(client.protocol.pipeline)
        await client.send(POST * 100)
        released.set()
        while len(paths) <= queued:
            await settle()
        return queued, len(paths), client.connection

    queued, answered, connection = asyncio.run(main())
    assert 400 < queued < 600
    assert answered == queued + 1
    assert connection.closed and not connection.read_paused  # the others are read, and ignored
    assert connection.written.count(b"HTTP/1.1 200 OK") == answered
    assert connection.written.count(b"connection: close") == 1
    assert connection.written.endswith(b"connection: close\r\n\r\n{}")


def test_reading_is_paused_while_large_requests_are_queued():
    large = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 70000\r\n\r\n" + b"x" * 70_000

    async def main():
        released, paths = asyncio.Event(), []
        client = Client(limited(), answer_when(released, paths))
        states = []
        for data in (POST, POST, large):
            await client.send(data)
            states.append(client.connection.read_paused)
        client.protocol.flow.resume_reading()  # as a request does that watches for a disconnect
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

        client = Client(limited(), app)
        await client.send(POST + POST + start)
        await asyncio.sleep(110)
        answered = len(paths)
        await client.send(b"x")
        await asyncio.sleep(110)
        return answered, len(paths), client.connection.aborted

    assert asyncio.run(main()) == (2, 3, False)


def test_body_after_an_ignored_upgrade_is_read_on_a_connection_that_closes():
    upgrade = b"Connection: close, Upgrade\r\nUpgrade: h2c\r\nHost"
    seen, written, is_closed = exchange_with(limited(), ANSWERS["whole"], POST.replace(b"Host", upgrade) + POST, None)
    assert [body for _, body in seen] == [b"hello"]
    assert written.startswith(b"HTTP/1.1 200 OK") and is_closed


@pytest.mark.parametrize(
    ("url", "path", "query"), [(b"http://x", "/", b""), (b"http://x?a=b", "/", b"a=b"), (b"http://x/y", "/y", b"")]
)
def test_url_with_a_host_has_the_path_of_its_resource(url, path, query):
    """A server accepts the absolute form (RFC 9112, 3.2.2), in which an empty path is `/`."""
    data = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % url
    [(scope, _)], written, _ = exchange_with(limited(), respond(200, JSON, b"{}"), data, None)
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, path.encode(), query)
    assert written.startswith(b"HTTP/1.1 200 OK")


def test_expectation_of_an_http_1_0_client_is_ignored():
    """RFC 9110, 10.1.1: such a client takes 100 for its answer."""
    data = REQUESTS["expect"].replace(b"HTTP/1.1", b"HTTP/1.0")
    [(_, body)], written, is_closed = exchange_with(limited(), respond(200, JSON, b"{}"), data, 80)
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
        client = Client(limited(), app)
        before = await client.send(POST)
        client.protocol.resume_writing()
        await settle()
        return before, client.connection.written

    client = None
    before, after = asyncio.run(main())
    assert before.endswith(b"\r\n\r\n")
    assert after == before + b"3\r\none\r\n0\r\n\r\n"


def test_connection_is_closed_after_a_stream_if_the_server_stops_meanwhile():
    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        await http_exchange.start(200, JSON)
        client.protocol.shutdown()
        await http_exchange.end()

    async def main():
        nonlocal client
        client = Client(limited(), app)
        return await client.send(POST)

    client = None
    assert asyncio.run(main()).endswith(b"\r\n\r\n0\r\n\r\n")
    assert client.connection.closed


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

        client = Client(limited(), app)
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

        client = Client(limited(), app)
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

        client = Client(limited(), app)
        await client.send(POST)

    asyncio.run(main())
    assert outcomes == [False]


def test_middleware_gets_all_messages():
    class Exchange(RequestCycle):
        def __init__(self): ...

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
        client = Client(limited(), app)
        client.connection.write_eof = Mock(side_effect=OSError)
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 1\r\n\r\n")
        client.connection.write_eof.assert_called_once()
        return client.connection.written

    assert asyncio.run(main()).startswith(b"HTTP/1.1 404")
    assert not caplog.records
