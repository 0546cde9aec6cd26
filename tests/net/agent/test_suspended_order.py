"""The order of the calls of a turn in which some wait for a decision."""

import pytest

import toolwire
from toolwire import Agent, ToolCall, open_store
from toolwire.net import Auxiliary, Runner, approve_call, deny_call, supply_result
from toolwire.run import Suspend, Suspended
from toolwire.run.values.results import result_code
from toolwire.testing import ScriptedModel, says

CALLS = tuple(ToolCall(name, name, {}) for name in ("backup", "drop", "size", "add"))


@pytest.fixture
def store():
    return open_store("memory:")


@pytest.fixture
def log():
    return []


@pytest.fixture
def tools(log):
    @toolwire.tool(effect="write", approve=True)
    async def backup() -> str:
        """Copy the data."""
        log.append("backup")
        return "copied"

    @toolwire.tool(effect="write")
    async def drop() -> str:
        """Delete the data."""
        log.append("drop")
        return "gone"

    @toolwire.tool(effect="read")
    async def size() -> str:
        """Return the size of the data."""
        log.append("size")
        return "0"

    @toolwire.tool(effect="pure")
    async def add() -> str:
        """Add numbers."""
        log.append("add")
        return "3"

    return [backup, drop, size, add]


def run(agent, streamed):
    return [*agent.stream_sync("Go.")][-1] if streamed else agent.run_sync("Go.")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("is_approved", [True, False])
def test_calls_after_a_waiting_write_run_after_its_decision(store, log, tools, streamed, is_approved):
    agent = Agent(ScriptedModel([says(*CALLS), says("Done.")]), tools, store=store, approve="suspend")
    answer = run(agent, streamed)
    assert [call.call_id for call in answer.pending] == ["backup"]
    assert log == ["add"], "a pure call waits for nothing"
    assert agent.resume_sync(answer.run_id).suspended
    assert log == ["add"]
    (approve_call if is_approved else deny_call)(store, answer.run_id, "backup")
    answer = agent.resume_sync(answer.run_id)
    assert log == ["add", *(["backup"] if is_approved else []), "drop", "size"]
    assert [result.text for result in answer.results][1:] == ["gone", "0", "3"]


def test_questions_of_a_turn_are_asked_at_once_and_run_in_order(store, log, tools):
    twice = says(ToolCall("1", "backup", {}), ToolCall("2", "drop", {}), ToolCall("3", "backup", {}))
    agent = Agent(ScriptedModel([twice, says("Done.")]), tools, store=store, approve="suspend")
    answer = agent.run_sync("Go.")
    assert [call.call_id for call in answer.pending] == ["1", "3"]
    approve_call(store, answer.run_id, "3")
    assert [call.call_id for call in agent.resume_sync(answer.run_id).pending] == ["1"]
    assert log == []
    approve_call(store, answer.run_id, "1")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert log == ["backup", "drop", "backup"]


def test_call_on_another_resource_does_not_wait(store, log):
    @toolwire.tool(effect="write", approve=True, resource="a")
    def first() -> str:
        """Change a."""
        return ""

    @toolwire.tool(effect="write", resource="b")
    def second() -> str:
        """Change b."""
        log.append("second")
        return ""

    lines = [says(ToolCall("1", "first", {}), ToolCall("2", "second", {}))]
    assert Agent(ScriptedModel(lines), [first, second], store=store, approve="suspend").run_sync("Go.").suspended
    assert log == ["second"]


def test_calls_after_a_tool_that_suspended_itself_wait_for_its_result(store, log, tools):
    @toolwire.tool(effect="write")
    def order() -> Suspended:
        """Order."""
        log.append("order")
        return Suspended()

    lines = [says(ToolCall("o", "order", {}), *CALLS[1:]), says("Done.")]
    agent = Agent(ScriptedModel(lines), [order, *tools], store=store)
    run_id = agent.run_sync("Go.").run_id
    assert log == ["order", "add"] or log == ["add", "order"]
    supply_result(store, run_id, "o", "delivered")
    assert agent.resume_sync(run_id).output == "Done."
    assert log[2:] == ["drop", "size"]


def test_expired_question_keeps_the_order(store, log, tools):
    agent = Agent(ScriptedModel([says(*CALLS), says("Done.")]), tools, store=store, approve=lambda _: Suspend(ttl=1e-9))
    run_id = agent.run_sync("Go.").run_id
    assert agent.resume_sync(run_id).suspended
    assert log == ["add"]
    allowing = Agent(ScriptedModel([says("Done.")]), tools, store=store, approve=lambda _: True)
    assert allowing.resume_sync(run_id).output == "Done."
    assert log == ["add", "backup", "drop", "size"]


def test_runner_without_a_session_reports_the_calls_that_were_not_run(log, tools):
    results = Runner(*tools, approve="suspend").run_sync(CALLS)
    assert [result_code(result) for result in results] == ["suspended", "suspended", "suspended", "ok"]
    assert (
        results[1].text
        == "This call was not run, because an earlier call of the turn waits. Repeat it after that call."
    )
    assert log == ["add"]


def test_call_after_a_waiting_one_is_not_repaired_and_run_before_it(store, log):
    @toolwire.tool(effect="write", approve=True)
    def change() -> str:
        """Change."""
        return ""

    @toolwire.tool(effect="read")
    def look(number: int) -> str:
        """Look."""
        log.append(number)
        return ""

    auxiliary = ScriptedModel([says(ToolCall("1", "look", {"number": 5}))])
    lines = [says(ToolCall("c", "change", {}), ToolCall("l", "look", {"number": "five"})), says("Done.")]
    agent = Agent(ScriptedModel(lines), [change, look], store=store, approve="suspend", auxiliary=Auxiliary(auxiliary))
    assert agent.run_sync("Go.").suspended
    assert (log, auxiliary.requests) == ([], [])
