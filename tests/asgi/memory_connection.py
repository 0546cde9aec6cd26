"""A connection of a client in memory, with the server's protocol."""

import asyncio

import uvicorn
from uvicorn.server import ServerState

from toolwire.asgi.admission import ConnectionCounts, DefaultLimits
from toolwire.asgi.limited_http import make_limited_protocol


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
    """A client of an app, on a connection with this protocol."""

    def __init__(self, make_protocol, app):
        self.connection = Connection()
        state = ServerState()
        state.default_headers = [(b"date", b"Tue, 17 Nov 2026 06:00:00 GMT"), (b"server", b"uvicorn")]
        config = uvicorn.Config(app, log_config=None, ws="none", timeout_keep_alive=5)
        self.protocol = make_protocol(config, state, {"a": 1})
        self.protocol.access_log = False
        self.protocol.connection_made(self.connection)

    async def send(self, data, size=None):
        for start in range(0, len(data), size or len(data)):
            self.protocol.data_received(data[start : start + (size or len(data))])
            await settle()
        return self.connection.written


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def limited(head=64 * 1024):
    return make_limited_protocol(lambda: DefaultLimits(head=head), ConnectionCounts(10, 10))
