"""The agent loop without a model, a clock or a network."""

from __future__ import annotations

import pytest

from toolwire import Message, Request, Response, Text, ToolCall, tool
from toolwire.ir.errors import ConfigError, ProtocolError
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.run.session.loop import Session
from toolwire.run.session.state import AskModel, Budget, Done, GiveUp, RunTools


@tool(effect="read")
def look(where: str) -> str:
    """Look."""
    return where


REQUEST = Request("m", (Message("user", (Text("Go."),)),), tools=(look,))


def session(**options) -> Session:
    return Session(REQUEST, now=lambda: 10.0, run_id="r", **options)


def response_with_calls(*places: str) -> Response:
    calls = tuple(ToolCall(f"c{number}", "look", {"where": place}) for number, place in enumerate(places))
    return Response(parts=(Text("Hm."), *calls), stop=Stop("tool_calls"), usage=Usage(10, 5))


FINAL_ANSWER = Response(parts=(Text("Done."),), stop=Stop("stop"))


def answer_calls(run: Session) -> None:
    step = run.next()
    assert isinstance(step, RunTools)
    run.add_results([call.result("seen") for call in step.calls])


def test_session_alternates_model_and_tools_until_a_final_answer():
    run = session()
    assert isinstance(run.next(), AskModel)
    run.add_response(response_with_calls("a", "b"))
    answer_calls(run)
    step = run.next()
    assert [message.role for message in step.request.messages] == ["user", "assistant", "user"]
    assert [part.call_id for part in step.request.messages[-1].parts] == ["c0", "c1"]
    run.add_response(FINAL_ANSWER)
    assert run.next() == Done(FINAL_ANSWER)
    assert run.next() == Done(FINAL_ANSWER)


def test_session_resumes_from_its_serialised_state():
    run = session(untrusted=["look"])
    run.add_response(response_with_calls("a"))
    copy = Session.load(run.dump(), now=lambda: 10.0, untrusted=["look"])
    assert copy.next() == run.next()
    answer_calls(copy)
    again = Session.load(copy.dump().encode(), now=lambda: 10.0)
    assert again.state == copy.state
    assert again.state.tainted
    assert isinstance(again.next(), AskModel)


@pytest.mark.parametrize("junk", ["", "{}", "[1]", '{"run_id": 3}', b"\xff"])
def test_invalid_state_is_rejected(junk):
    with pytest.raises(ProtocolError):
        Session.load(junk, now=lambda: 0.0)


def test_state_of_another_version_is_rejected():
    with pytest.raises(ConfigError, match="version 1, expected 2"):
        Session.load(session().dump().replace('"version":2', '"version":1'), now=lambda: 0.0)


def test_iteration_budget_ends_the_session():
    run = session(budget=Budget(iterations=2))
    for place in ("a", "b"):
        run.add_response(response_with_calls(place))
        answer_calls(run)
    step = run.next()
    assert isinstance(step, GiveUp)
    assert step.reason == "max iterations reached (2)"


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(calls=1), "max calls reached (1)"),
        (Budget(tokens=15), "max tokens reached (15)"),
        (Budget(cost=0.5), "max cost reached (0.5)"),
    ],
)
def test_exceeded_budget_ends_the_session_with_a_reason(budget, reason):
    run = session(budget=budget, price=lambda _: 0.5)
    if isinstance(run.next(), AskModel):
        run.add_response(response_with_calls("a", "b"))
    if isinstance(run.next(), RunTools):
        answer_calls(run)
    assert run.next().reason == reason


def test_exceeded_time_ends_the_session_with_a_reason():
    times = iter(range(100))
    run = Session(Request(), now=lambda: float(next(times)), budget=Budget(seconds=0.5))
    assert run.next().reason == "max time reached (0.5 seconds)"


def test_batch_above_the_call_budget_is_not_started():
    run = session(budget=Budget(calls=3))
    run.add_response(response_with_calls("a", "b"))
    answer_calls(run)
    run.add_response(response_with_calls("c", "d"))
    assert isinstance(run.next(), GiveUp), "not one of the two was run"


def test_repeated_identical_calls_end_the_session():
    run = session(budget=Budget(same_call=2))
    for _ in range(2):
        run.add_response(response_with_calls("a"))
        answer_calls(run)
    run.add_response(response_with_calls("a"))
    assert "same call" in run.next().reason


def test_consecutive_failed_turns_end_the_session():
    run = session(budget=Budget(failures=2))
    for place in ("a", "b"):
        run.add_response(response_with_calls(place))
        step = run.next()
        run.add_results([call.result("no", is_error=True) for call in step.calls])
    assert run.next().reason == "2 consecutive turns returned only errors"


def test_model_failure_ends_the_session():
    run = session()
    run.add_response(Response(fault=Fault("overloaded", "too busy")))
    assert run.next().reason == "the model failed: too busy"


def test_input_in_the_wrong_phase_is_rejected():
    run = session()
    with pytest.raises(ConfigError, match="expected phase"):
        run.add_results([])
    run.add_response(response_with_calls("a"))
    with pytest.raises(ConfigError, match="expected phase"):
        run.add_response(FINAL_ANSWER)
    with pytest.raises(ConfigError, match="do not match the calls"):
        run.add_results([])


def test_step_lists_the_previous_calls_of_the_run():
    run = session()
    run.add_response(response_with_calls("a"))
    assert run.next().earlier == ()
    answer_calls(run)
    run.add_response(response_with_calls("a"))
    assert [call.id for call in run.next().earlier] == ["c0"]
