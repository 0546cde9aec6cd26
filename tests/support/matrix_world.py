"""One gateway, one upstream and one client of every kind, on one event loop, for as long as a module of tests."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sdks import CLIENTS, Client
from serving import Serving, serving, upstream_rows
from shapes import FORMATS, WIRES
from toolwire.testing.upstream import Upstream

MODELS = {
    "openai_chat": "gpt-5.1",
    "openai_responses": "gpt-5.1",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
    "gemini_interactions": "gemini-3.8-flash",
    "ollama": "qwen3-vl",  # a model with vision: images reach it
    "cohere": "command-a-vision-07-2025",
}


class World:
    """`clients` ask the gateway, `straight` the upstream itself."""

    def __init__(self, runner: asyncio.Runner, upstream: Upstream, gateway: Serving) -> None:
        self.run = runner.run
        self.upstream = upstream
        self.gateway = gateway
        self.number = 0  # of the cell at hand
        self.clients: dict[str, Client] = {name: kind(gateway.url) for name, kind in CLIENTS.items()}
        self.straight: dict[str, Client] = {name: kind(upstream.url) for name, kind in CLIENTS.items()}

    def reset(self) -> None:
        self.number += 1
        self.upstream.script.clear()
        self.upstream.requests.clear()
        self.gateway.turns.clear()

    async def close(self) -> None:
        for client in (*self.clients.values(), *self.straight.values()):
            await client.close()


def settings(url: str) -> dict[str, Any]:
    """`m-WIRE` is native there, `m-FORMAT` is emulated on a chat server."""
    native = {f"m-{wire}": {"upstream": wire, "model": MODELS[wire]} for wire in WIRES}
    emulated = {f"m-{form}": {"upstream": "openai_chat", "model": "small", "emulate": form} for form in FORMATS}
    return {"upstreams": upstream_rows(url), "models": native | emulated}


@contextmanager
def open_world() -> Iterator[World]:
    with asyncio.Runner() as runner:
        upstream = runner.run(Upstream(piece=37).__aenter__())
        context = serving(settings(upstream.url))
        world = World(runner, upstream, runner.run(context.__aenter__()))
        try:
            yield world
        finally:
            runner.run(world.close())
            runner.run(context.__aexit__(None, None, None))
            runner.run(upstream.__aexit__())
