"""The order of a turn also holds while a call waits for approval: the calls that follow it run after the decision."""

import asyncio

import pytest

import toolwire
from toolwire import Agent, ToolCall, ToolResult, open_store
from toolwire.ir.errors import ConfigError
from toolwire.net import Runner, StoredApprovals, approve_call, deny_call
from toolwire.run import Approved, Suspend
from toolwire.run.values.results import NOTES_KEY, result_code
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


@pytest.mark.parametrize("reply", [True, Approved({"times": 2})])
def test_decision_made_at_once_about_a_later_call_is_kept(store, log, reply):
    asked = []

    @toolwire.tool(effect="write", approve=True)
    def pay(times: int) -> str:
        """Pay."""
        log.append(times)
        return ""

    def approve(step):
        asked.append(step.call_id)
        return Suspend() if step.call_id == "1" else reply

    agent = agent_for(
        [pay], store, ToolCall("1", "pay", {"times": 1}), ToolCall("9", "pay", {"times": 1}), approve=approve
    )
    answer = agent.run_sync("Go.")
    assert ([call.call_id for call in answer.pending], log) == (["1"], [])
    assert store.runs.get(answer.run_id).status == "waiting"
    assert agent.resume_sync(answer.run_id).suspended
    approve_call(store, answer.run_id, "1")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert (log, asked) == ([1, 1 if reply is True else 2], ["1", "9"])


def test_approval_of_a_server_is_not_used_up_by_a_call_that_does_not_run(tools, store, log):
    """Without a run that keeps the decision, a call is only asked about when it may run."""

    @toolwire.tool(effect="write", approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        log.append(amount)
        return f"paid {amount}"

    runner = Runner(pay, approve=StoredApprovals(store.runs))
    first, second = (ToolCall(f"c{amount}", "pay", {"amount": amount}) for amount in (1, 2))
    runner.run_sync([second])
    (question,) = store.runs.list("waiting")
    approve_call(store, question.run_id, "c2")
    assert [result_code(result) for result in runner.run_sync([first, second])] == ["suspended", "suspended"]
    (question,) = store.runs.list("waiting")
    approve_call(store, question.run_id, "c1")
    assert [result.text for result in runner.run_sync([first, second])] == ["paid 1", "paid 2"]


@pytest.mark.parametrize("by_session", [False, True])
def test_approval_is_withdrawn_until_a_process_has_started_the_call(store, log, by_session):
    """The run is cancelled while the call runs, and not saved: nobody may report that nothing was run."""
    started = asyncio.Event()

    @toolwire.tool(effect="write", approve=True)
    async def pay() -> str:
        """Pay."""
        started.set()
        await asyncio.sleep(0.01)
        log.append("pay")
        return "paid"

    async def cancel(work):
        task = asyncio.create_task(work)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    agent = agent_for([pay], store, ToolCall("1", "pay", {}))
    answer = agent.run_sync("Go.")
    approve_call(store, answer.run_id, "1")
    deny_call(store, answer.run_id, "1")
    assert agent.resume_sync(answer.run_id).results[0].text.endswith("Nothing was run.")

    agent = agent_for([pay], store, ToolCall("1", "pay", {}))
    answer = agent.run_sync("Go.")
    session = answer.session()
    session.approve("1")
    if not by_session:
        approve_call(store, answer.run_id, "1")
    asyncio.run(cancel(agent.run(session) if by_session else agent.resume(answer.run_id)))
    assert log == ["pay"]
    for decide in (approve_call, deny_call):
        with pytest.raises(ConfigError, match=r"has started|already approved"):
            decide(store, answer.run_id, "1")
    assert [result.text for result in agent.resume_sync(answer.run_id).results] == ["paid"]
    assert log == ["pay"]
