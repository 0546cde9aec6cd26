"""Connections to upstreams: what a server may do to a client, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import tracemalloc
import zlib
from contextlib import asynccontextmanager

import pytest

from hostile import run
from places import TESTS
from toolwire import Response, Text
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Stop
from toolwire.net.http.client import HttpTransport
from toolwire.testing import Upstream
from virtual_time import in_virtual_time
from waiting import SAFETY

TLS = TESTS / "fixtures" / "tls"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Says to every request what `say` writes; counts what it sees."""

    def __init__(self, say):
        self.say = say
        self.connections = self.requests = self.closed = 0
        self.heads = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1/x?y=1"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await asyncio.sleep(0.01)

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(size)
                self.heads.append(head)
                self.requests += 1
                if await self.say(writer, self.requests) is False:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
        finally:
            writer.close()


def respond_with(*answers, then=None):
    """One after the other, the last for ever; `then` is what the server's coroutine gives back."""

    async def say(writer, number):
        writer.write(answers[min(number, len(answers)) - 1])
        await writer.drain()
        return then

    return say


@asynccontextmanager
async def pool(**options):
    transport = HttpTransport(**options)
    try:
        yield transport
    finally:
        await transport.aclose()


async def ask(transport, url, seconds=SAFETY, body=b"{}", headers=None):
    async with transport.post(url, headers or {}, {"authorization": "Bearer k"}, body, seconds) as reply:
        pieces = [piece async for piece in pieces_of(reply)]
        return reply.status, b"".join(pieces)


async def pieces_of(reply):
    while piece := await reply.read():
        yield piece


@run
async def test_a_request_is_written_and_its_answer_read():
    async with Server(respond_with(OK)) as server, pool() as transport:
        for _ in range(5):
            assert await ask(transport, server.url, headers={"content-type": "application/json"}) == (200, b"ok")
        assert server.connections == 1
    head = server.heads[0].decode()
    assert head.startswith("POST /v1/x?y=1 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert "authorization: Bearer k\r\n" in head and "content-type: application/json\r\n" in head


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 22\r\n\r\n" + gzip.compress(b"ok", mtime=0),
        b"HTTP/1.1 200 OK\r\ncontent-encoding: deflate\r\ncontent-length: 10\r\n\r\n" + zlib.compress(b"ok"),
    ],
    ids=["chunked", "100", "103", "gzip", "deflate"],
)
@run
async def test_answers_in_every_framing_are_read(answer):
    async def byte_by_byte(writer, _):
        for start in range(len(answer)):
            writer.write(answer[start : start + 1])
            await writer.drain()

    async with Server(respond_with(answer)) as server, pool() as transport:
        assert await ask(transport, server.url) == await ask(transport, server.url) == (200, b"ok")
        assert server.connections == 1
    async with Server(byte_by_byte) as server, pool() as transport:
        assert await ask(transport, server.url) == (200, b"ok")


@run
async def test_answer_without_length_ends_with_the_connection():
    async with Server(respond_with(b"HTTP/1.1 200 OK\r\n\r\nok", then=False)) as server, pool() as transport:
        assert await ask(transport, server.url) == await ask(transport, server.url) == (200, b"ok")
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
    ],
)
@run
async def test_malformed_answer_raises_connection_error(answer):
    async with Server(respond_with(answer, then=False)) as server, pool() as transport:
        with pytest.raises(ConnectionError):
            await ask(transport, server.url)


@run
async def test_unbounded_response_head_is_rejected():
    poured = 0

    async def pour(writer, _):
        nonlocal poured
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while poured < 50_000_000:
            writer.write(b"y" * 10_000)
            await writer.drain()
            poured += 10_000

    async with Server(pour) as server, pool() as transport:
        with pytest.raises(ConnectionError):
            await ask(transport, server.url)
    assert poured < 20_000_000  # the buffers of two sockets


@in_virtual_time
async def test_closed_pooled_connection_is_replaced():
    async with Server(respond_with(OK, then=False)) as server, pool() as transport:
        for _ in range(20):
            assert await ask(transport, server.url) == (200, b"ok")
        assert server.requests == 20


@in_virtual_time
async def test_request_is_retried_when_a_reused_connection_is_reset():
    async def say(writer, number):
        if number == 2:
            writer.transport.abort()
            return False
        writer.write(OK)
        return None

    async with Server(say) as server, pool() as transport:
        assert await ask(transport, server.url) == await ask(transport, server.url) == (200, b"ok")
        assert server.requests == 3


