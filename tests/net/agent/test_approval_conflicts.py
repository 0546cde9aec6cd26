"""Decisions that could reach another call, another process or another agent than the one that was asked about."""

import asyncio
import math
import threading
import time

import pytest

import toolwire
from toolwire import Agent, ToolCall, open_store
from toolwire.cli.agent.output import describe_waiting
from toolwire.ir.errors import ConfigError
from toolwire.net import Answer, Auxiliary, Runner, StoredApprovals, approve_call, deny_call
from toolwire.run import Approved, Policy, RunConflict, Session, Suspend
from toolwire.run.values.results import annotate, result_code
from toolwire.run.values.waiting import WaitingCall
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY

POLICY = Policy(approve=("write",))
PAY = ToolCall("c", "pay", {"amount": 5})


@pytest.fixture
def log():
    return []


@pytest.fixture
def pay(log):
    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay an amount."""
        log.append(amount)
        return f"paid {amount}"

    return pay


@pytest.fixture
def look(log):
    @toolwire.tool(effect="read", approve=True)
    def look(number: int) -> str:
        """Look at a number."""
        log.append(number)
        return f"saw {number}"

    return look


@pytest.fixture
def store():
    return open_store("memory:")


def suspending(lines, tools, store=None, **options):
    options = {"policy": POLICY, "approve": "suspend", **options}
    return Agent(ScriptedModel(lines), tools, store=store, **options)


@pytest.mark.parametrize("streamed", [False, True])
def test_decision_about_a_repeated_id_reaches_one_call(store, log, pay, streamed):
    twice = says(PAY, ToolCall("c", "pay", {"amount": 5000}))
    agent = suspending([twice, says("Ok.")], [pay], store)
    answer = [*agent.stream_sync("Pay.")][-1] if streamed else agent.run_sync("Pay.")
    assert isinstance(answer, Answer)
    assert [(call.call_id, call.arguments) for call in answer.pending] == [
        ("c", {"amount": 5}),
        ("c_2", {"amount": 5000}),
    ]
    approve_call(store, answer.run_id, "c")
    with pytest.raises(ConfigError, match="call 'c' was already approved"):
        approve_call(store, answer.run_id, "c")
    deny_call(store, answer.run_id, "c_2")
    assert agent.resume_sync(answer.run_id).finished
    assert log == [5]
    parts = [part for message in agent.model.requests[-1].messages for part in message.parts]
    assert [part.id for part in parts if isinstance(part, ToolCall)] == ["c", "c_2"]
    assert [part.call_id for part in parts if isinstance(part, toolwire.ToolResult)] == ["c", "c_2"]


def test_late_decision_does_not_reach_a_call_of_the_next_turn_with_the_same_id(store, log, pay):
    agent = suspending([says(PAY), says(ToolCall("c", "pay", {"amount": 5000})), says("Ok.")], [pay], store)
    run_id = agent.run_sync("Pay.").run_id
    approve_call(store, run_id, "c")
    assert agent.resume_sync(run_id).pending[0].call_id == "c_2"
    with pytest.raises(ConfigError, match="no call 'c' is waiting"):
        approve_call(store, run_id, "c")
    assert log == [5]


def test_repaired_call_waits_and_runs_once_it_is_approved(store, log, look):
    """Only the first answer of the auxiliary model is used: the approved arguments are those that run."""
    auxiliary = ScriptedModel([says(ToolCall("1", "look", {"number": n})) for n in (5, 6)])
    calls = says(ToolCall("c", "look", {"number": "five"}), ToolCall("d", "look", {"number": 1}))
    agent = suspending([calls, says("Ok.")], [look], store, auxiliary=Auxiliary(auxiliary))
    answer = agent.run_sync("Look.")
    assert [call.arguments for call in answer.pending] == [{"number": 5}, {"number": 1}]
    approve_call(store, answer.run_id, "c")
    deny_call(store, answer.run_id, "d")
    answer = agent.resume_sync(answer.run_id)
    assert answer.results[0].text == '[The arguments were invalid and were repaired to {"number":5}]\nsaw 5'
    assert (answer.output, log, len(auxiliary.requests)) == ("Ok.", [5], 1)


def test_invalid_arguments_of_a_person_are_not_repaired_by_a_model(store, log, pay, look):
    auxiliary = ScriptedModel([says(ToolCall("1", "pay", {"amount": 7}))])
    agent = suspending(
        [says(PAY, ToolCall("d", "look", {"number": 1})), says("Ok.")],
        [pay, look],
        store,
        approve=lambda step: Approved({"amount": "nonsense"}) if step.tool == "pay" else Suspend(),
        auxiliary=Auxiliary(auxiliary),
    )
    answer = agent.run_sync("Pay.")
    assert answer.suspended, "the other call waits"
    deny_call(store, answer.run_id, "d")
    answer = agent.resume_sync(answer.run_id)
    assert answer.results[0].text.startswith('[A person changed the arguments of this call to {"amount":"nonsense"}]')
    assert (log, auxiliary.requests) == ([], [])


@pytest.mark.parametrize("ttl", [0, -1, math.inf, math.nan])
def test_time_to_live_of_a_question_must_be_positive_and_finite(store, ttl):
    with pytest.raises(ConfigError, match="ttl must be a positive, finite number"):
        Suspend(ttl=ttl)
    with pytest.raises(ConfigError, match="ttl must be a positive, finite number"):
        StoredApprovals(store.runs, ttl=ttl)


def test_session_that_is_older_than_a_decision_in_the_store_is_refused(store, log, pay):
    agent = suspending([says(PAY), says("Ok.")], [pay], store)
    answer = agent.run_sync("Pay.")
    session = answer.session()
    session.approve("c")
    deny_call(store, answer.run_id, "c", "fraud")
    with pytest.raises(RunConflict, match="was changed in the store"):
        agent.run_sync(session)
    assert "fraud" in agent.resume_sync(answer.run_id).results[0].text
    assert log == []


def test_session_of_a_deleted_run_is_refused(store, log, pay):
    agent = suspending([says(PAY), says("Ok.")], [pay], store)
    answer = agent.run_sync("Pay.")
    session = answer.session()
    session.approve("c")
    assert store.runs.delete(answer.run_id)
    with pytest.raises(RunConflict, match="no longer in the store"):
        agent.run_sync(session)
    assert log == []


def test_stored_run_is_not_continued_without_the_store(store, log, pay):
    session = suspending([says(PAY)], [pay], store).run_sync("Pay.").session()
    session.approve("c")
    with pytest.raises(ConfigError, match="is in a store"):
        suspending([says("Ok.")], [pay]).run_sync(session)
    assert log == []


def test_session_of_a_suspended_answer_continues_the_stored_run_more_than_once(store, log, pay):
    calls = says(PAY, ToolCall("d", "pay", {"amount": 6}))
    agent = suspending([calls, says("Ok.")], [pay], store)
    session = agent.run_sync("Pay.").session()
    session.approve("c")
    session = agent.run_sync(session).session()
    session.approve("d")
    assert agent.run_sync(session).output == "Ok."
    assert log == [5, 6]


@pytest.mark.parametrize("keys", [None, {"c": "K"}])
def test_model_reads_the_arguments_that_an_approver_changed(store, log, pay, keys):
    runner = Runner(pay, store=store, policy=POLICY, approve=lambda step: Approved({"amount": 3}))
    for _ in range(2 if keys else 1):
        (result,) = runner.run_sync([PAY], keys=keys)
        assert result.text == '[A person changed the arguments of this call to {"amount":3}]\npaid 3'
    assert log == [3]


def test_client_of_a_server_reads_the_arguments_that_a_person_changed(store, log):
    @toolwire.tool(effect="write")
    def pay(amount: int) -> dict[str, int]:
        """Pay an amount."""
        return {"paid": amount}

    runner = Runner(pay, store=store, policy=POLICY, approve=StoredApprovals(store.runs))
    assert result_code(runner.run_sync([PAY])[0]) == "suspended"
    (question,) = store.runs.list("waiting")
    approve_call(store, question.run_id, "c", {"amount": 3})
    (result,) = runner.run_sync([PAY])
    assert result.text == '[A person changed the arguments of this call to {"amount":3}]\n{"paid":3}'
    assert result.structured == {"paid": 3}, "clients of an MCP server validate it"


def test_cache_does_not_contain_the_note_about_changed_arguments(log):
    @toolwire.tool(effect="read", cache=60, approve=lambda arguments: arguments["number"] > 5)
    def look(number: int) -> str:
        """Look."""
        log.append(number)
        return f"saw {number}"

    runner = Runner(look, approve=lambda step: Approved({"number": 1}))
    (edited, plain) = runner.run_sync([ToolCall("a", "look", {"number": 9}), ToolCall("b", "look", {"number": 1})])
    assert (edited.text[0], plain.text) == ("[", "saw 1")


def test_stored_approval_is_used_by_one_of_two_processes_that_read_it_at_once(store, log, pay):
    """Both read the approval before either has marked it as used."""
    both_have_read = threading.Barrier(2)

    class Runs:
        def __init__(self):
            self.reads = threading.local()

        def __getattr__(self, name):
            return getattr(store.runs, name)

        def get(self, run_id):
            found = store.runs.get(run_id)
            if found is not None and found.status == "running":
                both_have_read.wait(SAFETY)
            return found

    runner = Runner(pay, policy=POLICY, approve=StoredApprovals(store.runs))
    runner.run_sync([PAY])
    (question,) = store.runs.list("waiting")
    approve_call(store, question.run_id, "c")
    racing = Runner(pay, policy=POLICY, approve=StoredApprovals(Runs()))

    async def race():
        return await asyncio.gather(racing.run([PAY]), racing.run([PAY]))

    codes = sorted(result_code(result) for (result,) in asyncio.run(race()))
    assert (codes, log) == (["ok", "suspended"], [5])


def test_dump_of_a_run_without_a_store_is_a_copy_of_the_run(log, pay):
    """At most once needs a store: this is documented, and the reason why a text must be loaded once."""
    agent = suspending([says(PAY), says("Ok."), says("Ok.")], [pay])
    session = agent.run_sync("Pay.").session()
    session.approve("c")
    for _ in range(2):
        agent.run_sync(Session.load(session.dump(), now=time.time))
    assert log == [5, 5]


def test_question_that_expires_at_once_is_not_asked_in_a_loop(store, log, pay):
    asked = []

    def approve(step):
        asked.append(step.tool)
        return Suspend(ttl=1e-9)

    agent = suspending([says(PAY), says("Ok.")], [pay], store, approve=approve)
    answer = agent.run_sync("Pay.")
    assert (answer.suspended, asked) == (True, ["pay"])
    assert agent.resume_sync(answer.run_id).suspended
    assert (asked, log) == (["pay", "pay"], [])


def test_approval_is_withdrawn_before_the_run_is_continued(store, log, pay):
    agent = suspending([says(PAY), says("Ok.")], [pay], store)
    run_id = agent.run_sync("Pay.").run_id
    approve_call(store, run_id, "c")
    deny_call(store, run_id, "c", "a mistake")
    assert "a mistake" in agent.resume_sync(run_id).results[0].text
    assert log == []
    with pytest.raises(ConfigError, match="the run has ended"):
        deny_call(store, run_id, "c")


def test_run_of_another_tenant_is_not_continued(store, log, pay):
    def agent(tenant, *lines):
        runner = Runner(pay, store=store, tenant=tenant, policy=POLICY, approve="suspend")
        return Agent(ScriptedModel(lines), runner)

    answer = agent("a", says(PAY)).run_sync("A secret.")
    approve_call(store, answer.run_id, "c", tenant="a")
    with pytest.raises(ConfigError, match="there is no run"):
        agent("b", says("Ok.")).resume_sync(answer.run_id)
    assert log == []
    assert agent("a", says("Ok.")).resume_sync(answer.run_id).output == "Ok."


def test_approver_that_blocks_does_not_stop_other_runs(pay, log):
    asked, may_answer = threading.Event(), threading.Event()

    def person(step):
        asked.set()
        return may_answer.wait(SAFETY)

    waiting = suspending([says(PAY), says("Paid.")], [pay], approve=person)
    outputs = []
    thread = threading.Thread(target=lambda: outputs.append(waiting.run_sync("Pay.").output))
    thread.start()
    assert asked.wait(SAFETY)
    assert suspending([says("Hello.")], []).run_sync("Hi.").output == "Hello."
    assert outputs == []
    may_answer.set()
    thread.join(SAFETY)
    assert (outputs, log) == (["Paid."], [5])


def test_stream_of_a_continued_run_yields_the_results_of_the_calls_that_run(log, pay):
    agent = suspending([says(PAY), says("Ok.")], [pay])
    session = agent.run_sync("Pay.").session()
    session.approve("c")
    results = [item for item in agent.stream_sync(session) if isinstance(item, toolwire.ToolResult)]
    assert [result.text for result in results] == ["paid 5"]


def test_person_sees_invisible_characters_of_the_arguments():
    shown = describe_waiting(WaitingCall("c", "pay", {"to": "ann\u200b\U000e0041", "text": "für"}))
    assert '{"to":"ann\\u200b\\U000e0041","text":"für"}' in shown


def test_question_of_a_client_is_deleted_after_it_has_expired(store, pay):
    Runner(pay, policy=POLICY, approve=StoredApprovals(store.runs, ttl=60)).run_sync([PAY])
    (question,) = store.runs.list("waiting")
    assert question.expires_at - question.updated_at == pytest.approx(3660)


def test_tool_cannot_suppress_the_note_about_edited_arguments(store):
    @toolwire.tool(effect="write")
    def pay(amount: int) -> toolwire.ToolResult:
        """Pay an amount."""
        return annotate(PAY.result(f"paid {amount}"), edited={"amount": amount})

    agent = suspending([says(PAY), says("Ok.")], [pay], store)
    run_id = agent.run_sync("Pay.").run_id
    approve_call(store, run_id, "c", {"amount": 3})
    result = agent.resume_sync(run_id).results[0]
    assert result.text == '[A person changed the arguments of this call to {"amount":3}]\npaid 3'
