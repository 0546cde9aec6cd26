"""Servers that announce changes of their lists at any time: the client always has tools and never lists without end."""

import asyncio
import json
import logging
import shlex
import sys
from pathlib import Path

import pytest

from mcp_client.client_helpers import McpClient, McpServers, run, tool_call, until
from mcp_client.scripted_http_server import TOOL, ScriptedHttpServer, discovered, error, events, json_reply, result
from mcp_client.test_cli import toolwire
from mcp_server.server_process import effects_in
from toolwire.cli.serve.tools import ToolLoader
from toolwire.gateway.config.settings import Settings, ToolsRow
from toolwire.mcp.client import ServerSpec
from waiting import SAFETY

SERVER = Path(__file__).parent / "announcing.py"
NAMES = {"echo", "add", "sort"}
MOMENTS = ("before_greeting", "after_greeting", "during", "between_pages", "after")
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
MOST_LISTINGS = 10
"""Two at the start, one at once, and one after each pause of 0.5, 1, 2, 4, 8, 16 and 32 seconds: more than the 60 seconds
that a test may take."""


@pytest.fixture
def listed(tmp_path):
    return tmp_path / "listed"


def announcing(moments, listed):
    return ServerSpec("s", command=sys.executable, args=(str(SERVER), moments), env={"EFFECTS": str(listed)})


def listings(listed, area="tools"):
    return effects_in(listed).count(area)


@pytest.mark.finding("U2")
@pytest.mark.parametrize("moment", [*MOMENTS, ",".join(MOMENTS)])
def test_tools_are_available_whenever_the_server_announces_a_change(moment, listed):
    async def test():
        async with McpClient(announcing(moment, listed)) as client:
            assert set(client.tools) == NAMES
            assert (await client.call(tool_call("echo"))).text == "echo"
            assert set(client.tools) == NAMES

    run(test())
    assert 1 <= listings(listed) <= 3


@pytest.mark.finding("U2")
def test_change_announced_during_the_first_listing_is_visible_after_connecting(listed):
    async def test():
        async with McpClient(announcing("between_pages,grows", listed)) as client:
            return set(client.tools)

    assert run(test()) == {*NAMES, "new_3"}
    assert listings(listed) == 2


@pytest.mark.finding("U2")
def test_continuous_announcements_neither_starve_calls_nor_relist_forever(listed):
    async def test():
        async with McpClient(announcing("always", listed)) as client:
            for _ in range(50):
                assert set(client.tools) == NAMES
                assert (await client.call(tool_call("add"))).text == "add"
            await until(lambda: listings(listed) >= 3)
            assert len(client.connection.tasks) == 1
            assert set(client.tools) == NAMES

    run(test())
    assert listings(listed) <= MOST_LISTINGS


@pytest.mark.finding("U2")
@pytest.mark.parametrize("moment", ["during", "always"])
def test_failed_listing_keeps_the_last_list(moment, listed, caplog):
    caplog.set_level(logging.WARNING, "toolwire.mcp")

    async def test():
        async with McpClient(announcing(f"{moment},fails", listed)) as client:
            assert set(client.tools) == NAMES
            assert client.unavailable_reason is None
            assert (await client.call(tool_call("sort"))).text == "sort"

    run(test())
    assert 2 <= listings(listed) <= MOST_LISTINGS
    assert "keeping the last list: the index is being rebuilt" in caplog.text


@pytest.mark.finding("U2")
def test_invalidated_cursor_restarts_the_first_listing(listed):
    async def test():
        async with McpClient(announcing("between_pages,invalid_cursor", listed)) as client:
            return set(client.tools)

    assert run(test()) == NAMES
    assert listings(listed) == 2


@pytest.mark.one_in(5)
@pytest.mark.finding("U2")
@pytest.mark.parametrize("moment", [*MOMENTS, "always"])
def test_prompts_and_resources_are_available_whenever_a_change_is_announced(moment, listed):
    async def test():
        async with McpClient(announcing(moment, listed)) as client:
            prompts, resources = await client.prompts(), await client.resources()
            assert [one["name"] for one in prompts] == ["greet", "part", "thank"]
            assert [one["name"] for one in resources] == ["monday", "tuesday", "friday"]

    run(test())
    assert (listings(listed, "prompts"), listings(listed, "resources")) == (1, 1)


@pytest.mark.finding("U2")
def test_toolbox_and_inspect_command_have_the_tools(listed):
    async def test():
        async with McpServers([announcing("during", listed)]) as servers:
            return {tool.name for tool in servers.toolbox().tools}

    assert run(test()) == NAMES
    target = shlex.join([sys.executable, str(SERVER), "during"])
    code, out, err = toolwire("inspect", target, "--json", "--env", f"EFFECTS={listed}")
    assert code == 0, err
    assert set(json.loads(out)["declared"]) == NAMES


@pytest.mark.finding("U2")
def test_tools_row_of_the_gateway_has_the_tools(listed, tmp_path):
    server = {"command": sys.executable, "args": [str(SERVER), "during"], "env": {"EFFECTS": str(listed)}}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"s": server}}))

    async def test():
        served = ToolLoader([])
        opened = await served.prepare(Settings(tools={"*": ToolsRow(mcp=str(config))}))
        served.activate(opened)
        try:
            return {tool.name for tool in opened.bindings.runners["*"].box.tools}
        finally:
            await served.aclose()

    assert run(test()) == NAMES


def over_http(tools_list, listen):
    def greet(message):
        return discovered(message, tools={"listChanged": True})

    def call(message):
        return json_reply(result(message, {"resultType": "complete", "content": [{"type": "text", "text": "paid"}]}))

    return ScriptedHttpServer(
        call, **{"server/discover": greet, "tools/list": tools_list, "subscriptions/listen": listen}
    )


def tool_page(message):
    return result(message, {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private"})


@pytest.mark.finding("U2")
@pytest.mark.parametrize("where", ["in the answer", "on the subscription"])
def test_list_changes_announced_over_http_are_handled(where):
    """They arrive in the stream of the answer that lists the tools, or on the stream that stays open."""
    in_answer = where == "in the answer"
    listing, clients = asyncio.Event(), []

    async def listen(message):
        if in_answer:
            return json_reply(error(message, -32601, "Method not found"), 404)
        await listing.wait()
        return events(*[CHANGED] * 500)

    async def tools_list(message):
        if in_answer:
            return events(CHANGED, tool_page(message))
        if not listing.is_set():
            listing.set()
            await until(lambda: clients[0]._list.is_stale)  # the announcements arrive first
        return json_reply(tool_page(message))

    async def test():
        address = over_http(tools_list, listen)
        async with address.serving() as url:
            client = McpClient(ServerSpec("s", url=url, timeout=SAFETY))
            clients.append(client)
            async with client:
                for _ in range(20):
                    assert set(client.tools) == {"pay"}
                    assert (await client.call(tool_call("pay"))).text == "paid"
                return address.methods.count("tools/list")

    assert 2 <= run(test()) <= MOST_LISTINGS
