"""MCP servers in the agent loop, under a lock, and side by side."""

import asyncio
import json

import pytest

from mcp_client.client_helpers import McpServers, misbehaving, tool_call, toolbox_of, until, workshop
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import ToolCall
from toolwire.mcp.client import stdio
from toolwire.net.agent.agent import Agent
from toolwire.net.tools.runner import Runner
from toolwire.run.values.results import result_code
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY


def run(test):
    return asyncio.run(asyncio.wait_for(test, 2 * SAFETY))


def offered(request):
    return {tool.name for tool in request.tools}


def last_message_texts(request):
    return [part.text for part in request.messages[-1].parts]


def one_turn(*calls):
    return says(*(ToolCall(f"call_{name}{number}", name, arguments) for number, (name, arguments) in enumerate(calls)))


def test_failed_tool_result_is_returned_to_the_model():
    model = ScriptedModel([one_turn(("echo", {"text": "fail"})), says("So it failed.")])

    async def test():
        async with toolbox_of(misbehaving()) as (_, box):
            answer = await Agent(model, box).run("Try it.")
            assert answer.text == "So it failed."

    run(test())
    (result,) = model.requests[1].messages[-1].parts
    assert result.is_error
    assert result.text == "fail"
    assert "echo" in offered(model.requests[1])


def test_protocol_error_withdraws_the_server_and_the_loop_continues():
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
    assert {"echo", "rpc_error", "add"} <= offered(model.requests[0])
    failed, added = last_message_texts(model.requests[1])
    assert "m answered with the error -32603: something broke in here" in failed
    assert "All tools of this server are withdrawn: echo" in failed
    assert added == "3"
    assert {"add", "workshop_pay"} <= offered(model.requests[1])
    assert offered(model.requests[1]).isdisjoint({"echo", "rpc_error", "m_pay", "slow"})
    refused, added = last_message_texts(model.requests[2])
    assert refused.startswith("The tool echo is withdrawn and was not run")
    assert added == "4"


def test_dead_server_is_withdrawn_and_the_loop_continues(monkeypatch):
    monkeypatch.setattr(stdio, "_EXIT_GRACE", SAFETY)
    model = ScriptedModel([one_turn(("die", {}), ("add", {"a": 1, "b": 2})), says("Without it, then.")])

    async def test():
        async with toolbox_of(misbehaving(reconnects=0), workshop(trusted=True)) as (_, box):
            answer = await Agent(model, box).run("Go on.")
            assert answer.text == "Without it, then."

    run(test())
    died, added = last_message_texts(model.requests[1])
    assert "has ended with exit code 3; its standard error: I have had enough" in died
    assert "may have taken effect" in died
    assert added == "3"
    assert "echo" not in offered(model.requests[1])
    assert "add" in offered(model.requests[1])


def test_only_the_tool_unknown_to_the_server_is_withdrawn():
    async def test():
        async with toolbox_of(misbehaving()) as (_, box):
            (result,) = await Runner(box).run([tool_call("wrong_params")])
            assert result_code(result) == "failed"
            assert "-32602: Unknown tool" in result.text
            assert "may have taken effect" not in result.text
            assert "-32602" in box.find("wrong_params").withdrawn
            assert box.find("echo").withdrawn is None

    run(test())


def test_annotations_are_used_only_for_trusted_servers():
    async def test(trusted):
        async with toolbox_of(misbehaving(trusted=trusted)) as (_, box):
            echo = box.find("echo")
            return echo.tool.effect, echo.options.untrusted

    assert run(test(False)) == ("write", True)
    assert run(test(True)) == ("read", False)


def test_tool_names_are_sanitized_and_duplicates_are_prefixed():
    async def test():
        async with toolbox_of(misbehaving(name="one"), misbehaving(name="two"), workshop()) as (_, box):
            names = [entry.name for entry in box]
            results = await Runner(box).run([tool_call("one_echo", text="1"), tool_call("two_echo", text="2")])
            assert [result.text for result in results] == ["1", "2"]
            return names

    names = run(test())
    assert {"one_echo", "two_echo", "add"} <= set(names)
    assert all(name.replace("_", "").replace("-", "").isalnum() for name in names)
    assert len(names) == len(set(names))
    assert [name for name in names if name.startswith("one_not_legal_name_")]


def test_resources_are_offered_as_tools():
    async def test():
        async with toolbox_of(workshop(resources=True)) as (_, box):
            calls = [
                tool_call("workshop_list_resources"),
                tool_call("workshop_read_resource", uri="notes://monday"),
                tool_call("workshop_read_resource", uri="nothing://there"),
            ]
            return [*await Runner(box).run(calls), box.find("workshop_read_resource").tool.effect]

    listed, read, missing, effect = run(test())
    assert effect == "read"
    assert listed.structured[0]["uriTemplate"] == "notes://{day}"
    assert read.text == "notes of monday"
    assert missing.is_error
    assert "Resource not found" in missing.text


def test_changed_and_new_tools_are_withdrawn_by_the_lock(tmp_path):
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
            results = await Runner(box).run([tool_call("echo", text="fine"), tool_call("pay"), tool_call("grow")])
            return words, results

    run(locked())
    words, (fine, changed, new) = run(used())
    assert fine.text == "fine"
    assert [result_code(changed), result_code(new)] == ["withdrawn", "withdrawn"]
    assert 'it differs from the lock: pay: /description: "Pays." → "pay"' in changed.text
    assert "it is not in the lock" in new.text
    assert {"pay", "grow"} <= set(words)


@pytest.mark.finding("X6")
def test_tools_that_a_server_adds_during_a_run_are_offered_last_and_removed_ones_are_refused():
    turns = [
        one_turn(("grow", {}), ("settle", {})),
        one_turn(("shrink", {}), ("settle", {})),
        one_turn(("echo", {"text": "still there?"})),
        says("Done."),
    ]
    model = ScriptedModel(turns)

    async def test():
        async with toolbox_of(misbehaving()) as (servers, box):
            seen = [servers.version]

            async def settle() -> str:
                await until(lambda: servers.version > seen[-1])
                seen.append(servers.version)
                return "settled"

            await Agent(model, [box, settle]).run("Go.")

    run(test())
    before, grown, shrunk, last = ([tool.name for tool in request.tools] for request in model.requests)
    (new,) = set(grown) - set(before)
    assert grown == [*before, new]
    assert shrunk == last == [name for name in grown if name != "echo"]
    assert last_message_texts(model.requests[3])[0].endswith("no longer offers it")


def test_audit_lock_is_accepted(tmp_path):
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


def test_invalid_lock_is_rejected():
    with pytest.raises(ConfigError, match="not a lock"):
        McpServers([], lock={"version": 1})