@run
async def test_unsolicited_response_is_never_used():
    async with Server(respond_with(OK + OK.replace(b"ok", b"no"), OK)) as server, pool() as transport:
        for _ in range(3):
            assert await ask(transport, server.url) == (200, b"ok")


@run
async def test_unread_body_is_not_read_by_the_next_request():
    answers = (
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst",
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond",
    )
    async with Server(respond_with(*answers)) as server, pool() as transport:
        async with transport.post(server.url, {}, {}, b"", SAFETY) as reply:
            assert reply.status == 200
            await asyncio.sleep(0.05)
        assert await ask(transport, server.url) == (200, b"second")


@in_virtual_time
async def test_timeout_applies_before_and_during_the_answer():
    clock = asyncio.get_running_loop().time

    async def stall(writer, number):
        writer.write(b"" if number == 1 else b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok")
        await asyncio.sleep(3600)

    async with Server(stall) as server, pool() as transport:
        for _ in range(2):
            began = clock()
            with pytest.raises(TimeoutError):
                await ask(transport, server.url, seconds=0.1)
            assert 0.1 <= clock() - began < 0.11  # deadlines are rounded up


@run
async def test_requests_over_the_connection_limit_wait():
    async def slowly(writer, _):
        await asyncio.sleep(0.02)
        writer.write(OK)

    async with Server(slowly) as server, pool(connections=3) as transport:
        answers = await asyncio.gather(*(ask(transport, server.url) for _ in range(20)))
        assert set(answers) == {(200, b"ok")}
        assert server.connections == 3
        with pytest.raises(TimeoutError):
            await asyncio.gather(*(ask(transport, server.url, 0.05) for _ in range(20)))
        await asyncio.sleep(0.1)
        assert await ask(transport, server.url) == (200, b"ok")  # nobody kept a place


@run
async def test_cancellation_closes_the_connection_immediately():
    async with pool(connections=1) as transport:
        asked, gone = asyncio.Event(), asyncio.Event()

        async def watch(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await reader.read()
            gone.set()
            writer.close()

        server = await asyncio.start_server(watch, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for _ in range(3):
            gone.clear()
            task = asyncio.create_task(ask(transport, url, body=b""))
            await asked.wait()
            asked.clear()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(SAFETY):
                await gone.wait()
        server.close()


@run
async def test_gzip_bomb_is_decompressed_as_it_is_read():
    bomb = gzip.compress(bytes(50_000_000), 6)
    answer = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb) + bomb
    async with Server(respond_with(answer)) as server, pool() as transport:
        tracemalloc.start()
        async with transport.post(server.url, {}, {}, b"", SAFETY) as reply:
            first = await reply.read()
            await reply.read()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert 0 < len(first) <= 262144
    assert peak < 4_000_000


@run
async def test_slow_reader_applies_back_pressure_to_the_upstream():
    sent = 0

    async def pour(writer, _):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        while sent < 100_000_000:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536

    async with Server(pour) as server, pool() as transport, transport.post(server.url, {}, {}, b"", SAFETY) as reply:
        await reply.read()
        await asyncio.sleep(0.3)
        assert sent < 20_000_000  # the buffers of two sockets


@run
async def test_tls_certificate_is_verified():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    words = Response(parts=(Text("hi"),), stop=Stop("stop"))
    async with Upstream(words, words, tls=context) as upstream:
        url = f"{upstream.url.replace('127.0.0.1', 'localhost')}/v1/chat/completions"
        body = b'{"model":"m","messages":[]}'
        async with pool() as transport:
            with pytest.raises(ConnectionError, match="certificate"):
                await ask(transport, url, body=body)
        async with pool(roots=[(TLS / "ca.pem").read_bytes()]) as transport:
            status, said = await ask(transport, url, body=body)
            assert status == 200 and b"hi" in said


@run
async def test_unreachable_server_raises_connection_error():
    async with Upstream() as upstream:
        url = upstream.url
    async with pool() as transport:
        with pytest.raises(ConnectionError):
            await ask(transport, url)
        with pytest.raises(ConnectionError):
            await ask(transport, "http://nowhere.invalid/")


@pytest.mark.parametrize("url", ["http:///x", "http://localhost/a b", "nonsense"])
@run
async def test_invalid_url_raises_config_error(url):
    async with pool() as transport:
        with pytest.raises(ConfigError):
            await ask(transport, url)


@run
async def test_header_injection_is_rejected():
    async with pool() as transport:
        with pytest.raises(ConfigError):
            await ask(transport, "http://localhost/", headers={"x": "1\r\ny: 2"})
