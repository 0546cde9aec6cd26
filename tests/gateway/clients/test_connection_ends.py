"""The ends of connections on real sockets and both event loops: refused requests, and clients that do not read."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import struct
import sys
import termios
from contextlib import asynccontextmanager, closing, suppress
from fcntl import ioctl
from functools import partial
from unittest.mock import ANY

import pytest
import uvloop

from hostile import read_answer
from places import TESTS
from toolwire.asgi.accepting import BatchListener
from toolwire.asgi.admission import ConnectionCounts, DefaultLimits
from toolwire.asgi.server import HttpServer
from toolwire.asgi.server_context import ServerContext
from toolwire.asgi.unread_timer import UnreadTimer
from waiting import SAFETY, until

RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
every_loop = pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
TLS = TESTS / "fixtures" / "tls"


def tls_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


SMALL_BUFFER = 4096  # bytes, so that a part of the answer stays in the server


def request_for(path):
    return b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path


def run_on(runner, test):
    runner(asyncio.wait_for(test, SAFETY))


@asynccontextmanager
async def started_server(app, slow_client=30.0, tls=None, **options):
    """Yield the context of a server, and its address."""
    limits, counts = DefaultLimits(slow_client=slow_client), ConnectionCounts(100, 10)
    context = ServerContext(app, limits=lambda: limits, counts=counts, **options)
    server = HttpServer(context, grace=1.0, tls=tls)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * SMALL_BUFFER)
        server.listen(partial(BatchListener, listener))
        try:
            yield context, listener.getsockname()
        finally:
            server.stop()
            await server.finish()


async def send_answer(send, body):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@every_loop
def test_refusal_follows_the_answers_to_queued_requests(runner):
    async def app(scope, receive, send):
        await send_answer(send, scope["raw_path"])

    async def main():
        async with started_server(app) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(request_for(b"/1") + request_for(b"/2") + b"NOT HTTP\r\n\r\n")
            answers = [await read_answer(reader) for _ in range(3)]
            assert [answer.status for answer in answers] == [200, 200, 400]
            assert [answer.body for answer in answers[:2]] == [b"/1", b"/2"]
            assert await reader.read() == b""
            writer.close()

    run_on(runner, main())


def post(address, headers, tls):
    """Send a large body, then read the answer, as many clients do."""
    if tls:
        connection = http.client.HTTPSConnection(*address, context=ssl._create_unverified_context())
    else:
        connection = http.client.HTTPConnection(*address)
    with closing(connection):
        connection.request("POST", "/", bytes(8_000_000), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.finding("OP3")
@every_loop
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("refusal", ["connection", "te"])
def test_answer_before_the_body_is_not_lost_in_a_reset(runner, is_tls, refusal):
    """The client sends all of its body before it reads. Closing a connection with unread data resets it."""

    async def app(scope, receive, send):
        await send_answer(send, b"early")

    async def main():
        async with started_server(app, tls=tls_context() if is_tls else None) as (context, address):
            answer = await asyncio.to_thread(
                post, address, {refusal: "close" if refusal == "connection" else "chunked"}, is_tls
            )
            assert answer == ((200, b"early") if refusal == "connection" else (400, ANY))
            await until(lambda: not context.connections)

    run_on(runner, main())


@pytest.mark.finding("OP3")
@every_loop
def test_client_that_never_closes_its_side_is_disconnected(runner, monkeypatch):
    monkeypatch.setattr("toolwire.asgi.connection._LINGER", 0.05)

    async def app(scope, receive, send):
        await send_answer(send, b"early")

    async def main():
        async with started_server(app) as (context, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 9\r\n\r\n")
            assert (await read_answer(reader)).body == b"early"
            await until(lambda: not context.connections)
            writer.close()

    run_on(runner, main())


@every_loop
def test_refusal_follows_a_stream_that_has_begun(runner):
    async def main():
        released = asyncio.Event()

        async def app(scope, receive, send):
            if scope["path"] == "/stream":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"first ", "more_body": True})
                await released.wait()
                await send({"type": "http.response.body", "body": b"last"})
            else:
                await send_answer(send, b"")

        async with started_server(app) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(request_for(b"/stream"))
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"NOT HTTP\r\n\r\n")
            other_reader, other_writer = await asyncio.open_connection(*address)
            other_writer.write(request_for(b"/"))
            await read_answer(other_reader)  # the server has received the data that was sent before
            other_writer.close()
            released.set()
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert await reader.readuntil(b"0\r\n\r\n") == b"6\r\nfirst \r\n4\r\nlast\r\n0\r\n\r\n"
            assert (await read_answer(reader)).status == 400
            assert await reader.read() == b""
            writer.close()

    run_on(runner, main())


def queued_bytes(connection, request):
    """Return the bytes in a buffer of a socket."""
    return struct.unpack("i", ioctl(connection.fileno(), request, bytes(4)))[0]


@every_loop
def test_requests_beyond_the_queue_do_not_reset_the_connection(runner):
    """A connection that is closed with unread data is reset, and the client loses the answers that it has not read."""

    async def main():
        released, started = asyncio.Event(), []

        async def app(scope, receive, send):
            started.append(scope["path"])
            await released.wait()
            await send_answer(send, b"{}")

        async with started_server(app) as (context, address):
            with socket.create_connection(address) as client:
                client.sendall(request_for(b"/") * 600)  # one segment, with more requests than are queued
                await until(lambda: started)
                await asyncio.to_thread(client.sendall, request_for(b"/") * 30_000)
                [connection] = context.connections
                accepted = connection.transport.get_extra_info("socket")
                await until(
                    lambda: not queued_bytes(client, termios.TIOCOUTQ) and not queued_bytes(accepted, termios.FIONREAD)
                )
                released.set()
                client.setblocking(False)
                reader, writer = await asyncio.open_connection(sock=client, limit=2**24)
                received = await reader.read()
                writer.close()
        assert received.count(b"HTTP/1.1 200 OK") == len(started) < 600

    run_on(runner, main())


@every_loop
@pytest.mark.parametrize("end", ["return", "raise"])
@pytest.mark.parametrize("is_half_closed", [False, True], ids=["open", "half closed"])
def test_unread_part_of_an_abandoned_answer_does_not_hold_the_connection(runner, end, is_half_closed):
    started = []

    async def app(scope, receive, send):
        started.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 60_000, "more_body": True})
        if is_half_closed:
            await receive()  # the request
            await receive()  # the disconnect
        if end == "raise":
            raise RuntimeError("the upstream broke")

    async def main():
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            async with started_server(app, slow_client=0.2) as (context, address):
                client.connect(address)
                client.sendall(request_for(b"/"))
                if is_half_closed:
                    client.shutdown(socket.SHUT_WR)
                await until(lambda: started and not context.connections)

    run_on(runner, main())


class TlsClient:
    """A TLS connection whose client reads nothing after the handshake by itself."""

    def __init__(self, client):
        self._client = client
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def connect(self, address):
        self._client.connect(address)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._client.sendall(self._outgoing.read())
                self._incoming.write(self._client.recv(4096))
        self._client.sendall(self._outgoing.read())

    def send(self, data):
        self._tls.write(data)
        self._client.sendall(self._outgoing.read())

    def read(self, size):
        """Read encrypted data, and return all of the answer that can be decrypted."""
        self._incoming.write(self._client.recv(size))
        answer = b""
        with suppress(ssl.SSLWantReadError):
            while piece := self._tls.read(size):
                answer += piece
        return answer

    def send_close(self):
        """Send the alert close_notify, and do not wait for that of the server."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._client.sendall(self._outgoing.read())


