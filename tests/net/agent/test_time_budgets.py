"""`Budget(seconds)` also limits the tools of a run: reads are interrupted, writes that have begun are awaited."""

import asyncio

import pytest

import toolwire
from toolwire import Agent, Budget, Policy, ToolCall, open_store
from toolwire.net import approve_call
from toolwire.run.values.results import result_code
from toolwire.testing import ScriptedModel, says

LIMIT = "max time reached (10 seconds)"


class Tools:
    """Tools that take an hour, a minute, and no time."""

    def __init__(self):
        self.log = []

        @toolwire.tool(effect="read", timeout=None)
        async def look() -> str:
            self.log.append("look")
            try:
                await asyncio.sleep(3600)
            finally:
                self.log.append("look ends")
            return "seen"

        @toolwire.tool(effect="write", timeout=None)
        async def pay() -> str:
            self.log.append("pay")
            await asyncio.sleep(60)
            self.log.append("paid")
            return "paid"

        @toolwire.tool(effect="read")
        async def glance() -> str:
            self.log.append("glance")
            return "glanced"

        self.all = [look, pay, glance]


def calls(*names):
    return says(*(ToolCall(name, name, {}) for name in names))


async def last_item(items):
    return [item async for item in items][-1]


@pytest.fixture(params=["run", "stream"])
def perform(request, virtual_time):
    """Run a prompt on a virtual clock, whole or streamed."""

    def run(agent):
        work = agent.run("Go.") if request.param == "run" else last_item(agent.stream("Go."))
        return asyncio.run(work)

    return run


def test_reads_are_cancelled_and_other_calls_keep_their_results(perform):
    tools = Tools()
    model = ScriptedModel([calls("look", "glance"), says("never")])
    answer = perform(Agent(model, tools.all, budget=Budget(seconds=10)))
    assert answer.reason == LIMIT
    assert [result_code(result) for result in answer.results] == ["cancelled", "ok"]
    assert sorted(tools.log) == ["glance", "look", "look ends"]
    assert len(model.requests) == 1


def test_a_single_read_is_cancelled(perform):
    tools = Tools()
    answer = perform(Agent(ScriptedModel([calls("look"), says("never")]), tools.all, budget=Budget(seconds=10)))
    assert (answer.reason, tools.log) == (LIMIT, ["look", "look ends"])


def test_a_write_that_has_begun_is_awaited_and_the_next_one_does_not_start(perform):
    tools = Tools()
    script = [says(ToolCall("1", "pay", {}), ToolCall("2", "pay", {})), says("never")]
    answer = perform(Agent(ScriptedModel(script), tools.all, budget=Budget(seconds=10)))
    assert answer.reason == LIMIT
    assert [result_code(result) for result in answer.results] == ["ok", "cancelled"]
    assert tools.log == ["pay", "paid"]


def test_the_limit_of_the_calling_run_cancels_the_tools_of_a_subagent(perform):
    tools = Tools()
    subagent = Agent(ScriptedModel([calls("look"), says("never")]), tools.all, name="sub").as_tool()
    script = [says(ToolCall("1", "sub", {"prompt": "x"})), says("never")]
    answer = perform(Agent(ScriptedModel(script), [subagent], budget=Budget(seconds=10)))
    assert "sub did not finish: max time reached" in answer.results[0].text
    assert tools.log == ["look", "look ends"]


def test_tools_without_a_time_limit_are_not_interrupted(perform):
    tools = Tools()
    answer = perform(Agent(ScriptedModel([calls("look"), says("done")]), tools.all))
    assert answer.results[0].text == "seen"
    assert answer.text == "done"


def test_an_approved_call_runs_although_the_run_waited_longer_than_its_budget(monkeypatch):
    store = open_store("memory:")
    paid = []

    @toolwire.tool
    async def pay() -> str:
        paid.append(1)
        return "paid"

    agent = Agent(
        ScriptedModel([calls("pay"), says("done")]),
        [pay],
        policy=Policy(approve=("write",)),
        approve="suspend",
        store=store,
        budget=Budget(seconds=10),
    )
    answer = agent.run_sync("Go.")
    session = answer.session()
    approve_call(store, answer.run_id, "pay")
    started = session.state.started
    monkeypatch.setattr("time.time", lambda: started + 3600)
    assert agent.resume_sync(answer.run_id).text == "done"
    assert paid == [1]
