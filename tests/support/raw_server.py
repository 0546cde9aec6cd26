"""A server that sends any bytes, well-formed or not, and a client that reads them."""

import asyncio
from contextlib import asynccontextmanager

from places import TESTS
from toolwire.net.http.client import HttpTransport
from waiting import SAFETY

TLS = TESTS / "fixtures" / "tls"

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3\r\n, y\r\n0\r\n\r\n"


@asynccontextmanager
async def server(answer, port=0, **options):
    """`answer(reader, writer)` for each connection, after it has been counted."""
    seen = {"connections": 0, "requests": [], "asked": asyncio.Event(), "closed": asyncio.Event()}

    async def accept(reader, writer):
        seen["connections"] += 1
        try:
            await answer(reader, writer, seen)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            seen["closed"].set()
            writer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", port, **options)
    seen["url"] = f"{'https' if 'ssl' in options else 'http'}://localhost:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield seen


async def request(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


def respond_with(*answers, close=False):
    """Each answer for one request, on as few connections as the client likes."""

    async def answer(reader, writer, seen):
        while True:
            seen["requests"].append(await request(reader))
            writer.write(answers[min(len(seen["requests"]), len(answers)) - 1])
            await writer.drain()
            if close:
                return

    return answer


async def post_request(transport, url, body=b"{}", seconds=SAFETY, **headers):
    async with transport.post(f"{url}/x?y=1", headers, {"x-key": "secret"}, body, seconds) as reply:
        pieces = []
        while piece := await reply.read():
            pieces.append(piece)
        return reply.status, dict(reply.headers), b"".join(pieces)


async def post_once(url, body=b"{}", seconds=SAFETY, **options):
    """Send one request with a new transport, which is closed afterwards."""
    async with open_transport(**options) as transport:
        return await post_request(transport, url, body, seconds)


@asynccontextmanager
async def open_transport(**options):
    transport = HttpTransport(**{"environment": {}, **options})
    try:
        yield transport
    finally:
        await transport.aclose()
