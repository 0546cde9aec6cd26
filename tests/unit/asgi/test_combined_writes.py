"""Writes of one iteration of the event loop are combined, up to a size at which the transport pauses the app."""

import asyncio

import pytest
from memory_connection import Client, Connection, limited, settle

from toolwire.asgi.client_transport import BufferingTransport
from toolwire.asgi.http_exchange import HttpExchange

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class CountingConnection(Connection):
    """A connection that keeps the sizes of its writes."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def write(self, data):
        super().write(data)
        self.sizes.append(len(data))


@pytest.mark.parametrize(
    ("pieces", "sizes"),
    [
        ([10, 20, 30], [60]),
        ([40_000, 30_000, 10], [70_000, 10]),
        ([100_000], [100_000]),
        ([40_000] * 4, [80_000, 80_000]),
    ],
)
def test_writes_are_combined_up_to_a_size(pieces, sizes):
    async def main():
        connection = CountingConnection()
        transport = BufferingTransport(connection, asyncio.get_running_loop())
        for size in pieces:
            transport.write(b"x" * size)
        assert transport.get_write_buffer_size() == sum(pieces) - sum(connection.sizes)
        await settle()
        assert transport.get_write_buffer_size() == 0
        return connection.sizes

    assert asyncio.run(main()) == sizes


def test_app_that_writes_without_waiting_is_paused(monkeypatch):
    """As the transport of a socket does: it keeps the data, and pauses the protocol above 64 KB."""
    written = []

    async def app(scope, receive, send):
        http_exchange = HttpExchange(scope, receive, send)
        await http_exchange.start(200, [])
        for number in range(100):
            await http_exchange.write(b"x" * 60_000)
            written.append(number)

    async def main():
        client = Client(limited(), app)

        def write(connection, data):
            connection.unread += len(data)
            if connection.unread > 64 * 1024:
                client.protocol.pause_writing()

        monkeypatch.setattr(Connection, "write", write)
        await client.send(REQUEST)
        return client.connection.unread

    assert asyncio.run(main()) < 200_000
    assert len(written) < 4
