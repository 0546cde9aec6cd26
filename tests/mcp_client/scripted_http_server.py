"""Addresses that answer as they are told to, and a way in between that can be cut."""

import asyncio
import inspect
import json
from contextlib import asynccontextmanager

TOOL = {"name": "pay", "inputSchema": {"type": "object"}}


def json_reply(value, status=200, **headers):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    kind = headers.pop("content_type", "application/json")
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def events(*messages, whole=True):
    """A stream; cut off before its end where it is not whole."""
    body = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in messages)
    length = len(body) + (0 if whole else 1)
    head = f"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


def result(message, value):
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


def error(message, code, words, data=None):
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": words, "data": data}}


def discovered(message, **capabilities):
    value = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, **capabilities},
    }
    return json_reply(result(message, value))


class ScriptedHttpServer:
    """Answers with `calls(message)`, bytes as they go out, or what to await for them, for tools/call; greets and lists as a stateless server does."""

    def __init__(self, calls, **acts):
        self.acts = {"server/discover": discovered, "tools/list": self._list, "tools/call": calls, **acts}
        self.requests = []

    def _list(self, message):
        return json_reply(
            result(message, {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private"})
        )

    @property
    def methods(self):
        return [message.get("method") for _, message in self.requests]

    async def handle(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        message = json.loads(body) if body else {"method": head[0].split(" ")[0]}
        self.requests.append((headers, message))
        act = self.acts.get(message.get("method"))
        answer = json_reply(error(message, -32601, "Method not found"), 404) if act is None else act(message)
        writer.write(await answer if inspect.isawaitable(answer) else answer)
        try:
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    @asynccontextmanager
    async def serving(self, port=0):
        server = await asyncio.start_server(self.handle, "127.0.0.1", port)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


class BreakableProxy:
    """A way to `port` that `cut` ends in the middle."""

    def __init__(self, port):
        self._port = port
        self._open = set()

    async def _pipe(self, reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _handle(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        pair = (writer, back)
        self._open.add(pair)
        try:
            await asyncio.gather(self._pipe(reader, back), self._pipe(there, writer))
        except (ConnectionError, OSError):
            pass
        finally:
            self._open.discard(pair)
            for one in pair:
                one.close()

    def cut(self):
        for pair in self._open:
            for one in pair:
                one.transport.abort()

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
