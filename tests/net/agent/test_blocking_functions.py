"""Functions of the user that block: an approver that is not async, `reconcile` and `preview` leave the event loop free."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

import toolwire
from tables import every_case
from toolwire import Agent, Policy, Runner, ToolCall, open_store
from toolwire.ir.errors import ConfigError
from toolwire.mcp.server.request_context import ElicitApproval
from toolwire.net.tools.steps import ApproverThread
from toolwire.run.calls.steps import Approve
from toolwire.run.values.results import result_code
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY

ASK = Policy(approve=("write",))
STEP = Approve("pay", {}, "why", "hash", "1", "write")
user: ContextVar[str] = ContextVar("user", default="")


@toolwire.tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def test_a_plain_approver_does_not_stop_other_runs():
    answered = threading.Event()

    def person(step):
        return answered.wait(SAFETY)  # until the other run has ended

    asks = Agent(
        ScriptedModel([says(ToolCall("1", "pay", {"amount": 1})), says("ok")]), [pay], policy=ASK, approve=person
    )
    other = Agent(ScriptedModel([says("hello")]))

    async def test():
        waiting = asyncio.create_task(asks.run("x"))
        await asyncio.sleep(0)
        assert (await other.run("y")).text == "hello"
        answered.set()
        return await waiting

    assert asyncio.run(test()).results[0].text == "paid 1"


def test_a_plain_approver_is_asked_one_question_at_a_time_in_order_and_in_the_context_of_the_call():
    asked, active = [], []

    def person(step):
        assert active == []
        active.append(step)
        asked.append((step.arguments["amount"], user.get(), threading.current_thread() is threading.main_thread()))
        active.pop()
        return True

    runner = Runner(toolwire.tool(effect="read", approve=True)(pay.function), approve=person)

    async def test():
        user.set("alice")
        return await runner.run([ToolCall(str(number), "pay", {"amount": number}) for number in range(8)])

    results = asyncio.run(test())
    assert [result.text for result in results] == [f"paid {number}" for number in range(8)]
    assert asked == [(number, "alice", False) for number in range(8)]


@pytest.mark.parametrize("error", [StopIteration("no"), SystemExit("no"), KeyboardInterrupt("no"), ValueError("no")])
def test_an_approver_that_raises_fails_only_its_call(error):
    def person(step):
        raise error

    runner = Runner(pay, policy=ASK, approve=person)
    (result,) = runner.run_sync([ToolCall("1", "pay", {"amount": 1})])
    assert result_code(result) == "failed"
    assert "pay could not be run" in result.text


def test_a_coroutine_that_a_plain_approver_returns_is_awaited_on_the_event_loop():
    async def decide(loop):
        return asyncio.get_running_loop() is loop

    async def test():
        loop = asyncio.get_running_loop()
        return await ApproverThread(lambda step: decide(loop)).ask(STEP)

    assert asyncio.run(test()) is True


def test_a_cancelled_run_does_not_wait_for_its_approver():
    asked, answered = threading.Event(), threading.Event()
    questions = []

    def person(step):
        questions.append(step.call_id)
        asked.set()
        answered.wait(SAFETY)
        return True

    runner = Runner(pay, policy=ASK, approve=person)

    async def test():
        first = asyncio.create_task(runner.run([ToolCall("1", "pay", {"amount": 1})]))
        await asyncio.to_thread(asked.wait, SAFETY)
        second = asyncio.create_task(runner.run([ToolCall("2", "pay", {"amount": 2})]))
        await asyncio.sleep(0.01)
        for task in (first, second):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        answered.set()
        return await runner.run([ToolCall("3", "pay", {"amount": 3})])

    assert asyncio.run(test())[0].text == "paid 3"
    assert questions == ["1", "3"]  # the second question had not begun


def test_the_fallback_of_elicited_approvals_runs_in_a_thread():
    threads = []

    def person(step):
        threads.append(threading.current_thread())
        return True

    assert asyncio.run(ElicitApproval(person)(STEP)) is True
    assert threads != [threading.main_thread()]
    assert asyncio.run(ElicitApproval()(STEP)) is False


def unknown_outcome(reconcile):
    """Return the result of a repeated call whose first outcome is unknown."""
    store = open_store("memory:")
    attempts = []

    @toolwire.tool(key=lambda arguments: "k", reconcile=reconcile, timeout=None)
    async def charge(amount: int) -> str:
        attempts.append(amount)
        raise ConnectionResetError("connection lost")

    async def test():
        runner = Runner(charge, store=store)
        await runner.run([ToolCall("1", "charge", {"amount": 1})])
        (result,) = await runner.run([ToolCall("2", "charge", {"amount": 1})])
        runner.close()
        return result

    result = asyncio.run(test())
    assert attempts == [1]
    return result


def test_a_plain_reconcile_function_runs_in_a_thread():
    threads = []

    def reconcile(key, arguments):
        threads.append(threading.current_thread())
        return f"charged {arguments['amount']}"

    assert unknown_outcome(reconcile).text == "charged 1"
    assert threads[0] is not threading.main_thread()


def test_an_async_reconcile_function_and_a_returned_coroutine_run_on_the_event_loop():
    threads = []

    async def reconcile(key, arguments):
        threads.append(threading.current_thread())
        return f"charged {arguments['amount']}"

    assert unknown_outcome(reconcile).text == "charged 1"
    assert unknown_outcome(lambda key, arguments: reconcile(key, arguments)).text == "charged 1"
    assert threads == [threading.main_thread()] * 2


def test_a_reconcile_function_that_raises_leaves_the_outcome_unknown():
    def reconcile(key, arguments):
        raise SystemExit("no")

    assert result_code(unknown_outcome(reconcile)) == "outcome_unknown"


def test_a_plain_preview_runs_in_a_thread():
    threads = []

    def preview(amount: int) -> str:
        threads.append(threading.current_thread())
        return f"would pay {amount}"

    runner = Runner(toolwire.tool(name="pay", preview=preview)(pay.function), dry_run=True)

    async def test():
        return await runner.run([ToolCall("1", "pay", {"amount": 1})])

    (result,) = asyncio.run(test())
    assert "would pay 1" in result.text
    assert threads[0] is not threading.main_thread()


@every_case("name", ["max_parallel", "max_per_turn", "threads"])
@every_case(
    ("value", "problem"), [(0, "must be at least 1, got 0"), (-1, "got -1"), (1.5, "an integer"), (True, "an integer")]
)
def test_limits_of_a_runner_must_be_positive(name, value, problem):
    with pytest.raises(ConfigError, match=f"{name} must be .*{problem.removeprefix('must be ')}"):
        Runner(pay, **{name: value})


def test_the_limit_of_an_agent_must_be_positive():
    with pytest.raises(ConfigError, match="max_parallel must be at least 1, got 0"):
        Agent(ScriptedModel([]), [pay], max_parallel=0)
