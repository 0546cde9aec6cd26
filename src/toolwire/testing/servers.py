"""Servers in a background thread for synchronous tests: a scripted upstream, and a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from .._extras import install_command
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
        """Listen on a free port of the loopback interface, and set `url`. Raises `MissingExtra` without uvicorn."""
        try:
            import uvicorn
        except ImportError as error:
            raise MissingExtra("the gateway needs the package uvicorn", hint=install_command("gateway")) from error
        config = uvicorn.Config(self.gateway, port=0, log_config=None, timeout_graceful_shutdown=1, ws="none")
        self._server = uvicorn.Server(config)
        self._task = asyncio.ensure_future(self._server.serve())
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.005)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    async def _stop(self) -> None:
        if self._task is not None:
            self._server.should_exit = True
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
