"""A client that does not read holds its connection for a limited time, however the answer ends."""

import asyncio
import struct
import sys

import pytest
from memory_connection import Client

from toolwire.asgi.http_exchange import HttpExchange

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def return_early(http_exchange):
    """Return in the middle of the answer."""


async def raise_error(http_exchange):
    raise RuntimeError("a bug in the app")


async def return_value(http_exchange):
    return "a value that ASGI does not expect"


async def send_more_than_declared(http_exchange):
    await http_exchange.write(b"x" * 10)
    await http_exchange._send({"type": "http.response.start"})


async def wait_for_ever(http_exchange):
    await asyncio.Event().wait()


ENDS = [return_early, raise_error, return_value, send_more_than_declared]


async def begin_answer(end, connection_socket=None):
    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        await http_exchange.start(200, [])
        await http_exchange.write(b"x" * 100)
        client.connection.unread = 40_000
        return await end(http_exchange)

    client = Client(app)
    client.connection._extra["socket"] = connection_socket
    await client.send(REQUEST)
    return client


async def follow(client):
    """Read a part after 20 seconds, and nothing more. Return whether the connection was closed, and when it was aborted."""
    closed = client.connection.closed
    await asyncio.sleep(20)
    client.connection.unread = 30_000
    aborted = []
    for seconds in (11, 28, 2):  # a part was read within the first 30 seconds, nothing within the next 30
        await asyncio.sleep(seconds)
        aborted.append(client.connection.aborted)
    return closed, aborted


@pytest.mark.parametrize("end", ENDS)
def test_client_that_does_not_read_an_abandoned_answer_is_disconnected(virtual_time, end):
    async def main():
        return await follow(await begin_answer(end))

    assert asyncio.run(main()) == (True, [False, False, True])


def test_client_that_only_closed_its_sending_side_is_disconnected(virtual_time):
    async def main():
        client = await begin_answer(wait_for_ever)
        client.protocol.eof_received()
        return await follow(client)

    assert asyncio.run(main()) == (True, [False, False, True])


def test_client_with_an_invalid_body_that_does_not_read_its_answer_is_disconnected(virtual_time):
    async def main():
        async def app(scope, receive, send):
            await HttpExchange(scope, receive, send).start(200, [])
            await asyncio.Event().wait()

        client = Client(app)
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        client.connection.unread = 40_000
        await client.send(b"zz\r\n")
        return await follow(client)

    assert asyncio.run(main()) == (True, [False, False, True])


def test_connection_without_unread_data_is_not_closed_while_it_is_used(virtual_time):
    async def main():
        client = await begin_answer(wait_for_ever)
        await asyncio.sleep(3600)
        return client.connection.closed

    assert asyncio.run(main()) is False


def test_closed_connection_has_no_timers(virtual_time):
    async def main():
        client = await begin_answer(return_early)
        client.protocol.connection_lost(None)
        await asyncio.sleep(3600)
        client.protocol.transport.close()  # as an app that ends after the connection
        await asyncio.sleep(3600)
        return client.connection.aborted

    assert asyncio.run(main()) is False


class AcknowledgingSocket:
    """A socket of a server that counts the bytes which the client has acknowledged."""

    def __init__(self):
        self.acknowledged = 0

    def getsockopt(self, level, option, size):
        return struct.pack("@120xQ", self.acknowledged)[:size]  # `struct tcp_info`


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not report acknowledged bytes in this way")
@pytest.mark.parametrize("end", [return_early, wait_for_ever])
def test_client_that_reads_is_not_disconnected_if_the_buffer_does_not_shrink(virtual_time, end):
    """A TLS transport reports only a part of the unread data, and the same size for a long time."""

    async def main():
        client = await begin_answer(end, connection_socket := AcknowledgingSocket())
        client.protocol.pause_writing()
        for _ in range(20):
            await asyncio.sleep(20)
            connection_socket.acknowledged += 1000
        is_aborted_while_reading = client.connection.aborted
        await asyncio.sleep(61)
        return is_aborted_while_reading, client.connection.aborted

    assert asyncio.run(main()) == (False, True)