@every_loop
@pytest.mark.parametrize("end", ["abandoned", "complete"])
@pytest.mark.parametrize("sends_close", [False, True], ids=["open", "closed by the client"])
def test_unread_answer_does_not_hold_a_tls_connection(runner, end, sends_close):
    """The transport of TLS does not report the data that the transport below it keeps."""

    async def main():
        started, released = [], asyncio.Event()

        async def app(scope, receive, send):
            started.append(scope["path"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 60_000, "more_body": True})
            await released.wait()
            if end == "complete":
                await send({"type": "http.response.body", "body": b""})

        async with started_server(app, slow_client=0.2, keep_alive=0, tls=tls_context()) as (context, address):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
                connection = TlsClient(client)
                await asyncio.to_thread(connection.connect, address)
                connection.send(request_for(b"/"))
                await until(lambda: started)
                if sends_close:
                    connection.send_close()
                released.set()
                await until(lambda: not context.connections)

    run_on(runner, main())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not report how much a client has read")
@every_loop
def test_client_that_reads_slowly_receives_the_whole_answer_over_tls(runner, monkeypatch):
    """The client reads a little in each period of the time limit, also after the server has closed the connection."""
    size, received = 300_000, []
    check = UnreadTimer._check

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        for _ in range(size // 50_000):
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def main():
        async with started_server(app, slow_client=0.02, tls=tls_context()) as (context, address):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
                connection = TlsClient(client)
                await asyncio.to_thread(connection.connect, address)

                def read_and_check(timer, previous):
                    with suppress(BlockingIOError):
                        while True:
                            received.append(connection.read(SMALL_BUFFER))
                    check(timer, previous)

                monkeypatch.setattr(UnreadTimer, "_check", read_and_check)
                client.setblocking(False)
                connection.send(request_for(b"/").replace(b"host", b"connection: close\r\nhost"))
                await until(lambda: not context.connections)

    run_on(runner, main())
    assert b"".join(received).partition(b"\r\n\r\n")[2] == b"x" * size


@every_loop
def test_stream_over_tls_waits_for_a_client_that_does_not_read(runner):
    """A transport of TLS would keep 512 KiB, which the client has to read in 30 seconds after the end of the answer."""
    pieces = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while len(pieces) < 100:
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            pieces.append(10_000)

    async def main():
        async with started_server(app, tls=tls_context()) as (context, address):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
                connection = TlsClient(client)
                await asyncio.to_thread(connection.connect, address)
                connection.send(request_for(b"/"))
                [protocol] = context.connections
                await until(lambda: protocol.is_write_paused)
                assert sum(pieces) < 300_000

    run_on(runner, main())
