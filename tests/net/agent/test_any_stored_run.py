"""The fold of a run's events is the state that the process has in memory, whatever the run does and whenever it is saved."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.request import Message, Request
from toolwire.ir.response import Response, Stop, Usage
from toolwire.ir.tools import Tool
from toolwire.run.session.compaction import Compaction
from toolwire.run.session.events import RunStep, decode_events, encode_steps, fold_events
from toolwire.run.session.loop import Session
from toolwire.run.session.state import AskModel, AwaitApproval, Budget, RunTools, decode_state
from toolwire.run.values.records import split_rows
from toolwire.run.values.results import value_result
from toolwire.run.values.waiting import WaitingCall, suspended_result

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
VALUES = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | TEXTS, lambda inner: st.lists(inner, max_size=3))
COMPACTION = Compaction(max_messages=8, keep_last=1, max_result=20)
BUDGET = Budget(iterations=1000, calls=None, same_call=1000, failures=1000)


class Log:
    """The rows of a run, appended at each save, in rows of a few bytes."""

    def __init__(self, session):
        self.session, self.saved, self.rows = session, None, []
        session.steps = []
        session.record_step("start")

    def save(self):
        steps = self.session.take_steps()
        data = b"".join(encode_steps(self.saved, steps))
        self.rows += [data[start : start + 50] for start in range(0, len(data), 50)]
        self.saved = steps[-1].state

    def check(self):
        self.save()
        folded = fold_events(self.rows)
        present = decode_state(self.session.dump())
        assert folded == present
        for name in ("request", "turn", "compacted"):  # for `==`, 1 and True are the same
            assert msgspec.json.encode(getattr(folded, name)) == msgspec.json.encode(getattr(present, name))


def make_tools(count):
    return [Tool(f"t{number}", f"tool {number}", {"type": "object"}) for number in range(count)]


@st.composite
def responses(draw, number):
    calls = tuple(
        ToolCall(f"c{number}-{index}", f"t{draw(st.integers(0, 2))}", {"value": draw(VALUES)})
        for index in range(draw(st.integers(0 if number > 5 else 1, 3)))
    )
    parts = (*([Text(draw(TEXTS))] if draw(st.booleans()) else []), *calls)
    return Response(parts=parts, stop=Stop("tool_calls" if calls else "stop"), usage=Usage(draw(st.integers(0, 99)), 3))


def take_step(data, session, number):
    """Do something that the present phase allows. Return False at the end of the run."""
    step = session.next()
    if isinstance(step, AskModel):
        action = data.draw(st.sampled_from(["turn", "turn", "prompt", "compact", "offer", "transfer", "usage"]))
        if action == "turn":
            session.add_response(data.draw(responses(number)))
        elif action == "prompt":
            session.add_prompt(Message("user", (Text(data.draw(TEXTS)),)))
        elif action == "compact" and (plan := session.plan_compaction(COMPACTION)) is not None:
            session.compact(plan, [data.draw(TEXTS) for _ in plan.spans])
        elif action == "offer":
            session.offer_tools(make_tools(data.draw(st.integers(0, 4))))
        elif action == "transfer":
            request = replace(session.state.request, model="other", tools=tuple(make_tools(2)))
            session.continue_with(request, data.draw(TEXTS), untrusted=["t1"], price=None)
            session.set_agent(data.draw(st.sampled_from([None, "other"])))
        elif action == "usage":  # of a subagent
            session.add_usage(Usage(5, 7), 0.5)
    elif isinstance(step, RunTools):
        session.add_results([known or make_result(data, call) for call, known in pairs(step)])
    elif isinstance(step, AwaitApproval):
        decide(data, session, data.draw(st.sampled_from(step.calls)))
    else:
        return False
    return True


def pairs(step):
    return zip(step.calls, step.results or [None] * len(step.calls), strict=True)


def make_result(data, call):
    action = data.draw(st.sampled_from(["value", "value", "approval", "result"]))
    if action == "value":
        return value_result(call, data.draw(VALUES))
    return suspended_result(call, WaitingCall(call.id, call.name, call.arguments, needs=action, hash="h"))


def decide(data, session, waiting):
    if data.draw(st.booleans()):
        session.add_prompt(Message("user", (Text(data.draw(TEXTS)),)))
    if waiting.needs == "result":
        if data.draw(st.booleans()):  # the calls that a subagent waits for
            session.update_waiting(waiting.call_id, (WaitingCall("inner", "pay", {"a": data.draw(VALUES)}),))
        session.supply(waiting.call_id, data.draw(VALUES))
    elif data.draw(st.booleans()):
        session.deny(waiting.call_id, data.draw(TEXTS))
    else:
        session.approve(waiting.call_id, data.draw(st.none() | st.fixed_dictionaries({"value": VALUES})))
        session.start_calls()


@pytest.mark.finding("RU1")
@pytest.mark.finding("LE11")
@given(st.data())
def test_fold_of_the_events_is_the_state_in_memory(data):
    messages = (Message("system", (Text("Be brief."),)), Message("user", (Text("Go."),)))
    session = Session(
        Request("m", messages, tuple(make_tools(2))),
        now=lambda: 5.0,
        run_id="r1",
        budget=BUDGET,
        first_message=1,
        has_toolbox_tools=data.draw(st.booleans()),
        untrusted=["t2"],
    )
    log = Log(session)
    for number in range(data.draw(st.integers(1, 14))):
        if not take_step(data, session, number):
            break
        if data.draw(st.booleans()):
            log.check()
        if data.draw(st.integers(0, 9)) == 0:  # another process continues the run
            log.save()
            session = Session.load(fold_events(log.rows), now=lambda: 5.0, tools=make_tools(2), untrusted=["t2"])
            session.steps, log.session, log.saved = [], session, fold_events(log.rows)
            session = change_to_copy(log)
    log.check()
    kinds = [event.kind for event in decode_events(log.rows)]
    assert kinds[0] == "start" and kinds.count("start") == 1


def change_to_copy(log):
    """Continue with a copy of the state, as `Agent.run(session)` does: only its changes are appended."""
    before = len(log.rows)
    steps = log.session.take_steps()
    log.rows += split_rows(encode_steps(log.saved, steps, by_value=True))
    assert len(log.rows) - before <= 1
    log.saved = steps[-1].state
    return log.session


def test_step_without_a_change_has_no_event():
    session = Session(Request("m", (Message("user", (Text("Go."),)),)), now=lambda: 5.0, run_id="r1")
    step = RunStep("start", 1.0, session.state)
    assert len(encode_steps(None, [step])) == 1
    assert encode_steps(session.state, [step, replace(step, state=replace(session.state, revision=7))]) == []
