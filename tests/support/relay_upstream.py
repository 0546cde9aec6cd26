"""An upstream for relayed requests: an ASGI application that records requests, and answers with a function."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from serving import listening, serving

UPSTREAM_KEY = "sk-upstream-secret-0123456789"
JSON = {"content-type": "application/json"}


class Received(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    body: bytes
    headers: dict[str, str] = JSON
    status: int = 200


def document(value: Any, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), JSON, status)


class RelayUpstream:
    """Answers each request with `answer(received)`, a Reply."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[Received] = []
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, has_more = b"", True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, has_more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        received = Received(scope["method"], scope["path"], scope["query_string"].decode(), headers, body)
        self.requests.append(received)
        reply = self.answer(received)
        pairs = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        length = (b"content-length", b"%d" % len(reply.body))
        await send({"type": "http.response.start", "status": reply.status, "headers": [*pairs, length]})
        await send({"type": "http.response.body", "body": reply.body})


@asynccontextmanager
async def relay_upstream(answer: Any) -> Any:
    upstream = RelayUpstream(answer)
    async with listening(upstream) as url:
        upstream.url = url
        yield upstream


@asynccontextmanager
async def relaying(
    answer: Any, wires: tuple[str, ...] = ("openai_chat",), more: Any = None, retries: int = 0, **options: Any
) -> Any:
    """A gateway with an upstream for each of these wires, named like the wire, all at one server."""
    async with relay_upstream(answer) as upstream:
        rows = {wire: {"base_url": upstream.url, "wire": wire, "retries": retries, "key_env": "KEY"} for wire in wires}
        settings = {"upstreams": rows, **(more or {})}
        async with serving(settings, environment={"KEY": UPSTREAM_KEY}, **options) as gateway:
            yield gateway, upstream
