"""The life of a server on real sockets: start, clients of every kind, and the end."""

import asyncio
import os
import socket
import struct
from contextlib import asynccontextmanager
from functools import partial

import pytest
import uvloop

from hostile import read_answer
from toolwire.asgi.accepting import BatchListener, has_unread_data
from toolwire.asgi.http_exchange import HttpExchange
from toolwire.asgi.server import HttpServer
from toolwire.asgi.server_context import ServerContext
from toolwire.ir.errors import ConfigError
from waiting import SAFETY, until

RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
every_loop = pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def started(app, grace=SAFETY, **options):
    """Yield a server and a function that connects to it. At the end, it must have stopped by itself."""
    server = HttpServer(ServerContext(app, **options), grace=grace)
    await server.start()
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server.listen(partial(BatchListener, listener))
    finishing = asyncio.ensure_future(server.finish())
    try:
        yield server, partial(asyncio.open_connection, *address)
    finally:
        server.stop()
        await finishing
        assert not server.context.connections


def run_on(runner, test):
    runner(asyncio.wait_for(test, SAFETY))


async def answer_path(scope, receive, send):
    http_exchange = HttpExchange(scope, receive, send)
    await http_exchange.respond(200, [], scope["raw_path"])


@every_loop
def test_a_thousand_pipelined_requests_are_answered_in_order(runner):
    async def main():
        async with started(answer_path) as (_, connect):
            reader, writer = await connect()
            for number in range(0, 1000, 250):
                paths = [b"/%d" % (number + offset) for offset in range(250)]
                writer.write(b"".join(GET.replace(b"/", path, 1) for path in paths))
                assert [(await read_answer(reader)).body for _ in paths] == paths
            writer.close()

    run_on(runner, main())


@every_loop
def test_client_that_resets_its_connection_is_gone(runner):
    async def main():
        outcomes = []

        async def app(scope, receive, send):
            http_exchange = HttpExchange(scope, receive, send)
            await http_exchange.start(200, [])
            await http_exchange.write(b"first")
            http_exchange.watch()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                outcomes.append(http_exchange.interruption.caught("client_gone"))

        async with started(app) as (server, connect):
            reader, writer = await connect()
            writer.write(GET)
            await reader.readuntil(b"first")
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await until(lambda: outcomes and not server.context.exchanges)
            assert outcomes == [True] and not server.context.connections

    run_on(runner, main())


@every_loop
@pytest.mark.parametrize("data", [b"", GET[:9], GET[:-2] + b"content-length: 9\r\n\r\nabc"])
def test_client_that_closes_its_side_is_gone(runner, data):
    async def main():
        async def app(scope, receive, send):
            assert (await receive())["type"] == "http.request"
            assert (await receive())["type"] == "http.disconnect"

        async with started(app) as (server, connect):
            reader, writer = await connect()
            writer.write(data)
            writer.write_eof()
            assert await reader.read() == b""
            await until(lambda: not server.context.connections and not server.context.exchanges)
            writer.close()

    run_on(runner, main())


@every_loop
def test_stream_ends_after_the_stop_and_idle_connections_are_closed(runner):
    async def main():
        released = asyncio.Event()

        async def app(scope, receive, send):
            http_exchange = HttpExchange(scope, receive, send)
            if scope["path"] == "/stream":
                await http_exchange.start(200, [])
                await http_exchange.write(b"first")
                await released.wait()
                await http_exchange.write(b"last")
                await http_exchange.end()
            else:
                await http_exchange.respond(200, [], b"{}")

        async with started(app) as (server, connect):
            streaming, stream_writer = await connect()
            stream_writer.write(GET.replace(b"/", b"/stream", 1))
            await streaming.readuntil(b"first")
            idle, idle_writer = await connect()
            idle_writer.write(GET)
            await read_answer(idle)
            under_way, late_writer = await connect()
            late_writer.write(GET[:9])
            await until(lambda: len(server.context.connections) == 3)
            server.stop()
            late_writer.write(GET[9:])
            answer = await read_answer(under_way)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await idle.read() == b""  # after a second without another request
            with pytest.raises(OSError):  # it does not listen any more
                await connect()
            released.set()
            assert (await streaming.readuntil(b"0\r\n\r\n")).endswith(b"last\r\n0\r\n\r\n")
            assert await streaming.read() == b""
            for writer in (stream_writer, idle_writer, late_writer):
                writer.close()

    run_on(runner, main())


