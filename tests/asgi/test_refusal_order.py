"""A request that cannot be accepted is answered in its turn: after the requests before it, as the last one."""

import asyncio

import pytest
from memory_connection import Client, settle

from tables import every_case
from toolwire.asgi.admission import Admission
from toolwire.asgi.http_exchange import HttpExchange
from waiting import until

JSON = [(b"content-type", b"application/json")]
CHUNKED = b"POST /bad HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
CLOSING_GET = b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
CLOSING_POST = b"POST /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n"
REFUSED = {
    "not HTTP": (b"NOT HTTP\r\n\r\n", b"400"),
    "invalid URL": (b"GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
    "large head": (b"GET / HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 2000 + b"\r\n\r\n", b"431"),
    "large field without an end": (b"GET / HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 8000, b"431"),
    "transfer coding": (CHUNKED.replace(b"chunked", b"gzip, chunked"), b"501"),
    "invalid chunk": (CHUNKED + b"3\r\nabc\r\nzz\r\n", b"400"),
    "invalid chunk after large ones": (CHUNKED + b"7d0\r\n%b\r\n" % (b"x" * 2000) * 50 + b"zz\r\n", b"400"),
    "large trailers": (CHUNKED + b"0\r\n" + b"x-a: %b\r\n" % (b"a" * 200) * 10, b"431"),
    "upgrade of an invalid request": (
        CHUNKED.replace(b"host", b"connection: upgrade\r\nupgrade: h2c\r\nhost") + b"zz\r\n",
        b"400",
    ),
}


def request_for(path):
    return b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path


class App:
    """An app that answers with the path of a request, when it is released."""

    def __init__(self):
        self.released = asyncio.Event()
        self.paths = []
        self.disconnected = []

    async def __call__(self, scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        self.paths.append(http_exchange.path)
        if http_exchange.path == "/stream":
            await http_exchange.start(200, JSON)
            await http_exchange.write(b"first")
        http_exchange.watch()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.disconnected.append(http_exchange.path)
            raise
        http_exchange.unwatch()
        if http_exchange.path == "/stream":
            await http_exchange.write(b"last")
            await http_exchange.end()
        else:
            await http_exchange.respond(200, JSON, http_exchange.path.encode())


def split_answers(written):
    """Return the status and the body of each answer."""
    answers = [answer.partition(b"\r\n\r\n") for answer in written.split(b"HTTP/1.1 ")[1:]]
    return [(head[:3], body) for head, _, body in answers]


@every_case("size", [None, 700, 9])
@every_case("refused", REFUSED)
def test_refusal_follows_the_answers_to_earlier_requests(refused, size):
    data, status = REFUSED[refused]

    async def main():
        app = App()
        client = Client(app, 1000)
        before = await client.send(request_for(b"/1") + request_for(b"/2") + request_for(b"/3") + data, size)
        assert (before, client.connection.closed) == (b"", False)
        await client.send(request_for(b"/late"))
        app.released.set()
        await settle()
        return app.paths, client.connection

    paths, connection = asyncio.run(main())
    *answers, (last, error) = split_answers(connection.written)
    assert answers == [(b"200", b"/1"), (b"200", b"/2"), (b"200", b"/3")]
    assert (last, b'"error"' in error) == (status, True)
    assert paths == ["/1", "/2", "/3"]
    assert connection.closed


def test_answer_that_has_begun_is_completed_before_the_refusal():
    async def main():
        app = App()
        client = Client(app)
        await client.send(request_for(b"/stream"))
        before = await client.send(b"NOT HTTP\r\n\r\n")
        assert before.endswith(b"5\r\nfirst\r\n") and not client.connection.closed
        app.released.set()
        await settle()
        return client.connection

    connection = asyncio.run(main())
    (_, stream), (status, _) = split_answers(connection.written)
    assert stream == b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n"
    assert status == b"400" and connection.closed


def test_refused_request_has_one_answer_if_it_was_answered_before_its_body():
    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(404, JSON, b"{}")

    async def main():
        client = Client(app)
        await client.send(CHUNKED)
        await client.send(b"zz\r\n")
        return client.connection

    connection = asyncio.run(main())
    assert split_answers(connection.written) == [(b"404", b"{}")]
    assert connection.closed


def test_invalid_url_of_the_first_request_is_refused():
    async def main():
        app = App()
        client = Client(app)
        await client.send(REFUSED["invalid URL"][0])
        return app.paths, client.connection

    paths, connection = asyncio.run(main())
    assert paths == []
    assert [status for status, _ in split_answers(connection.written)] == [b"400"]
    assert connection.closed


def test_refused_request_is_not_answered_by_the_app_as_well():
    """The transport accepts data after `close` while the client has not read all of it."""

    async def main():
        app = App()
        client = Client(app)
        await client.send(CHUNKED)
        await client.send(b"zz\r\n")
        app.released.set()
        await settle()
        client.protocol.connection_lost(None)
        await settle()
        return app, client.connection

    app, connection = asyncio.run(main())
    assert [status for status, _ in split_answers(connection.written)] == [b"400"]
    assert app.disconnected == ["/bad"]


def test_disconnect_after_a_refused_request_interrupts_the_task():
    large = b"POST /2 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n11170\r\n" + b"x" * 70_000

    async def main():
        app = App()
        client = Client(app)
        await client.send(request_for(b"/1") + large)
        assert client.connection.read_paused
        await client.send(b"NOT A CHUNK")
        assert not client.connection.read_paused  # only a connection that is read reports a disconnect
        client.protocol.connection_lost(None)
        await settle()
        return app.disconnected, client.connection.written

    assert asyncio.run(main()) == (["/1"], b"")


def test_connection_that_closes_after_a_request_refuses_nothing_after_it():
    async def main():
        app = App()
        client = Client(app)
        await client.send(request_for(b"/1"))
        await client.send(b"NOT HTTP\r\n\r\n")
        client.protocol.shutdown()
        app.released.set()
        await settle()
        return client.connection

    connection = asyncio.run(main())
    assert split_answers(connection.written) == [(b"200", b"/1")]
    assert connection.closed


def test_many_requests_for_an_upgrade_are_answered():
    upgrade = request_for(b"/1").replace(b"host", b"connection: upgrade\r\nupgrade: h2c\r\nhost")

    async def app(scope, receive, send):
        await HttpExchange(scope, receive, send).respond(200, JSON, b"{}")

    async def main():
        client = Client(app)
        await client.send(upgrade * 5000)
        await until(lambda: client.connection.closed)
        return client.connection

    connection = asyncio.run(main())
    assert 400 < connection.written.count(b"HTTP/1.1 200 OK") < 600  # as many as are queued
    assert connection.written.endswith(b"connection: close\r\n\r\n{}") and connection.closed


@pytest.mark.parametrize("url", [b"evil:443", b"http://evil/x", b"/x", b"*"])
def test_connect_does_not_reach_the_app(url):
    async def main():
        app = App()
        client = Client(app)
        await client.send(b"CONNECT %b HTTP/1.1\r\nhost: evil\r\n\r\nxyz" % url)
        return app.paths, client.connection

    paths, connection = asyncio.run(main())
    assert paths == []
    assert [status for status, _ in split_answers(connection.written)] == [b"400"]
    assert connection.closed


@pytest.mark.finding("OP4")
@pytest.mark.parametrize("before", [0, 1], ids=["new connection", "idle connection"])
def test_request_under_way_when_the_server_stops_is_answered(before):
    async def run():
        app = App()
        app.released.set()
        client = Client(app)
        for _ in range(before):
            await client.send(request_for(b"/first"))
        client.protocol.shutdown()
        assert not client.connection.closed
        written = await client.send(request_for(b"/last"))
        assert app.paths[-1] == "/last"
        assert written.count(b"HTTP/1.1 200") == before + 1
        assert written.count(b"connection: close") == 1
        assert client.connection.closed

    asyncio.run(run())


@pytest.mark.finding("OP4")
def test_connection_without_a_request_is_closed_when_the_server_stops():
    async def run():
        client = Client(App())
        client.protocol.shutdown()
        await until(lambda: client.connection.closed)
        assert client.connection.written == b""

    asyncio.run(run())


class Gate:
    """An application that refuses all requests."""

    def __init__(self, limit=0):
        self.admission = Admission(limit, 1e6)

    def encode_refusal(self, method, path, headers):
        return 503, [(b"retry-after", b"1")], b"{}"


async def answer_slowly(scope, receive, send):
    if scope["path"] == "/slow":
        await asyncio.sleep(20)
    await HttpExchange(scope, receive, send).respond(200, JSON, b"{}")


@pytest.mark.parametrize("is_refused", [False, True], ids=["answered", "refused"])
def test_connection_is_not_idle_while_a_request_in_the_same_data_is_answered(virtual_time, is_refused):
    """The request before was answered ahead of its body, and the keep-alive time ran on from its end."""

    async def main():
        gate = Gate(0 if is_refused else 1)
        client = Client(answer_slowly, gate=gate)
        await client.send(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhel")
        assert client.connection.written.startswith(b"HTTP/1.1 503" if is_refused else b"HTTP/1.1 200")
        gate.admission.limit = 1
        await client.send(b"lo" + request_for(b"/slow"))
        await asyncio.sleep(6)
        assert not client.connection.closed
        await asyncio.sleep(15)
        return client.connection.written.count(b"HTTP/1.1 200")

    assert asyncio.run(main()) == (1 if is_refused else 2)


@pytest.mark.parametrize("request_bytes", [CLOSING_GET, CLOSING_POST + b"{}"], ids=["no body", "body"])
def test_refused_connection_is_closed_at_once_if_nothing_more_is_expected(virtual_time, request_bytes):
    """It was kept for five seconds, as if the client still sent its body."""

    async def main():
        client = Client(answer_slowly, gate=Gate())
        closes = []
        client.connection.write_eof = lambda: None
        client.connection.close = lambda: closes.append(asyncio.get_running_loop().time())
        start = asyncio.get_running_loop().time()
        await client.send(request_bytes + request_for(b"/slow"))
        client.protocol.connection_lost(None)
        await asyncio.sleep(60)  # no timer is left
        return [time - start for time in closes], client.connection.written.count(b"HTTP/1.1")

    assert asyncio.run(main()) == ([0.0], 1)


def test_lingering_ends_with_the_connection(virtual_time):
    async def main():
        client = Client(answer_slowly, gate=Gate())
        closes = []
        client.connection.write_eof = lambda: None
        client.connection.close = lambda: closes.append(1)
        await client.send(CLOSING_POST)
        client.protocol.connection_lost(None)
        await asyncio.sleep(60)
        return closes

    assert asyncio.run(main()) == []
