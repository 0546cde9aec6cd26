"""A gateway on a real socket, for as long as its context lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from toolwire.asgi.admission import ConnectionCounts
from toolwire.asgi.limited_http import make_limited_protocol
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.config.settings import LimitsRow
from toolwire.gateway.observe.request_log import RequestLog

WIRES = ("anthropic", "gemini", "ollama", "openai_chat", "openai_responses")


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
    http = make_limited_protocol(limits, counts, gate)
    config = uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1, ws="none", http=http)
    config.load()
    server = _Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    await server.on_tick(0)  # sets the default headers
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


class _Server(uvicorn.Server):
    """Listens like uvicorn, without its ticks: it looks ten times a second whether to stop, and waits as long to do so."""

    async def stop(self) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            await asyncio.wait_for(self._drain(), self.config.timeout_graceful_shutdown)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()

    async def _drain(self) -> None:
        delay = 0.0  # at first only until the loop has closed idle connections
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(delay)
            delay = min(delay + 0.001, 0.02)
        for server in self.servers:
            await server.wait_closed()