@every_loop
def test_request_that_the_loop_has_not_read_yet_keeps_the_connection(runner):
    """A turn of a busy loop may last longer than the time in which a request arrives."""

    async def main():
        async with started(answer_path) as (server, connect):
            reader, writer = await connect()
            writer.write(GET)
            await read_answer(reader)
            [connection] = server.context.connections
            assert not has_unread_data(connection.transport)
            server.stop()
            os.write(writer.get_extra_info("socket").fileno(), GET)  # the loop has no turn before the next line
            assert has_unread_data(connection.transport)
            connection._close_unused()
            answer = await read_answer(reader)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            writer.close()

    run_on(runner, main())


@every_loop
@pytest.mark.parametrize("ends", ["answer", "error", "never"])
def test_request_that_outlasts_the_stop_is_cancelled(runner, ends, caplog):
    async def main():
        cancelled = asyncio.Event()

        async def app(scope, receive, send):
            http_exchange = HttpExchange(scope, receive, send)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                if ends == "answer":
                    await http_exchange.respond(503, [], b"stopped")
                    return
                if ends == "never":
                    await asyncio.Event().wait()
                raise

        async with started(app, grace=0.05) as (server, connect):
            reader, writer = await connect()
            writer.write(GET)
            await until(lambda: server.context.exchanges)
            server.stop()
            await cancelled.wait()
            if ends == "never":
                assert await reader.read() == b""
            else:
                assert (await read_answer(reader)).status == 503
            writer.close()

    run_on(runner, main())
    assert "cancel 1 requests" in caplog.text


class Lifespan:
    """An application with a lifespan, and its events."""

    def __init__(self, failure=None):
        self.events = []
        self.failure = failure

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.events.append(scope["state"])
            await answer_path(scope, receive, send)
            return
        self.events.append((await receive())["type"])
        scope["state"]["key"] = "value"
        if self.failure == "reported":
            await send({"type": "lifespan.startup.failed", "message": "no database"})
            return
        if self.failure == "raised":
            raise RuntimeError("lifespan is not supported")
        await send({"type": "lifespan.startup.complete"})
        self.events.append((await receive())["type"])
        if self.failure == "at the end":
            raise RuntimeError("a bug at the end")
        if self.failure == "never ends":
            await asyncio.Event().wait()
        await send({"type": "lifespan.shutdown.complete"})


@pytest.mark.parametrize("failure", [None, "raised", "at the end"])
def test_application_with_and_without_lifespan_is_served(failure, caplog):
    async def main():
        app = Lifespan(failure)
        async with started(app) as (_, connect):
            reader, writer = await connect()
            writer.write(GET.replace(b"host", b"connection: close\r\nhost"))
            assert (await read_answer(reader)).body == b"/"
            writer.close()
        return app.events

    events = asyncio.run(asyncio.wait_for(main(), SAFETY))
    start, request, *end = events
    assert (start, request) == ("lifespan.startup", {"key": "value"})
    assert end == ([] if failure == "raised" else ["lifespan.shutdown"])
    assert ("the lifespan of the application failed" in caplog.text) == (failure == "at the end")


def test_application_that_does_not_end_is_cancelled(monkeypatch, caplog):
    async def main():
        monkeypatch.setattr("toolwire.asgi.server._END_OF_APPLICATION", 0.05)
        server = HttpServer(ServerContext(Lifespan("never ends")), grace=1.0)
        server.stop()
        await server.serve([])

    asyncio.run(asyncio.wait_for(main(), SAFETY))
    assert "cancel the application" in caplog.text


def test_application_that_cannot_start_is_an_error():
    async def main():
        server = HttpServer(ServerContext(Lifespan("reported")), grace=1.0)
        with pytest.raises(ConfigError, match="failed to start: no database"):
            await server.start()

    asyncio.run(main())


def test_stop_before_the_start_serves_nothing():
    async def main():
        app = Lifespan()
        server = HttpServer(ServerContext(app), grace=1.0)
        server.stop()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await server.serve([listener])
        return app.events

    assert asyncio.run(asyncio.wait_for(main(), SAFETY)) == ["lifespan.startup", "lifespan.shutdown"]


def test_requests_share_the_state_of_the_lifespan_but_not_its_dictionary():
    async def main():
        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                scope["state"]["shared"] = shared
                raise RuntimeError
            states.append(scope["state"])
            scope["state"]["own"] = scope["path"]
            await answer_path(scope, receive, send)

        async with started(app) as (_, connect):
            reader, writer = await connect()
            writer.write(GET * 2)
            for _ in range(2):
                await read_answer(reader)
            writer.close()

    shared, states = object(), []
    asyncio.run(asyncio.wait_for(main(), SAFETY))
    assert states == [{"shared": shared, "own": "/"}] * 2 and states[0] is not states[1]
