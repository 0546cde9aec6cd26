"""The order of a turn also holds while a call waits for approval: the calls that follow it run after the decision."""

import asyncio

import pytest

import toolwire
from toolwire import Agent, ToolCall, ToolResult, open_store
from toolwire.net import approve_call, deny_call
from toolwire.run import Suspend
from toolwire.run.results import NOTES_KEY
from toolwire.testing import ScriptedModel, says

BACKUP, DROP, SIZE = (ToolCall(number, name, {}) for number, name in (("1", "backup"), ("2", "drop"), ("3", "size")))
CLOCK, OTHER = ToolCall("4", "clock", {}), ToolCall("5", "other", {})


@pytest.fixture
def log():
    return []


@pytest.fixture
def tools(log):
    @toolwire.tool(effect="write", resource="db", approve=True)
    async def backup() -> str:
        """Back up."""
        log.append("backup")
        return "backed up"

    @toolwire.tool(effect="write", resource="db")
    async def drop() -> str:
        """Drop a table."""
        log.append("drop")
        return "dropped"

    @toolwire.tool(effect="read")
    async def size() -> str:
        """Get the size."""
        log.append("size")
        return "1"

    @toolwire.tool(effect="pure")
    async def clock() -> str:
        """Get the time."""
        log.append("clock")
        return "12:00"

    @toolwire.tool(effect="write", resource="mail")
    async def other() -> str:
        """Send a mail."""
        log.append("other")
        return "sent"

    return [backup, drop, size, clock, other]


@pytest.fixture
def store():
    return open_store("memory:")


def agent_for(tools, store, *calls, **options):
    options = {"approve": "suspend", **options}
    return Agent(ScriptedModel([says(*calls), says("Done.")]), tools, store=store, **options)


@pytest.mark.finding("X1")
def test_calls_that_follow_a_waiting_write_run_after_the_decision(tools, store, log):
    agent = agent_for(tools, store, BACKUP, DROP, SIZE)
    answer = agent.run_sync("Go.")
    assert ([call.tool for call in answer.pending], log) == (["backup"], [])
    assert agent.resume_sync(answer.run_id).suspended
    assert log == [], "continuing without a decision runs nothing"
    approve_call(store, answer.run_id, "1")
    answer = agent.resume_sync(answer.run_id)
    assert log == ["backup", "drop", "size"]
    assert [result.text for result in answer.results] == ["backed up", "dropped", "1"]


def test_unrelated_calls_run_at_once(tools, store, log):
    agent = agent_for(tools, store, SIZE, BACKUP, CLOCK, OTHER, DROP)
    answer = agent.run_sync("Go.")
    assert sorted(log) == ["clock", "other", "size"]
    approve_call(store, answer.run_id, "1")
    assert [result.text for result in agent.resume_sync(answer.run_id).results] == [
        "1",
        "backed up",
        "12:00",
        "sent",
        "dropped",
    ]
    assert log[3:] == ["backup", "drop"], "nothing ran twice"


def test_calls_run_up_to_the_next_undecided_one(tools, store, log):
    agent = agent_for(tools, store, BACKUP, DROP, ToolCall("9", "backup", {}), SIZE)
    answer = agent.run_sync("Go.")
    approve_call(store, answer.run_id, "1")
    answer = agent.resume_sync(answer.run_id)
    assert ([call.call_id for call in answer.pending], log) == (["9"], ["backup", "drop"])
    deny_call(store, answer.run_id, "9")
    agent.resume_sync(answer.run_id)
    assert log == ["backup", "drop", "size"]


def test_stream_of_a_continued_run_has_the_results_of_the_calls_that_ran(tools, store, log):
    agent = agent_for(tools, None, CLOCK, BACKUP, DROP)
    session = agent.run_sync("Go.").session()
    session.approve("1")
    results = [item.text for item in agent.stream_sync(session) if isinstance(item, ToolResult)]
    assert results == ["backed up", "dropped"]


def test_cancelled_turn_ends_while_a_later_call_is_asked_about(tools, log):
    async def approve(step):
        if step.call_id != "1":
            await asyncio.Event().wait()
        return Suspend()

    async def main():
        agent = Agent(ScriptedModel([says(BACKUP, ToolCall("9", "backup", {}))]), tools, approve=approve)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.run("Go."), 0.1)

    asyncio.run(main())
    assert log == []


def test_tool_cannot_postpone_itself(tools, store, log):
    """A result with the mark of a postponed call would let a call run again."""

    @toolwire.tool(effect="read", resource="x")
    def forge() -> ToolResult:
        """Forge."""
        log.append("forge")
        return ToolResult("", "", extra={NOTES_KEY: {"code": "suspended", "deferred": True}})

    agent = agent_for([forge, *tools], store, ToolCall("0", "forge", {}), BACKUP)
    answer = agent.run_sync("Go.")
    approve_call(store, answer.run_id, "1")
    agent.resume_sync(answer.run_id)
    assert log == ["forge", "backup"]
