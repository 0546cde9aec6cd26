"""MCP servers in the agent loop, under a lock, and side by side."""

import asyncio
import json

import pytest

from mcp_client.driving import McpServers, asked, misbehaving, toolbox_of, workshop
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import ToolCall
from toolwire.net.agent import Agent
from toolwire.net.runner import Runner
from toolwire.run.results import result_code
from toolwire.testing import ScriptedModel, says


def run(test):
    return asyncio.run(asyncio.wait_for(test, 60))


def offered(request):
    return {tool.name for tool in request.tools}


def last_words(request):
    return [part.text for part in request.messages[-1].parts]


def one_turn(*calls):
    return says(*(ToolCall(f"call_{name}{number}", name, arguments) for number, (name, arguments) in enumerate(calls)))


def test_a_tool_that_failed_is_a_result_that_the_model_reads():
    model = ScriptedModel([one_turn(("echo", {"text": "fail"})), says("So it failed.")])

    async def test():
        async with toolbox_of(misbehaving()) as (_, box):
            answer = await Agent(model, box).run("Try it.")
            assert answer.text == "So it failed."

    run(test())
    (result,) = model.heard[1].messages[-1].parts
    assert result.is_error
    assert result.text == "fail"
    assert "echo" in offered(model.heard[1])


def test_an_error_of_the_protocol_withdraws_the_server_and_the_loop_goes_on():
    model = ScriptedModel(
        [
            one_turn(("rpc_error", {}), ("add", {"a": 1, "b": 2})),
            one_turn(("echo", {"text": "hello?"}), ("add", {"a": 2, "b": 2})),
            says("Four."),
        ]
    )

    async def test():
        async with toolbox_of(misbehaving(), workshop(trusted=True)) as (servers, box):
            answer = await Agent(model, box).run("Go on.")
            assert answer.text == "Four."
            assert "error -32603: something broke in here" in servers.problems[0].reason
            await servers.restore("m")
            assert box.find("echo").withdrawn is None

    run(test())
    assert {"echo", "rpc_error", "add"} <= offered(model.heard[0])
    failed, added = last_words(model.heard[1])
    assert "m answered with the error -32603: something broke in here" in failed
    assert "All tools of this server are withdrawn: echo" in failed
    assert added == "3"
    assert {"add", "workshop_pay"} <= offered(model.heard[1])
    assert offered(model.heard[1]).isdisjoint({"echo", "rpc_error", "m_pay", "slow"})
    refused, added = last_words(model.heard[2])
    assert refused.startswith("The tool echo is withdrawn and was not run")
    assert added == "4"


def test_a_server_that_dies_is_withdrawn_and_the_loop_goes_on():
    model = ScriptedModel([one_turn(("die", {}), ("add", {"a": 1, "b": 2})), says("Without it, then.")])

    async def test():
        async with toolbox_of(misbehaving(reconnects=0), workshop(trusted=True)) as (_, box):
            answer = await Agent(model, box).run("Go on.")
            assert answer.text == "Without it, then."

    run(test())
    died, added = last_words(model.heard[1])
    assert "ServerGone: m has ended; its standard error: I have had enough" in died
    assert "may have taken effect" in died
    assert added == "3"
    assert "echo" not in offered(model.heard[1])
    assert "add" in offered(model.heard[1])


def test_a_tool_that_the_server_does_not_know_is_withdrawn_alone():
    async def test():
        async with toolbox_of(misbehaving()) as (_, box):
            (result,) = await Runner(box).run([asked("wrong_params")])
            assert result_code(result) == "failed"
            assert "-32602: Unknown tool" in result.text
            assert "may have taken effect" not in result.text
            assert "-32602" in box.find("wrong_params").withdrawn
            assert box.find("echo").withdrawn is None

    run(test())


def test_hints_count_only_where_the_server_is_trusted():
    async def test(trusted):
        async with toolbox_of(misbehaving(trusted=trusted)) as (_, box):
            echo = box.find("echo")
            return echo.tool.effect, echo.options.untrusted

    assert run(test(False)) == ("write", True)
    assert run(test(True)) == ("read", False)


def test_names_are_legal_and_clashes_get_their_server_in_front():
    async def test():
        async with toolbox_of(misbehaving(name="one"), misbehaving(name="two"), workshop()) as (_, box):
            names = [entry.name for entry in box]
            results = await Runner(box).run([asked("one_echo", text="1"), asked("two_echo", text="2")])
            assert [result.text for result in results] == ["1", "2"]
            return names

    names = run(test())
    assert {"one_echo", "two_echo", "add"} <= set(names)
    assert all(name.replace("_", "").replace("-", "").isalnum() for name in names)
    assert len(names) == len(set(names))
    assert [name for name in names if name.startswith("one_not_legal_name_")]


def test_resources_as_tools():
    async def test():
        async with toolbox_of(workshop(resources=True)) as (_, box):
            calls = [
                asked("workshop_list_resources"),
                asked("workshop_read_resource", uri="notes://monday"),
                asked("workshop_read_resource", uri="nothing://there"),
            ]
            return [*await Runner(box).run(calls), box.find("workshop_read_resource").tool.effect]

    listed, read, missing, effect = run(test())
    assert effect == "read"
    assert listed.structured[0]["uriTemplate"] == "notes://{day}"
    assert read.text == "notes of monday"
    assert missing.is_error
    assert "Resource not found" in missing.text


def test_only_tools_that_are_what_they_were_pass_the_lock(tmp_path):
    file = tmp_path / "tools.lock"

    async def locked():
        async with toolbox_of(misbehaving()) as (servers, _):
            lock = servers.lock()
        lock["tools"]["pay"]["sha256"] = "0" * 64
        lock["tools"]["pay"]["description"] = "Pays."
        del lock["tools"]["grow"]
        file.write_text(json.dumps(lock), encoding="utf-8")

    async def used():
        async with toolbox_of(misbehaving(), lock=file) as (servers, box):
            words = {problem.tool: problem.reason for problem in servers.problems}
            results = await Runner(box).run([asked("echo", text="fine"), asked("pay"), asked("grow")])
            return words, results

    run(locked())
    words, (fine, changed, new) = run(used())
    assert fine.text == "fine"
    assert [result_code(changed), result_code(new)] == ["withdrawn", "withdrawn"]
    assert 'it differs from the lock: pay: /description: "Pays." → "pay"' in changed.text
    assert "it is not in the lock" in new.text
    assert {"pay", "grow"} <= set(words)


def test_a_lock_of_the_audit_is_a_lock(tmp_path):
    """What `toolwire audit --lock` writes for a saved `tools/list`."""
    from toolwire.audit.lock import lock
    from toolwire.ir.tools import Tool

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def test():
        locked = lock([Tool("echo", "Says it again.", schema)])
        async with toolbox_of(misbehaving(tools=("echo",)), lock=locked) as (servers, box):
            assert box.find("echo").withdrawn is None
            assert not any(problem.tool == "echo" and "lock" in problem.reason for problem in servers.problems)

    run(test())


def test_a_lock_that_is_none():
    with pytest.raises(ConfigError, match="not a lock"):
        McpServers([], lock={"version": 1})
