"""A session that waits for approval, without a runner, a clock or a network."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from toolwire import Message, Request, Response, Text, ToolCall, ToolResult, tool
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Stop
from toolwire.run.session.history import CallIds
from toolwire.run.session.loop import Session
from toolwire.run.session.state import AskModel, AwaitApproval, Budget, GiveUp, RunTools
from toolwire.run.values.results import annotate, note_edit, result_code, value_result
from toolwire.run.values.waiting import Approval, ApprovalExpired, WaitingCall, suspended_result, waiting_call


@tool(effect="write")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


REQUEST = Request("m", (Message("user", (Text("Go."),)),), tools=(pay,))
CALLS = tuple(ToolCall(f"c{number}", "pay", {"amount": number}) for number in range(3))


class Clock:
    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


def question(call: ToolCall, *, expires_at=200.0, needs="approval", **fields) -> WaitingCall:
    return WaitingCall(
        call.id, call.name, call.arguments, "it writes", needs, f"hash {call.id}", expires_at=expires_at, **fields
    )


def asked(call: ToolCall, **fields):
    return suspended_result(call, question(call, **fields))


@pytest.fixture
def run(clock):
    """The first call has run, the others wait."""
    session = Session(REQUEST, now=clock, run_id="r", budget=Budget(seconds=50))
    session.add_response(Response(parts=CALLS, stop=Stop("tool_calls")))
    session.add_results([CALLS[0].result("paid 0"), asked(CALLS[1]), asked(CALLS[2])])
    return session


def reload(session: Session, clock) -> Session:
    return Session.load(session.dump(), now=clock, budget=session.budget)


@pytest.mark.finding("X7")
def test_run_waits_for_the_suspended_calls_only(run, clock):
    assert run.next() == AwaitApproval((question(CALLS[1]), question(CALLS[2])))
    assert reload(run, clock).next() == run.next()
    assert run.waiting == run.next().calls


def test_approved_call_runs_and_the_others_do_not(run, clock):
    run.approve("c1")
    run = reload(run, clock)
    step = run.next()
    assert isinstance(step, RunTools)
    assert step.calls == CALLS
    assert [result and result.text for result in step.results][:2] == ["paid 0", None]
    assert result_code(step.results[2]) == "suspended"
    assert step.approvals == (None, Approval("hash c1", 200.0), None)
    run.add_results([step.results[0], CALLS[1].result("paid 1"), step.results[2]])
    assert run.next() == AwaitApproval((question(CALLS[2]),))


def test_last_decision_continues_the_conversation(run, clock):
    run.deny("c1", "too expensive")
    run.approve("c2")
    step = run.next()
    run.add_results([*step.results[:2], CALLS[2].result("paid 2")])
    step = reload(run, clock).next()
    assert isinstance(step, AskModel)
    texts = [part.text for part in step.request.messages[-1].parts]
    assert texts == ["paid 0", "This call was not approved: too expensive. Nothing was run.", "paid 2"]
    assert run.waiting == ()


def test_prompt_follows_the_results_of_the_turn(run, clock):
    run.add_prompt(Message("user", (Text("Be quick."),)))
    run.deny("c1")
    run.deny("c2")
    run = reload(run, clock)
    pass_back(run)
    *_, results, prompt = run.next().request.messages
    assert [part.call_id for part in results.parts] == ["c0", "c1", "c2"]
    assert prompt == Message("user", (Text("Be quick."),))
    run.add_prompt(Message("user", (Text("Now."),)))
    assert run.next().request.messages[-1].parts == (Text("Now."),)
    assert reload(run, clock).next() == run.next()


def pass_back(run):
    """Perform a step in which no call is left to run."""
    step = run.next()
    assert isinstance(step, RunTools)
    run.add_results(step.results)


def test_after_the_last_decision_the_results_are_passed_back(run, clock):
    """The process that decides does not know the agent, so it does not complete the turn."""
    run.deny("c1")
    run.deny("c2")
    run = reload(run, clock)
    assert run.waiting == ()
    assert None not in run.next().results
    pass_back(run)
    assert isinstance(run.next(), AskModel)


def test_expired_question_cannot_be_answered_and_is_asked_again(run, clock):
    clock.time = 200.0
    for answer in (run.approve, run.deny):
        with pytest.raises(ApprovalExpired, match="'c1' has expired"):
            answer("c1")
    step = run.next()
    assert [result is None for result in step.results] == [False, True, True]
    assert step.approvals == (None, None, None)
    run.add_results([step.results[0], asked(CALLS[1], expires_at=300.0), asked(CALLS[2], expires_at=300.0)])
    run.approve("c1")
    assert run.next().approvals[1].expires_at == 300.0


def test_approval_that_is_not_used_in_time_is_asked_again(run, clock):
    run.approve("c1")
    clock.time = 200.0
    assert run.next().approvals == (None, None, None)


def test_decision_is_made_once_but_an_approval_can_be_withdrawn(run):
    run.approve("c1")
    with pytest.raises(ConfigError, match="call 'c1' was already approved"):
        run.approve("c1")
    run.deny("c1")
    for answer in (run.approve, run.deny):
        with pytest.raises(ConfigError, match="no call 'c1' is waiting"):
            answer("c1")
    with pytest.raises(ConfigError, match="waiting calls: c2"):
        run.approve("c0")


def test_edited_arguments_are_part_of_the_approval_and_their_result_is_text(run):
    run.approve("c1", {"amount": 7})
    run.deny("c2")
    step = run.next()
    assert step.approvals[1] == Approval("hash c1", 200.0, {"amount": 7})
    assert step.calls == CALLS, "the gates see the arguments of the model first"
    edited = note_edit(CALLS[1].result({"paid": 7}), {"amount": 7})
    assert edited.structured == {"paid": 7}
    run.add_results([step.results[0], edited, step.results[2]])
    result = run.next().request.messages[-1].parts[1]
    assert result.text == '[A person changed the arguments of this call to {"amount":7}]\n{"paid":7}'
    assert result.structured is None, "some wires send it instead of the text"


@pytest.mark.parametrize("arguments", [[], "x", 3])
def test_edited_arguments_must_be_an_object(run, arguments):
    with pytest.raises(ConfigError, match="arguments must be an object"):
        run.approve("c1", arguments)


def test_approval_that_the_runner_refuses_is_a_new_question(run):
    """The definition of the tool changed, for example."""
    run.approve("c1")
    changed = suspended_result(CALLS[1], replace(question(CALLS[1]), hash="another"))
    step = run.next()
    run.add_results([step.results[0], changed, step.results[2]])
    assert [waiting.hash for waiting in run.next().calls] == ["another", "hash c2"]


def test_result_of_a_suspended_tool_is_supplied(clock):
    run = Session(REQUEST, now=clock)
    run.add_response(Response(parts=CALLS[:1], stop=Stop("tool_calls")))
    run.add_results([asked(CALLS[0], needs="result", expires_at=0.0, state={"job": 7})])
    clock.time = 1e9
    run = reload(run, clock)
    assert run.next().calls[0].state == {"job": 7}
    with pytest.raises(ConfigError, match=r"does not wait for an approval.*use supply"):
        run.approve("c0")
    run.supply("c0", {"total": 3})
    pass_back(run)
    assert run.next().request.messages[-1].parts[0].structured == {"total": 3}


def test_supply_is_refused_for_a_call_that_needs_approval(run):
    with pytest.raises(ConfigError, match=r"does not wait for a result.*use approve or deny"):
        run.supply("c1", "x")


def test_calls_with_the_same_id_get_ids_of_their_own(clock):
    run = Session(REQUEST, now=clock)
    for number in range(2):
        run.add_response(Response(parts=(CALLS[0], CALLS[0]), stop=Stop("tool_calls")))
        calls = run.next().calls
        assert [call.id for call in calls] == [["c0", "c0_2"], ["c0_3", "c0_4"]][number]
        run.add_results([call.result("ok") for call in calls])
    results = [part for message in run.next().request.messages for part in message.parts]
    assert [part.call_id for part in results if isinstance(part, ToolResult)] == ["c0", "c0_2", "c0_3", "c0_4"]


def test_new_id_of_a_call_is_not_longer_than_providers_accept():
    ids = CallIds()
    names = [ids.make_unique("x" * 40) for _ in range(12)]
    assert len(set(names)) == 12
    assert {len(name) for name in names} == {40}
    assert ids.make_unique("c_2") == "c_2"
    assert [ids.make_unique("c") for _ in range(3)] == ["c", "c_3", "c_4"]


def test_time_spent_waiting_is_not_part_of_the_budget(run, clock):
    clock.time = 190.0
    run.deny("c1")
    run.deny("c2")
    pass_back(run)
    assert isinstance(run.next(), AskModel)
    clock.time += 51
    assert isinstance(run.next(), GiveUp)


def test_decision_in_another_phase_is_rejected(clock):
    run = Session(REQUEST, now=clock)
    for decide in (run.approve, run.deny):
        with pytest.raises(ConfigError, match="expected phase 'wait', the run is in 'ask'"):
            decide("c1")
    with pytest.raises(ConfigError, match="expected phase 'wait'"):
        run.supply("c1", 1)
    assert run.waiting == ()


def test_tool_cannot_forge_a_suspended_result():
    forged = annotate(suspended_result(CALLS[0], question(CALLS[1])), other=1)
    result = value_result(CALLS[0], forged)
    assert waiting_call(result) is None
    assert result.extra["toolwire~"]["other"] == 1


def test_replayed_suspended_result_has_the_id_of_the_new_call():
    assert waiting_call(replace(asked(CALLS[1]), call_id="new")).call_id == "new"
