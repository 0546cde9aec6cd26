"""The gateway and MCP over HTTP below a prefix, in an application that mounts them."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from hostile import TEXT_ANSWER, body_of, decode_answer, exchange, head_of, path_of, request_bytes, run
from serving import WIRES, Serving, listening, upstream_rows
from toolwire import Toolbox
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.mcp import HttpApp, Server
from toolwire.testing import Upstream

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def removes_prefix(app, prefix):
    """A server that passes the path without the prefix, as those before ASGI's clarification do."""

    async def mounted(scope, receive, send):
        if scope["type"] != "lifespan":
            assert scope["path"].startswith(prefix)
            scope = {**scope, "root_path": prefix, "path": scope["path"].removeprefix(prefix)}
        await app(scope, receive, send)

    return mounted


def mount(app, form):
    if form == "stripped path":
        return removes_prefix(app, "/llm")
    routes = [Mount("/llm", app=app)]
    if form == "nested":
        routes = [Mount("/a", routes=[Mount("/b", app=app)])]
    return Starlette(routes=routes, lifespan=app.lifespan)


PREFIXES = {"Starlette": "/llm", "nested": "/a/b", "stripped path": "/llm"}


@asynccontextmanager
async def mounted_gateway(form, *script):
    async with Upstream(*script) as upstream:
        settings = parse_settings({"upstreams": upstream_rows(upstream.url)})
        gateway = Gateway(settings, environment={}, publish=Server(Toolbox()))
        async with listening(mount(gateway, form)) as url:
            serving = Serving(gateway, [])
            serving.url = url
            yield serving


@pytest.mark.finding("GA15")
@pytest.mark.parametrize("form", PREFIXES)
@pytest.mark.parametrize("front", WIRES)
@run
async def test_mounted_gateway_answers_every_protocol(front, form):
    async with mounted_gateway(form, TEXT_ANSWER, TEXT_ANSWER) as gateway:
        for stream in (False, True):
            path = PREFIXES[form] + path_of(front, stream=stream)
            answer = await exchange(gateway, request_bytes(path, body_of(front, stream=stream)))
            assert decode_answer(answer, front, stream=stream).text == TEXT_ANSWER.text


@pytest.mark.finding("GA15")
@pytest.mark.parametrize("form", PREFIXES)
@run
async def test_mounted_gateway_serves_its_other_paths(form):
    prefix = PREFIXES[form]
    paths = {"/": 200, "/health": 200, "/ready": 200, "/v1/models": 200, "/v1beta/models": 200, "/api/tags": 200}
    paths |= {"/api/ps": 200, "/v1/models/nothing": 404, "/v1/nothing": 404, "/v1/responses": 405}
    async with mounted_gateway(form) as gateway:
        for path, status in paths.items():
            head = head_of(prefix + path, {"host": "localhost", "connection": "close"}, method="GET")
            answer = await exchange(gateway, head)
            assert answer.status == status, path
        unknown = await exchange(
            gateway, request_bytes(f"{prefix}/v1/chat/completions", body_of("openai_chat", model="x"))
        )
        missing = await exchange(gateway, request_bytes(f"{prefix}/v1/chat/completions", b'{"messages": []}'))
        for answer in (unknown, missing):
            assert f"GET {prefix}/v1/models lists" in answer.document["error"]["message"]


@pytest.mark.finding("GA15")
@pytest.mark.parametrize("form", PREFIXES)
@run
async def test_mounted_gateway_serves_mcp(form):
    async with mounted_gateway(form) as gateway:
        data = request_bytes(f"{PREFIXES[form]}/mcp", json.dumps(INITIALIZE).encode(), JSON)
        answer = await exchange(gateway, data)
    assert answer.status == 200 and answer.document["result"]["serverInfo"]


@pytest.mark.finding("OP3")
@run
async def test_mounted_gateway_bounds_the_requests_in_flight():
    """Also those to its MCP server. The server of another application does not ask before."""
    async with mounted_gateway("Starlette") as gateway:
        gateway.gateway.admission.limit = 0
        paths = {"/mcp": json.dumps(INITIALIZE).encode(), "/v1/chat/completions": body_of("openai_chat")}
        for path, body in paths.items():
            answer = await exchange(gateway, request_bytes(f"/llm{path}", body, JSON))
            assert (answer.status, answer.headers["retry-after"]) == (503, "1"), path
        assert (await exchange(gateway, head_of("/llm/health", {"host": "localhost"}, method="GET"))).status == 200
        assert gateway.gateway.admission.in_flight == 0


@pytest.mark.finding("GA15")
@pytest.mark.parametrize("form", PREFIXES)
@run
async def test_mounted_mcp_server_is_below_the_prefix(form):
    app = HttpApp(Server(Toolbox()))
    async with listening(mount(app, form)) as url:
        server = Serving(app, [])
        server.url = url
        data = json.dumps(INITIALIZE).encode()
        answer = await exchange(server, request_bytes(f"{PREFIXES[form]}/mcp", data, JSON))
        other = await exchange(server, request_bytes(f"{PREFIXES[form]}/other", data, JSON))
    assert answer.status == 200 and answer.document["result"]["serverInfo"]
    assert other.status == 404 and f"MCP is served at {PREFIXES[form]}/mcp" in other.document["error"]["message"]


@pytest.mark.finding("GA15")
@run
async def test_lifespan_of_the_outer_application_starts_and_stops_the_gateway():
    gateway = Gateway(parse_settings({}), environment={}, publish=Server(Toolbox()))
    outer = Starlette(routes=[Mount("/llm", app=gateway)], lifespan=gateway.lifespan)
    async with listening(outer):
        assert not gateway._mcp_mount.server._threads._workers._closed
    assert gateway._mcp_mount.server._threads._workers._closed
