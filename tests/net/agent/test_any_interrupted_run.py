"""A stored run that is cancelled anywhere and continued by several processes: each effect happens once, no step is lost."""

import asyncio
import time
from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import Agent, Runner, ToolCall, tool
from toolwire.net import approve_call, deny_call
from toolwire.net.agent.checkpoints import load_run
from toolwire.net.stores.memory import MemoryStore
from toolwire.run import Ask, Budget, Compaction, Policy, RunConflict, Session
from toolwire.run.session.state import RunState
from toolwire.testing import says

NAMES = ("note", "pay", "fail", "ask_helper", "missing", "hand_over")
PLANS = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=4)
LEASE = 0.2


class PlannedModel:
    """Calls the tools of a plan, one list per turn. The last call of the conversation shows how far it is."""

    model = "planned"

    def __init__(self, plan):
        self._plan = plan

    async def ask(self, request):
        await asyncio.sleep(0)
        calls = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
        turn = calls[-1].arguments["number"] // 10 + 1 if calls else 0
        if turn >= len(self._plan):
            return says("Done.")
        return says(
            *(ToolCall(f"c{turn}-{at}", name, {"number": 10 * turn + at}) for at, name in enumerate(self._plan[turn]))
        )


def make_agent(store, plan, effects):
    def make_tool(name):
        async def act(number: int) -> str:
            """Do something."""
            await asyncio.sleep(0)
            effects[name, number] += 1
            await asyncio.sleep(0)
            return "done " + "x" * 200

        return tool(name=name, effect="write")(act)

    @tool(effect="read")
    async def fail(number: int) -> str:
        """Fail."""
        raise RuntimeError(f"failed {number}")

    @tool(effect="write")
    async def ask_helper(number: int) -> str:
        """Ask a subagent, whose run is stored too."""
        return (await Agent(PlannedModel([["note"]]), make_runner(make_tool("inner")), name="helper").run("Help.")).text

    @tool(effect="write")
    def hand_over(number: int) -> Agent:
        """Hand the conversation over."""
        return other

    def make_runner(*tools):
        policy = Policy(checks=(lambda pending: Ask("it costs money") if pending.call.name == "pay" else None,))
        return Runner(*tools, store=store, policy=policy, approve="suspend", lease=LEASE)

    tools = (make_tool("note"), make_tool("pay"), fail, ask_helper)
    budget = Budget(iterations=50, calls=None, failures=50)
    other = Agent(PlannedModel(plan), make_runner(*tools), name="other", system="Be brief.", budget=budget)
    options = {"compaction": Compaction(max_tokens=200, keep_last=1, max_result=80), "budget": budget}
    return Agent(PlannedModel(plan), make_runner(*tools, hand_over), transfers=[other], **options)


def slow_store():
    """Return a store whose appends take a while, so that some are cancelled."""
    store = MemoryStore()
    append = store.runs.append

    def append_slowly(*arguments, **options):
        time.sleep(0.001)
        return append(*arguments, **options)

    store.runs.append = append_slowly
    return store


def values_of(state):
    """Return a state as JSON, with all fields except the version in the store."""
    plain = msgspec.json.decode(msgspec.json.encode(state), type=RunState)
    return msgspec.json.encode([getattr(plain, name) for name in RunState.__struct_fields__ if name != "revision"])


async def drive(agent, run_id, turns):
    """Start or continue a run, and cancel it after so many turns of the loop. None: to its end."""
    task = asyncio.create_task(agent.run("Go.") if run_id is None else agent.resume(run_id))
    for _ in range(turns or 0):
        await asyncio.sleep(0.0001)
    if turns is not None:
        task.cancel()
    try:
        await task
    except (asyncio.CancelledError, RunConflict):
        return


async def interrupt(random, store, plan, effects, states):
    ends = [None, *range(61)]
    await drive(make_agent(store, plan, effects), None, random.choice(ends))
    runs = [run for run in store.runs.list() if run.summary.endswith("Go.")]
    while runs and (run := store.runs.get(runs[0].run_id)).status in ("running", "waiting"):
        session = load_run(store, run.run_id)[1]
        assert values_of(session.state) in states
        assert run.token == "", "the run can be continued at once"
        for call in session.waiting:
            random.choice([approve_call, deny_call])(store, run.run_id, call.call_id)
        both = (drive(make_agent(store, plan, effects), run.run_id, random.choice(ends)) for _ in range(2))
        await asyncio.gather(*both)  # like two processes at once
    assert not runs or values_of(load_run(store, runs[0].run_id)[1].state) in states


@pytest.mark.finding("RU1")
@settings(max_examples=25)
@given(st.integers(0, 2**32), PLANS)
def test_interrupted_run_loses_no_step_and_repeats_no_effect(seed, plan):
    """The seed is drawn, and not the decisions, because their number depends on the time of threads."""
    effects, states = Counter(), set()
    record_step = Session.record_step

    def record(session, kind):
        record_step(session, kind)
        if session.steps is not None:
            states.add(values_of(session.stored_state()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "record_step", record)
        asyncio.run(interrupt(Random(seed), slow_store(), plan, effects, states))
    repeated = {effect: count for effect, count in effects.items() if count > 1 and effect[0] != "inner"}
    assert not repeated
