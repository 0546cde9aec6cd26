"""A connection of a client in memory, with the server's protocol."""

import asyncio

from toolwire.asgi import connection as http
from toolwire.asgi.admission import ConnectionCounts, DefaultLimits
from toolwire.asgi.server_context import ServerContext


class Connection(asyncio.Transport):
    """A transport that keeps its data."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.unread = 0  # bytes that the client has not read
        self.closed = self.aborted = self.read_paused = False

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def can_write_eof(self):
        return True

    def write_eof(self):
        """A client closes its side in answer to this."""
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.read_paused = True

    def resume_reading(self):
        self.read_paused = False

    def get_write_buffer_size(self):
        return self.unread


class Client:
    """A client of an app, on a connection of a server with these options."""

    def __init__(self, app, head=64 * 1024, **options):
        self.connection = Connection()
        counts = ConnectionCounts(10, 10)
        context = ServerContext(app, **{"limits": lambda: DefaultLimits(head=head), "counts": counts, **options})
        context.app_state = {"a": 1}
        self.protocol = http.Connection(context)
        self.protocol.connection_made(self.connection)

    async def send(self, data, size=None):
        for start in range(0, len(data), size or len(data)):
            self.protocol.data_received(data[start : start + (size or len(data))])
            await settle()
        return self.connection.written


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)
