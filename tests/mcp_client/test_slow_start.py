"""A server that hangs at its start does not delay the others, and its tools appear when it is ready (RU6)."""

import asyncio
import json
import logging

import pytest

from mcp_client.client_helpers import McpServers, misbehaving, run, tool_call, until
from serving import listening
from toolwire import Agent, Runner, ToolCall, tool
from toolwire.cli.main import main
from toolwire.cli.serve.tools import ToolLoader
from toolwire.gateway.config.settings import Settings, ToolsRow
from toolwire.ir.errors import ConfigError
from toolwire.mcp import HttpApp, Server
from toolwire.mcp.client import ServerSpec, http
from toolwire.mcp.client.failures import ServerGone
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY

HEALTHY = 29


@tool(effect="read")
def echo(text: str) -> str:
    """Return the text."""
    return text


class Gated:
    """An MCP server that answers on `/slow` only after `release` is set."""

    def __init__(self):
        self._app = HttpApp(Server(echo), path=None)
        self.release = asyncio.Event()
        self.paths = set()

    async def __call__(self, scope, receive, send):
        self.paths.add(scope.get("path"))
        if scope["type"] == "http" and scope["path"] == "/slow":
            await self.release.wait()
        await self._app(scope, receive, send)


def specs(url, **settings):
    healthy = [ServerSpec(f"s{number}", url=f"{url}/fast", timeout=SAFETY) for number in range(HEALTHY)]
    return [ServerSpec("hanging", url=f"{url}/slow", **{"timeout": SAFETY, "start_timeout": 0.2, **settings}), *healthy]


@pytest.mark.finding("RU6")
def test_healthy_servers_are_ready_while_one_hangs(caplog):
    async def test():
        gated = Gated()
        async with listening(gated) as url:
            with caplog.at_level(logging.WARNING, "toolwire.mcp"):
                async with McpServers(specs(url)) as servers:
                    box = servers.toolbox()
                    assert len(box.tools) == HEALTHY
                    (problem,) = servers.problems
                    assert (problem.server, problem.tool) == ("hanging", "")
                    assert "did not start within 0.2 seconds and is still connecting" in problem.reason
                    (result,) = await Runner(box).run([tool_call("s3_echo", text="hi")])
                    assert result.text == "hi"
                    gated.release.set()
                    await until(lambda: servers.problems == [])
                    box.refresh()
                    assert len(box.tools) == HEALTHY + 1
            assert "MCP server hanging" in caplog.text

    run(test())


@pytest.mark.finding("RU6")
def test_agent_gets_the_tools_of_a_slow_server_in_a_later_turn():
    async def test():
        gated = Gated()

        @tool(effect="read")
        async def wait() -> str:
            """Wait for the slow server."""
            gated.release.set()
            await until(lambda: servers.problems == [])
            return "ready"

        async with listening(gated) as url, McpServers(specs(url)[:2]) as servers:
            calls = (
                says(ToolCall("c1", "wait", {})),
                says(ToolCall("c2", "hanging_echo", {"text": "hi"})),
                says("Done."),
            )
            model = ScriptedModel(list(calls))
            answer = await Agent(model, [wait, servers.toolbox()]).run("Go.")
            offered = [{one.name for one in request.tools} for request in model.requests]
            assert "hanging_echo" not in offered[0] and "hanging_echo" in offered[1]
            assert "hi" in str(answer.messages)

    run(test())


@pytest.mark.finding("RU6")
def test_gateway_offers_the_tools_of_a_slow_server_when_it_is_ready(tmp_path, capsys):
    async def test():
        gated = Gated()
        async with listening(gated) as url:
            entries = {"hanging": {"url": f"{url}/slow", "start_timeout": 0.2}, "good": {"url": f"{url}/fast"}}
            file = tmp_path / "mcp.json"
            file.write_text(json.dumps({"mcpServers": entries}))
            loader = ToolLoader([])
            opened = await loader.prepare(Settings(tools={"*": ToolsRow(mcp=str(file))}))
            loader.activate(opened)
            runner = opened.bindings.runners["*"]
            assert [each.name for each in runner.tools_for_run("r")] == ["echo"]
            assert "hanging: it did not start within 0.2 seconds" in capsys.readouterr().err
            gated.release.set()
            await until(lambda: len(runner.tools_for_run("r")) == 2)
            await loader.aclose()

    run(test())


