"""A proxy for CONNECT: it resolves names itself, checks credentials, and passes bytes on."""

import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager

from waiting import until

OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class ConnectProxy:
    """`hosts`: the ports on this machine by host name. `answer` is sent in place of `OPENED`."""

    def __init__(self, hosts, credentials=None, answer=OPENED):
        self.hosts = hosts
        self.requests = []
        self.open = 0
        self._authorization = credentials and b"Basic " + b64encode(credentials.encode())
        self._answer = answer

    async def accept(self, reader, writer):
        self.open += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            await self._serve(head, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _serve(self, head, reader, writer):
        given = head.partition(b"proxy-authorization: ")[2].split(b"\r\n")[0]
        host, _, port = head.split()[1].decode().rpartition(":")
        if self._authorization and given != self._authorization:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\r\n")
        elif self._answer is None:
            await reader.read()
        elif host not in self.hosts:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
        elif self._answer != OPENED:
            writer.write(self._answer)
            await reader.read()
        else:
            assert port == "443"
            there = await asyncio.open_connection("127.0.0.1", self.hosts[host])
            writer.write(OPENED)
            try:
                await asyncio.gather(_relay(reader, there[1]), _relay(there[0], writer))
            finally:
                there[1].close()


async def _relay(reader, writer):
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def running_proxy(hosts, *, tls=None, **options):
    """The proxy, and the address of it without a scheme."""
    proxy = ConnectProxy(hosts, **options)
    listening = await asyncio.start_server(proxy.accept, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield proxy, f"localhost:{listening.sockets[0].getsockname()[1]}"
        await until(lambda: proxy.open == 0)
