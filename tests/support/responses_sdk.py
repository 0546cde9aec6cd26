"""A gateway that stores responses, an upstream for every wire, and OpenAI's own client."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import openai

from serving import WIRES, Serving, serving, upstream_rows
from toolwire import Response, Text, ToolCall
from toolwire.gateway.keys import hash_key
from toolwire.ir.parts import Artefact, Reasoning
from toolwire.ir.response import Stop, Usage
from toolwire.testing import Upstream

__all__ = ["KEY", "WEATHER", "WIRES", "World", "call_answer", "client_of", "create", "text_answer", "world"]

KEY = "sk-ann"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


def text_answer(text: str) -> Response:
    return Response(parts=(Text(text),), stop=Stop("stop"), usage=Usage(12, 5))


def call_answer(call_id: str = "call_1", artefacts: tuple[Artefact, ...] = ()) -> Response:
    thought = (Reasoning("think", (), artefacts),) if artefacts else ()
    call = ToolCall(call_id, "get_weather", {"city": "Oslo"})
    return Response(parts=(*thought, call), stop=Stop("tool_calls"), usage=Usage(12, 9))


class World:
    """The gateway, its upstream, and a client for each key."""

    def __init__(self, gateway: Serving, upstream: Upstream, clients: dict[str, openai.AsyncOpenAI]) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.clients = clients

    @property
    def client(self) -> openai.AsyncOpenAI:
        return self.clients["ann"]

    def history(self, number: int = -1) -> list[tuple[str, str]]:
        """Return role and text of each part that the upstream got."""
        request = self.upstream.requests[number].request
        assert request is not None
        return [
            (message.role, getattr(part, "text", "") if not isinstance(part, ToolCall) else part.name)
            for message in request.messages
            for part in message.parts
        ]


def client_of(url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


@asynccontextmanager
async def world(*script: Any, store: str | None, responses: dict[str, Any] | None = None, **document: Any):
    """A gateway with the keys `ann` and `bob`. `responses` has further settings of the store."""
    options = document.pop("options", {})
    async with Upstream(*script) as upstream:
        settings = {
            "upstreams": {**upstream_rows(upstream.url), **document.pop("more_upstreams", {})},
            "keys": {name: {"hash": hash_key(f"sk-{name}")} for name in ("ann", "bob")},
            "responses": {**({} if store is None else {"store": store}), **(responses or {})},
            **document,
        }
        async with serving(settings, **options) as gateway:
            clients = {name: client_of(gateway.url, f"sk-{name}") for name in ("ann", "bob")}
            try:
                yield World(gateway, upstream, clients)
            finally:
                for client in clients.values():
                    await client.close()


async def create(client: openai.AsyncOpenAI, *, stream: bool, **fields: Any) -> Any:
    """Return a finished response, whole or from the last event of a stream."""
    fields = {name: value for name, value in fields.items() if value is not None}
    if not stream:
        return await client.responses.create(**fields)
    last = None
    async for event in await client.responses.create(**fields, stream=True):
        last = event
    assert last is not None and last.type in ("response.completed", "response.incomplete"), last
    return last.response
