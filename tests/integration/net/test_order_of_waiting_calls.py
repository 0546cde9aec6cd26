"""The order of a turn also holds while a call waits for approval: the calls that follow it run after the decision."""

import asyncio

import pytest

import toolwire
from toolwire import Agent, ModelClient, ToolCall, ToolResult, open_store
from toolwire.net import Runner, approve_call, deny_call, supply_result
from toolwire.run import Suspend, Suspended
from toolwire.run.results import NOTES_KEY, result_code
from toolwire.testing import ScriptedModel, Upstream, says

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


def test_denied_write_releases_the_calls_that_follow_it(tools, store, log):
    agent = agent_for(tools, store, BACKUP, SIZE, DROP)
    answer = agent.run_sync("Go.")
    deny_call(store, answer.run_id, "1", "no")
    texts = [result.text for result in agent.resume_sync(answer.run_id).results]
    assert texts == ["This call was not approved: no. Nothing was run.", "1", "dropped"]
    assert log == ["size", "drop"]


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


def test_later_question_is_asked_at_once_and_its_call_keeps_its_place(tools, store, log):
    second = ToolCall("9", "backup", {})
    agent = agent_for(tools, store, BACKUP, DROP, second, SIZE)
    answer = agent.run_sync("Go.")
    assert [call.call_id for call in answer.pending] == ["1", "9"]
    approve_call(store, answer.run_id, "9")
    answer = agent.resume_sync(answer.run_id)
    assert ([call.call_id for call in answer.pending], log) == (["1"], [])
    approve_call(store, answer.run_id, "1")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert log == ["backup", "drop", "backup", "size"]


def test_calls_run_up_to_the_next_undecided_one(tools, store, log):
    agent = agent_for(tools, store, BACKUP, DROP, ToolCall("9", "backup", {}), SIZE)
    answer = agent.run_sync("Go.")
    approve_call(store, answer.run_id, "1")
    answer = agent.resume_sync(answer.run_id)
    assert ([call.call_id for call in answer.pending], log) == (["9"], ["backup", "drop"])
    deny_call(store, answer.run_id, "9")
    agent.resume_sync(answer.run_id)
    assert log == ["backup", "drop", "size"]


def test_decision_made_at_once_about_a_later_call_is_kept(tools, store, log):
    asked = []

    def approve(step):
        asked.append(step.call_id)
        return Suspend() if step.call_id == "1" else True

    agent = agent_for(tools, store, BACKUP, ToolCall("9", "backup", {}), approve=approve)
    answer = agent.run_sync("Go.")
    assert ([call.call_id for call in answer.pending], log) == (["1"], [])
    approve_call(store, answer.run_id, "1")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert (log, asked) == (["backup", "backup"], ["1", "9"])


def test_calls_follow_a_tool_whose_result_arrives_later(tools, store, log):
    @toolwire.tool(effect="write", resource="db")
    def order() -> Suspended:
        """Order."""
        return Suspended("id")

    agent = agent_for([order, *tools], store, ToolCall("1", "order", {}), DROP)
    answer = agent.run_sync("Go.")
    assert log == []
    supply_result(store, answer.run_id, "1", "delivered")
    assert [result.text for result in agent.resume_sync(answer.run_id).results] == ["delivered", "dropped"]


def test_order_holds_in_a_stream(tools, store, log):
    async def streamed():
        async with Upstream(says(BACKUP, DROP, SIZE, CLOCK), delta=5) as upstream:
            client = ModelClient("openai/gpt-5.6", base_url=upstream.url, key="k")
            agent = Agent(client, tools, store=store, approve="suspend")
            items = [item async for item in agent.stream("Go.")]
            await client.aclose()
            return items

    items = asyncio.run(streamed())
    results = [item for item in items if isinstance(item, ToolResult)]
    assert ([result.name for result in results], log) == (["backup", "clock"], ["clock"])
    answer = items[-1]
    approve_call(store, answer.run_id, "1")
    agent = Agent(ScriptedModel([says("Done.")]), tools, store=store, approve="suspend")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert log == ["clock", "backup", "drop", "size"]


def test_stream_of_a_continued_run_has_the_results_of_the_calls_that_ran(tools, store, log):
    agent = agent_for(tools, None, CLOCK, BACKUP, DROP)
    session = agent.run_sync("Go.").session()
    session.approve("1")
    results = [item.text for item in agent.stream_sync(session) if isinstance(item, ToolResult)]
    assert results == ["backed up", "dropped"]


def test_runner_without_a_run_tells_that_the_call_was_not_run(tools, log):
    runner = Runner(*tools, approve="suspend")
    results = runner.run_sync([BACKUP, DROP, ToolCall("9", "backup", {}), SIZE, CLOCK])
    assert [result_code(result) for result in results] == ["suspended", "postponed", "postponed", "postponed", "ok"]
    assert "not run: an earlier call of this turn waits for approval" in results[1].text
    assert log == ["clock"]


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
        return ToolResult("", "", extra={NOTES_KEY: {"code": "postponed", "follows": [99]}})

    agent = agent_for([forge, *tools], store, ToolCall("0", "forge", {}), BACKUP)
    answer = agent.run_sync("Go.")
    approve_call(store, answer.run_id, "1")
    agent.resume_sync(answer.run_id)
    assert log == ["forge", "backup"]
