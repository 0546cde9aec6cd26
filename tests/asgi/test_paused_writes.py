"""The transport pauses an application that writes more than the client reads."""

import asyncio

from memory_connection import Client, Connection

from toolwire.asgi.http_exchange import HttpExchange

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


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
        def write(connection, data):
            connection.unread += len(data)
            if connection.unread > 64 * 1024:
                client.protocol.pause_writing()

        monkeypatch.setattr(Connection, "write", write)
        client = Client(app)
        await client.send(REQUEST)
        return client.connection.unread

    assert asyncio.run(main()) < 200_000
    assert len(written) < 4
