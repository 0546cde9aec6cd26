"""One toolbox, declared once: the same answers through MCP, through every provider's wire, and through the gateway."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from places import ROOT
from serving import serving, upstream_rows
from toolwire import Message, Request, Response, Text, ToolCall, ToolResult
from toolwire.ir.response import Stop
from toolwire.mcp.client import McpServers
from toolwire.mcp.protocol.rpc import RpcError
from toolwire.mcp.server.server import Server
from toolwire.net.http.client import HttpTransport
from toolwire.net.model.client import ModelClient
from toolwire.net.tools.runner import Runner
from toolwire.testing import Upstream
from waiting import SAFETY

EXAMPLE = ROOT / "examples" / "conjugate.py"
WIRES = ("anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses")
CALLS = {
    "fine": {"verb": "eat", "tense": "past_simple", "person": "3sg"},
    "unknown verb": {"verb": "flurb", "tense": "past_simple", "person": "3sg"},
    "missing argument": {"verb": "eat", "tense": "past_simple"},
}
REQUEST = Request("m", (Message("user", (Text("Conjugate."),)),))


def toolbox():
    spec = importlib.util.spec_from_file_location("conjugate_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls(result):
    return Response(parts=(ToolCall("c1", "conjugate", result),), stop=Stop("tool_calls"))


FINAL_ANSWER = Response(parts=(Text("Done."),), stop=Stop("stop"))


def normalized_result(result):
    """What a model is told."""
    return (result.text.removeprefix("[tool error] "), result.is_error)


async def directly(arguments):
    (result,) = await Runner(toolbox()).run([ToolCall("c1", "conjugate", arguments)])
    return (result.text, result.is_error)


async def over_a_wire(wire, arguments):
    runner = Runner(toolbox())
    async with Upstream(calls(arguments), FINAL_ANSWER) as upstream:
        client = ModelClient("m", base_url=upstream.url, wire=wire, key="k")
        async with client:
            response = await client.ask(Request("m", REQUEST.messages, runner.box.tools))
            results = await runner.run(response.calls)
            talk = (*REQUEST.messages, Message("assistant", response.parts), Message("user", tuple(results)))
            await client.ask(Request("m", talk, runner.box.tools))
        return _result_text(upstream)


async def through_the_gateway(wire, arguments):
    async with Upstream(calls(arguments), FINAL_ANSWER) as upstream:
        document = {"upstreams": upstream_rows(upstream.url), "models": {"m": {"upstream": wire}}}
        async with serving(document, runners={"*": Runner(toolbox())}) as gateway:
            client = ModelClient("m", base_url=gateway.url, wire="openai_chat", key="k")
            async with client:
                await client.ask(REQUEST)
        return _result_text(upstream)


def _result_text(upstream):
    parts = [part for one in upstream.requests[-1].request.messages for part in one.parts]
    (result,) = [part for part in parts if isinstance(part, ToolResult)]
    text, _ = normalized_result(result)
    return text


async def over_mcp(arguments, name="conjugate"):
    document = {"upstreams": upstream_rows("http://127.0.0.1:9")}
    async with serving(document, publish=Server(toolbox())) as gateway:
        config = {"mcpServers": {"verbs": {"url": f"{gateway.url}/mcp", "trusted": True}}}
        async with McpServers.from_config(config) as servers:
            assert not servers.problems
            if name != "conjugate":
                return await servers.clients["verbs"].call(ToolCall("c1", name, arguments))
            (result,) = await Runner(servers.toolbox()).run([ToolCall("c1", name, arguments)])
            return (result.text, result.is_error)


@pytest.mark.parametrize("kind", CALLS)
def test_toolbox_answers_the_same_over_every_path(kind):
    async def check():
        text, is_error = await directly(CALLS[kind])
        assert is_error == (kind != "fine")
        for wire in WIRES:
            assert await over_a_wire(wire, CALLS[kind]) == text, wire
            assert await through_the_gateway(wire, CALLS[kind]) == text, wire
        assert await over_mcp(CALLS[kind]) == (text, is_error)

    asyncio.run(check())


def test_unknown_tool_is_a_protocol_error():
    with pytest.raises(RpcError) as caught:
        asyncio.run(over_mcp({}, "no_such_tool"))
    assert caught.value.code == -32602


def test_gateway_keys_protect_published_tools():
    async def check():
        from toolwire.gateway.keys import hash_key

        document = {"upstreams": upstream_rows("http://127.0.0.1:9"), "keys": {"a": {"hash": hash_key("sk-a")}}}
        async with serving(document, publish=Server(toolbox())) as gateway:
            for headers, fine in (({}, False), ({"Authorization": "Bearer sk-a"}, True)):
                config = {"mcpServers": {"verbs": {"url": f"{gateway.url}/mcp", "headers": headers}}}
                async with McpServers.from_config(config) as servers:
                    assert (not servers.problems) == fine
                    assert [entry.name for entry in servers.toolbox()] == (["conjugate"] if fine else [])

    asyncio.run(check())


def test_rate_limits_and_request_logs_apply_to_published_tools():
    async def check():
        from toolwire.gateway.keys import hash_key

        row = {"hash": hash_key("sk-a"), "requests_per_minute": 3}
        document = {"upstreams": upstream_rows("http://127.0.0.1:9"), "keys": {"a": row}}
        async with serving(document, publish=Server(toolbox())) as gateway:
            body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
            headers = {"authorization": "Bearer sk-a", "content-type": "application/json"}
            transport = HttpTransport()
            statuses = []
            for _ in range(4):
                async with transport.post(f"{gateway.url}/mcp", headers, {}, body, SAFETY) as reply:
                    await reply.read()
                    statuses.append(reply.status)
            await transport.aclose()
        assert statuses[3] == 429
        assert 429 not in statuses[:3]
        assert [(turn.ingress, turn.caller) for turn in gateway.turns] == [("mcp", "a")] * 4

    asyncio.run(check())


def test_key_for_other_models_cannot_use_published_tools():
    async def check():
        from toolwire.gateway.keys import hash_key

        keys = {
            name: {"hash": hash_key(f"sk-{name}"), "models": models}
            for name, models in {"all": ["*"], "same": ["gpt-*"], "one": ["x", "gpt-4"], "other": ["small-*"]}.items()
        }
        document = {"upstreams": upstream_rows("http://127.0.0.1:9"), "keys": keys}
        found = {}
        async with serving(document, publish=Server(toolbox()), publish_for="gpt-*") as gateway:
            for name in keys:
                headers = {"authorization": f"Bearer sk-{name}"}
                config = {"mcpServers": {"verbs": {"url": f"{gateway.url}/mcp", "headers": headers, "trusted": True}}}
                async with McpServers.from_config(config) as servers:
                    found[name] = not servers.problems
        assert found == {"all": True, "same": True, "one": True, "other": False}

    asyncio.run(check())
