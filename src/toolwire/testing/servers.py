"""Servers in a background thread for synchronous tests: a scripted upstream, and a gateway."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

from .._extras import install_command
from ..asgi.accepting import BatchListener
from ..asgi.server_context import ServerContext
from ..gateway.app import Gateway
from ..gateway.config.parsing import parse_settings
from ..ir.errors import MissingExtra
from ..net.threads import run_blocking
from ..wire import names
from .upstream import Upstream


def start_upstream(upstream: Upstream) -> None:
    run_blocking(upstream.__aenter__())


def stop_upstream(upstream: Upstream) -> None:
    run_blocking(upstream.__aexit__())


class BackgroundGateway:
    """A running gateway. `url` is its base URL, without a path."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.url = ""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen on a free port of the loopback interface, and set `url`. Raises `MissingExtra` without httptools."""
        try:
            from ..asgi.server import HttpServer
        except ImportError as error:
            raise MissingExtra("the gateway needs the package httptools", hint=install_command("gateway")) from error
        self._server = HttpServer(ServerContext(self.gateway), grace=1.0)
        await self._server.start()
        listener = socket.create_server(("127.0.0.1", 0))
        self._server.listen(partial(BatchListener, listener))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._task = asyncio.ensure_future(self._server.finish())

    async def _stop(self) -> None:
        if self._task is not None:
            self._server.stop()
            await self._task

    def stop(self) -> None:
        run_blocking(self._stop())


def start_gateway(
    upstream: Upstream | None = None,
    settings: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BackgroundGateway:
    """Start a gateway in front of an upstream: `WIRE/MODEL` reaches it over each wire. `settings` are added."""
    document = dict(settings or {})
    if upstream is not None:
        rows = {wire: {"base_url": upstream.url, "wire": wire, "retries": 0} for wire in names()}
        document["upstreams"] = {**rows, **document.get("upstreams", {})}
    running = BackgroundGateway(Gateway(parse_settings(document), environment=dict(environment or {})))
    run_blocking(running.start())
    return running
