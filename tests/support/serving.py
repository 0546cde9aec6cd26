"""A gateway on a real socket, for as long as its context lasts."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from toolwire.asgi.accepting import BatchListener
from toolwire.asgi.admission import ConnectionCounts
from toolwire.asgi.server import HttpServer
from toolwire.asgi.server_context import ServerContext
from toolwire.asgi.websocket import open_websocket
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.config.settings import LimitsRow
from toolwire.gateway.observe.request_log import RequestLog

WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")


class Serving:
    """Where it is, and what it was told when requests were over."""

    def __init__(self, gateway: Gateway, turns: list[RequestLog]) -> None:
        self.gateway = gateway
        self.turns = turns
        self.url = ""


def upstream_rows(url: str, **more: Any) -> dict[str, Any]:
    """One upstream for every wire, at `url`, named like the wire; `WIRE/MODEL` asks for it."""
    return {wire: {"base_url": url, "wire": wire, "retries": 0, **more} for wire in WIRES}


@asynccontextmanager
async def serving(document: dict[str, Any], **options: Any) -> AsyncIterator[Serving]:
    """The gateway that these settings describe."""
    turns: list[RequestLog] = []
    sinks = [turns.append, *options.pop("sinks", ())]
    environment = options.pop("environment", {})
    settings = parse_settings(document)
    gateway = Gateway(settings, environment=environment, sinks=sinks, **options)
    async with listening(gateway, lambda: gateway.limits) as url:
        serving = Serving(gateway, turns)
        serving.url = url
        yield serving


@asynccontextmanager
async def listening(
    app: Any,
    limits: Callable[[], LimitsRow] = LimitsRow,
    counts: ConnectionCounts | None = None,
    gate: Gateway | None = None,
) -> AsyncIterator[str]:
    context = ServerContext(app, limits=limits, counts=counts, gate=gate, upgrade=open_websocket)
    server = HttpServer(context, grace=1.0)
    await server.start()
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server.listen(partial(BatchListener, listener))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        await server.finish()
