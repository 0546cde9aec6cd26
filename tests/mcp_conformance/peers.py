"""Our client with other people's servers, as processes: from npm and from PyPI. Run by run_client.py, which installs them."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from toolwire.ir.parts import Media, ToolCall
from toolwire.mcp.client import Handlers, McpClient, McpServers, ServerSpec, accept_defaults
from toolwire.net.agent.agent import Agent
from toolwire.net.tools.runner import Runner
from toolwire.testing import ScriptedModel, says

NODE = Path(__file__).parents[2] / ".node"
MODULES = NODE / "node_modules" / "@modelcontextprotocol"


def run(test):
    return asyncio.run(asyncio.wait_for(test, 120))


def in_node(name, *arguments, **settings):
    program = str(NODE / "node_modules" / ".bin" / "node")
    return ServerSpec(
        name, command=program, args=(str(MODULES / f"server-{name}" / "dist" / "index.js"), *arguments), **settings
    )


def in_python(name, *arguments, **settings):
    place = NODE / ("older-python" if name == "sqlite" else "python") / "bin"
    return ServerSpec(name, command=str(place / f"mcp-server-{name}"), args=arguments, **settings)


def tool_call(name, /, **arguments):
    return ToolCall(f"call_{name}", name, arguments)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "note.txt").write_text("milk and eggs", encoding="utf-8")
    return tmp_path


def test_everything():
    seen = []

    async def test():
        spec = in_node("everything", trusted=True)
        handlers = Handlers(elicit=accept_defaults, sample=_sampled, roots=list)
        async with McpClient(spec, handlers=handlers, watch=lambda *one: seen.append(one)) as client:
            assert not client.problems
            assert (await client.call(tool_call("echo", message="hi"))).text == "Echo: hi"
            assert "5" in (await client.call(tool_call("get-sum", a=2, b=3))).text
            image = await client.call(tool_call("get-tiny-image"))
            assert any(isinstance(part, Media) and part.kind == "image" for part in image.parts)
            structured = await client.call(tool_call("get-structured-content", location="New York"))
            assert set(structured.structured) == {"temperature", "conditions", "humidity"}
            await client.call(tool_call("trigger-long-running-operation", duration=1, steps=2))
            resources = await client.resources()
            assert (await client.read(resources[0]["uri"]))[0]["uri"] == resources[0]["uri"]
            assert await client.prompts()
            return client.greeting.version

    assert run(test()) in ("2025-11-25", "2026-07-28")
    assert [progress.progress for _, progress in seen] == [1, 2]


@pytest.mark.finding("U2")
def test_everything_server_lists_the_same_tools_twenty_times():
    """It announces a change of its tools as soon as it has been greeted."""

    async def names():
        async with McpServers([in_node("everything")], strict=True) as servers:
            return [tool.name for tool in servers.toolbox().tools]

    async def test():
        return [await names() for _ in range(20)]

    found = run(test())
    assert len(found[0]) > 10
    assert found == [found[0]] * 20


def _sampled(_):
    return {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "none", "stopReason": "endTurn"}


def test_filesystem(folder):
    async def test():
        async with McpServers([in_node("filesystem", str(folder), trusted=True)]) as servers:
            assert not servers.problems
            box = servers.toolbox()
            assert box.find("read_text_file").tool.effect == "read"
            assert box.find("write_file").tool.effect in ("write", "idempotent")
            runner = Runner(box)
            results = await runner.run(
                [
                    tool_call("read_text_file", path=str(folder / "note.txt")),
                    tool_call("write_file", path=str(folder / "new.txt"), content="tea"),
                    tool_call("read_text_file", path="/etc/passwd"),
                ]
            )
            return [(result.is_error, result.text) for result in results]

    read, written, denied = run(test())
    assert read == (False, "milk and eggs")
    assert not written[0]
    assert (folder / "new.txt").read_text() == "tea"
    assert denied[0]
    assert "denied" in denied[1].lower()


def test_memory_in_the_agent_loop(tmp_path):
    entities = [{"name": "Ada", "entityType": "person", "observations": ["likes tea"]}]
    model = ScriptedModel(
        [
            says(tool_call("create_entities", entities=entities)),
            says(tool_call("search_nodes", query="tea")),
            lambda request: says("Ada does." if "Ada" in request.messages[-1].parts[0].text else "Nobody."),
        ]
    )

    async def test():
        spec = in_node("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")})
        async with McpServers([spec]) as servers:
            return await Agent(model, servers.toolbox()).run("Who likes tea?")

    assert run(test()).text == "Ada does."


def test_time():
    async def test():
        async with McpClient(in_python("time", "--local-timezone", "UTC")) as client:
            now = await client.call(tool_call("get_current_time", timezone="Europe/Paris"))
            wrong = await client.call(tool_call("get_current_time", timezone="Nowhere/Land"))
            return now, wrong

    now, wrong = run(test())
    assert "Europe/Paris" in now.text
    assert wrong.is_error


def test_git(folder):
    for line in ("init -q", "config user.email a@example.com", "config user.name A", "add .", "commit -qm first"):
        subprocess.run(["git", *line.split()], cwd=folder, check=True)

    async def test():
        async with McpClient(in_python("git", "--repository", str(folder))) as client:
            assert not client.problems
            log = await client.call(tool_call("git_log", repo_path=str(folder)))
            (folder / "note.txt").write_text("milk", encoding="utf-8")
            return log.text, (await client.call(tool_call("git_diff_unstaged", repo_path=str(folder)))).text

    log, diff = run(test())
    assert "first" in log
    assert "-milk and eggs" in diff


def test_sqlite(tmp_path):
    async def test():
        async with McpServers([in_python("sqlite", "--db-path", str(tmp_path / "a.db"), resources=True)]) as servers:
            box = servers.toolbox()
            results = await Runner(box).run(
                [
                    tool_call("create_table", query="CREATE TABLE tea (name TEXT)"),
                    tool_call("write_query", query="INSERT INTO tea VALUES ('green')"),
                    tool_call("read_query", query="SELECT name FROM tea"),
                    tool_call("read_query", query="SELECT nonsense"),
                    tool_call("sqlite_list_resources"),
                    tool_call("sqlite_read_resource", uri="memo://insights"),
                ]
            )
            return [result.text for result in results]

    _, _, read, wrong, listed, memo = run(test())
    assert "green" in read
    assert "no such column" in wrong
    assert "memo://insights" in listed
    assert "insights" in memo.lower()


def test_all_servers_form_one_toolbox(folder):
    async def test():
        specs = [
            in_node("everything"),
            in_node("filesystem", str(folder)),
            in_node("memory", env={"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
            in_python("time"),
            in_python("git"),
            in_python("sqlite", "--db-path", str(folder / "a.db")),
        ]
        async with McpServers(specs) as servers:
            return len(servers.toolbox()), [str(problem) for problem in servers.problems]

    count, problems = run(test())
    assert problems == []
    assert count > 50