@pytest.mark.finding("RU6")
def test_rows_of_a_gateway_open_together(tmp_path):
    async def test():
        gated = Gated()
        async with listening(gated) as url:
            rows = {}
            for name in ("slow", "fast"):
                file = tmp_path / f"{name}.json"
                file.write_text(
                    json.dumps({"mcpServers": {name: {"url": f"{url}/{name}", "start_timeout": 9 * SAFETY}}})
                )
                rows[f"{name}-*"] = ToolsRow(mcp=str(file))
            loader = ToolLoader([])
            opening = asyncio.create_task(loader.prepare(Settings(tools=rows)))
            await until(lambda: "/fast" in gated.paths)
            gated.release.set()
            opened = await opening
            assert list(opened.rows) == list(rows)
            for runner in opened.bindings.runners.values():
                assert [each.name for each in runner.tools_for_run("r")] == ["echo"]
            await loader.abandon(opened)
            with pytest.raises(ConfigError, match="missing"):
                await loader.prepare(Settings(tools={**rows, "*": ToolsRow(mcp=str(tmp_path / "missing.json"))}))

    run(test())


@pytest.mark.finding("RU6")
def test_server_that_fails_in_the_background_is_tried_again():
    async def test():
        gated = Gated()
        async with listening(gated) as url:
            slow = ServerSpec("hanging", url=f"{url}/slow", timeout=0.5, start_timeout=0.2)
            async with McpServers([slow]) as servers:
                await until(lambda: "did not initialize within 0.5 seconds" in servers.problems[0].reason)
                gated.release.set()
                await until(lambda: servers.problems == [])

    run(test())


@pytest.mark.finding("RU6")
def test_servers_can_be_closed_while_one_starts():
    async def test():
        async with listening(Gated()) as url, McpServers(specs(url)[:2]) as servers:
            tasks = set(servers._connecting)
        assert len(tasks) == 1
        assert all(task.done() for task in tasks)
        assert not servers._connecting

    run(test())


@pytest.mark.finding("RU6")
def test_server_that_must_be_reachable_is_waited_for():
    async def test():
        gated = Gated()
        async with listening(gated) as url:
            slow = ServerSpec("hanging", url=f"{url}/slow", timeout=0.5, start_timeout=0.2)
            with pytest.raises(ServerGone, match=r"did not initialize within 0\.5 seconds"):
                async with McpServers([slow], strict=True):
                    pass

    run(test())


@pytest.mark.finding("RU6")
def test_a_short_call_timeout_does_not_stop_a_slow_start():
    spec = ServerSpec("s", command="x", timeout=0.5)
    assert (spec.start_timeout, spec.connect_timeout) == (10.0, 10.0)
    with pytest.raises(ConfigError, match="start_timeout of server 's' must be positive, got 0"):
        ServerSpec("s", command="x", start_timeout=0)


@pytest.mark.finding("RU6")
def test_http_server_has_the_longer_timeout_for_its_start(monkeypatch):
    monkeypatch.setattr(http, "_LATER", -29.9)  # a request that ended after `timeout` would end after 0.1 s

    async def test():
        gated = Gated()
        async with listening(gated) as url:
            asyncio.get_running_loop().call_later(0.5, gated.release.set)
            async with McpServers([ServerSpec("s", url=f"{url}/slow", timeout=30.0, start_timeout=SAFETY)]) as servers:
                assert servers.problems == []

    run(test())


@pytest.mark.finding("RU6")
def test_command_lists_the_tools_of_the_other_servers(tmp_path, capsys):
    hanging, healthy = misbehaving("never-greets"), misbehaving()
    servers = {
        name: {"command": spec.command, "args": list(spec.args), "env": spec.env, "start_timeout": seconds}
        for name, spec, seconds in (("hanging", hanging, 1), ("good", healthy, SAFETY))
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    main(["tools", "list", str(file)])
    shown = capsys.readouterr()
    assert "echo" in shown.out
    assert "hanging" in shown.err and "did not start within 1 seconds" in shown.err
