"""The agent loop without a model, a clock or a network."""

from __future__ import annotations

import pytest

from toolwire import Message, Request, Response, Text, ToolCall, tool
from toolwire.ir.errors import ConfigError, ProtocolError
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.run.session import AskModel, Budget, Done, GiveUp, RunTools, Session


@tool(effect="read")
def look(where: str) -> str:
    """Look."""
    return where


REQUEST = Request("m", (Message("user", (Text("Go."),)),), tools=(look,))


def session(**options) -> Session:
    return Session(REQUEST, now=lambda: 10.0, run_id="r", **options)


def wants(*places: str) -> Response:
    calls = tuple(ToolCall(f"c{number}", "look", {"where": place}) for number, place in enumerate(places))
    return Response(parts=(Text("Hm."), *calls), stop=Stop("tool_calls"), usage=Usage(10, 5))


SAID = Response(parts=(Text("Done."),), stop=Stop("stop"))


def answer_calls(run: Session) -> None:
    step = run.next()
    assert isinstance(step, RunTools)
    run.add_results([call.result("seen") for call in step.calls])


def test_ask_run_tell_until_there_is_nothing_to_ask():
    run = session()
    assert isinstance(run.next(), AskModel)
    run.add_response(wants("a", "b"))
    answer_calls(run)
    step = run.next()
    assert [message.role for message in step.request.messages] == ["user", "assistant", "user"]
    assert [part.call_id for part in step.request.messages[-1].parts] == ["c0", "c1"]
    run.add_response(SAID)
    assert run.next() == Done(SAID)
    assert run.next() == Done(SAID)


def test_it_goes_on_in_another_process():
    run = session(untrusted=["look"])
    run.add_response(wants("a"))
    copy = Session.load(run.dump(), now=lambda: 10.0, untrusted=["look"])
    assert copy.next() == run.next()
    answer_calls(copy)
    again = Session.load(copy.dump().encode(), now=lambda: 10.0)
    assert again.state == copy.state
    assert again.state.tainted
    assert isinstance(again.next(), AskModel)


@pytest.mark.parametrize("junk", ["", "{}", "[1]", '{"run_id": 3}', b"\xff"])
def test_what_is_no_state_is_refused(junk):
    with pytest.raises(ProtocolError):
        Session.load(junk, now=lambda: 0.0)


def test_another_version_is_refused():
    with pytest.raises(ConfigError, match="version 2"):
        Session.load(session().dump().replace('"version":1', '"version":2'), now=lambda: 0.0)


def test_max_iterations_reached():
    run = session(budget=Budget(iterations=2))
    for place in ("a", "b"):
        run.add_response(wants(place))
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
        (Budget(seconds=0.0), "max time reached (0 seconds)"),
    ],
)
def test_budgets(budget, reason):
    run = session(budget=budget, price=lambda _: 0.5)
    if isinstance(run.next(), AskModel):
        run.add_response(wants("a", "b"))
    if isinstance(run.next(), RunTools):
        answer_calls(run)
    assert run.next().reason == reason


def test_a_batch_over_the_budget_is_not_begun():
    run = session(budget=Budget(calls=3))
    run.add_response(wants("a", "b"))
    answer_calls(run)
    run.add_response(wants("c", "d"))
    assert isinstance(run.next(), GiveUp), "not one of the two was run"


def test_a_model_that_goes_in_circles_is_stopped():
    run = session(budget=Budget(same_call=2))
    for _ in range(2):
        run.add_response(wants("a"))
        answer_calls(run)
    run.add_response(wants("a"))
    assert "same call" in run.next().reason


def test_adapting_has_an_end():
    run = session(budget=Budget(failures=2))
    for place in ("a", "b"):
        run.add_response(wants(place))
        step = run.next()
        run.add_results([call.result("no", is_error=True) for call in step.calls])
    assert run.next().reason == "2 consecutive turns returned only errors"


def test_a_fault_ends_it():
    run = session()
    run.add_response(Response(fault=Fault("overloaded", "too busy")))
    assert run.next().reason == "the model failed: too busy"


def test_answers_come_in_their_turn():
    run = session()
    with pytest.raises(ConfigError, match="expected phase"):
        run.add_results([])
    run.add_response(wants("a"))
    with pytest.raises(ConfigError, match="expected phase"):
        run.add_response(SAID)
    with pytest.raises(ConfigError, match="do not match the calls"):
        run.add_results([])


def test_earlier_calls_tell_a_repeated_one_from_a_second_one():
    run = session()
    run.add_response(wants("a"))
    assert run.next().earlier == ()
    answer_calls(run)
    run.add_response(wants("a"))
    assert [call.id for call in run.next().earlier] == ["c0"]
