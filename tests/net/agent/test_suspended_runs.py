"""Agents whose calls wait for approval: suspended, decided in another place, and continued from the store."""

import asyncio
import threading
import time

import pytest

import toolwire
from run_logs import read_state, replace_state
from toolwire import Agent, ToolCall, ToolResult, open_store
from toolwire.ir.errors import ConfigError, StoreError
from toolwire.net import Answer, approve_call, deny_call, supply_result
from toolwire.net.agent import checkpoints
from toolwire.net.tools.runner import Runner
from toolwire.run import GATES, Budget, Policy, RunConflict, Session, Suspend, Suspended, path_jail
from toolwire.run.values.waiting import ApprovalExpired
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY

PAY = ToolCall("pay-1", "pay", {"amount": 5})
LOOK = ToolCall("look-1", "look", {"where": "here"})
POLICY = Policy(approve=("write",))


class World:
    """The tools, and a list of the calls that ran."""

    def __init__(self):
        self.log = []

        @toolwire.tool(effect="write", resource="account")
        def pay(amount: int) -> str:
            """Pay an amount."""
            self.log.append(f"pay {amount}")
            return f"paid {amount}"

        @toolwire.tool(effect="read", resource="place")
        def look(where: str) -> str:
            """Look at a place."""
            self.log.append(f"look {where}")
            return f"saw {where}"

        self.pay, self.look = pay, look

    def agent(self, *lines, tools=None, **options):
        options = {"policy": POLICY, "approve": "suspend", **options}
        return Agent(ScriptedModel(lines), tools or [self.pay, self.look], **options)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "runs.db"))
    yield opened
    opened.close()


@pytest.fixture
def pass_time(monkeypatch):
    """Stop the clock of the process; the function that is returned advances it."""
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)

    def advance(seconds):
        nonlocal now
        now += seconds

    return advance


@pytest.fixture
def waiting(world, store):
    """A run whose read call has run, and whose payment waits."""
    answer = world.agent(says(PAY, LOOK), store=store).run_sync("Pay 5 and look.")
    assert answer.suspended
    return answer


def test_suspended_answer_lists_the_waiting_calls(world, waiting, store):
    assert (waiting.finished, waiting.reason) == (False, "waiting for pay")
    (call,) = waiting.pending
    assert (call.call_id, call.tool, call.arguments, call.needs) == ("pay-1", "pay", {"amount": 5}, "approval")
    assert call.why == "pay is a write tool"
    assert world.log == ["look here"]
    stored = store.runs.get(waiting.run_id)
    assert (stored.status, stored.token) == ("waiting", "")
    assert stored.summary == 'pay({"amount":5}) · Pay 5 and look.'


@pytest.mark.finding("X7")
def test_approved_call_runs_once_and_nothing_runs_again(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1")
    assert world.log == ["look here"], "the call runs when the run is continued"
    agent = world.agent(says("Done."), store=store)
    answer = agent.resume_sync(waiting.run_id)
    assert answer.output == "Done."
    assert world.log == ["look here", "pay 5"]
    assert [result.text for result in answer.results] == ["paid 5", "saw here"]
    assert agent.resume_sync(waiting.run_id).output == "Done.", "a run that has ended returns its answer"
    assert world.log == ["look here", "pay 5"]
    assert store.runs.get(waiting.run_id).status == "done"


def test_model_receives_a_prompt_after_the_results_of_the_calls_that_waited(world, waiting, store):
    agent = world.agent(says("Done."), store=store)
    assert agent.resume_sync(waiting.run_id, "And be quick.").suspended, "the payment still waits"
    approve_call(store, waiting.run_id, "pay-1")
    answer = agent.resume_sync(waiting.run_id)
    parts = [part for message in agent.model.requests[-1].messages for part in message.parts]
    assert [part.text for part in parts if not isinstance(part, ToolCall)] == [
        "Pay 5 and look.",
        "paid 5",
        "saw here",
        "And be quick.",
    ]
    assert answer.output == "Done."
    with pytest.raises(ConfigError, match="the run has ended"):
        agent.resume_sync(waiting.run_id, "More?")


def test_denied_call_does_not_run_and_the_model_reads_the_reason(world, waiting, store):
    deny_call(store, waiting.run_id, "pay-1", "too expensive")
    answer = world.agent(says("Understood."), store=store).resume_sync(waiting.run_id)
    assert answer.output == "Understood."
    assert answer.results[0].text == "This call was not approved: too expensive. Nothing was run."
    assert world.log == ["look here"]


def test_edited_arguments_run_instead(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1", {"amount": 3})
    answer = world.agent(says("Done."), store=store).resume_sync(waiting.run_id)
    assert world.log == ["look here", "pay 3"]
    assert answer.results[0].text == '[A person changed the arguments of this call to {"amount":3}]\npaid 3'


def test_edited_arguments_pass_all_gates(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1", {"amount": 7})
    strict = Policy(checks=(toolwire.run.at_most("amount", 6),), approve=("write",))
    answer = world.agent(says("Oh."), store=store, policy=strict).resume_sync(waiting.run_id)
    assert world.log == ["look here"]
    assert answer.results[0].is_error
    assert "amount must be at most 6" in answer.results[0].text


def test_changed_definition_is_refused_and_a_new_call_needs_a_new_approval(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1")
    other = World()

    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay an amount, in gold."""
        other.log.append(f"pay {amount}")
        return "paid"

    again = says(ToolCall("pay-2", "pay", {"amount": 5}))
    agent = other.agent(again, says("Done."), store=store, tools=[pay, other.look])
    answer = agent.resume_sync(waiting.run_id)
    assert "has changed since it was offered" in answer.results[0].text
    assert answer.suspended
    assert other.log == []
    assert answer.pending[0].hash != waiting.pending[0].hash
    approve_call(store, waiting.run_id, "pay-2")
    assert agent.resume_sync(waiting.run_id).output == "Done."
    assert other.log == ["pay 5"]


def test_edited_arguments_run_even_if_the_policy_no_longer_asks(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1", {"amount": 3})
    world.agent(says("Done."), store=store, policy=Policy()).resume_sync(waiting.run_id)
    assert world.log == ["look here", "pay 3"]


def test_expired_approval_of_edited_arguments_never_runs_the_original_ones(world, store, pass_time):
    agent = world.agent(says(PAY), says("Done."), store=store, approve=lambda _: Suspend(ttl=60.0))
    run_id = agent.run_sync("Pay.").run_id
    approve_call(store, run_id, "pay-1", {"amount": 3})
    pass_time(61)
    assert agent.resume_sync(run_id).suspended
    assert world.log == []


def test_call_that_needs_no_approval_any_more_runs_as_it_is(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1")
    world.agent(says("Done."), store=store, policy=Policy()).resume_sync(waiting.run_id)
    assert world.log == ["look here", "pay 5"]


def test_session_is_approved_without_a_store(world):
    agent = world.agent(says(PAY, LOOK), says("Done."))

    async def scenario():
        session = await agent.session("Pay 5.")
        answer = await agent.run(session)
        assert answer.suspended
        copy = Session.load(session.dump(), now=time.time)
        copy.approve("pay-1")
        return await agent.run(copy)

    assert asyncio.run(scenario()).output == "Done."
    assert world.log == ["look here", "pay 5"]


def test_approval_in_the_session_continues_the_stored_run(world, waiting, store):
    session = Session.load(read_state(store, waiting.run_id), now=time.time)
    session.approve("pay-1")
    assert world.agent(says("Done."), store=store).run_sync(session).output == "Done."
    assert store.runs.get(waiting.run_id).status == "done"
    stale = Session.load(read_state(store, waiting.run_id), now=time.time)
    with pytest.raises(RunConflict, match="has ended"):
        world.agent(store=store).run_sync(stale)


def test_arguments_edited_after_the_approval_need_a_new_one(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1")
    tampered = read_state(store, waiting.run_id).replace('"amount":5', '"amount":500')
    assert replace_state(store, waiting.run_id, tampered) is not None
    answer = world.agent(store=store).resume_sync(waiting.run_id)
    assert answer.suspended
    assert answer.pending[0].arguments == {"amount": 500}
    assert world.log == ["look here"]


def test_expired_approval_is_refused_and_asked_again(world, store, pass_time):
    agent = world.agent(says(PAY), says("Done."), store=store, approve=lambda _: Suspend(ttl=60.0))
    answer = agent.run_sync("Pay.")
    run_id = answer.run_id
    pass_time(61)
    with pytest.raises(ApprovalExpired):
        approve_call(store, run_id, "pay-1")
    again = agent.resume_sync(run_id)
    assert again.suspended
    assert again.pending[0].expires_at > answer.pending[0].expires_at
    approve_call(store, run_id, "pay-1")
    pass_time(61)
    assert agent.resume_sync(run_id).suspended, "the approval was not used in time"
    assert world.log == []


def test_policy_is_checked_again_when_the_call_is_approved(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1")
    strict = Policy(checks=(toolwire.run.at_most("amount", 1),), approve=("write",))
    answer = world.agent(says("Oh."), store=store, policy=strict).resume_sync(waiting.run_id)
    assert "amount must be at most 1" in answer.results[0].text
    assert world.log == ["look here"]


def test_each_of_several_calls_is_decided_alone(world, store):
    calls = [ToolCall(f"p{number}", "pay", {"amount": 5}) for number in range(3)]
    agent = world.agent(says(*calls), says("Done."), store=store)
    answer = agent.run_sync("Pay three times.")
    assert [call.call_id for call in answer.pending] == ["p0", "p1", "p2"]
    approve_call(store, answer.run_id, "p2")
    assert [call.call_id for call in agent.resume_sync(answer.run_id).pending] == ["p0", "p1"]
    assert world.log == [], "it runs after the earlier calls"
    deny_call(store, answer.run_id, "p0")
    approve_call(store, answer.run_id, "p1")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert world.log == ["pay 5", "pay 5"], "identical calls of a turn are separate calls"


def test_streamed_run_is_suspended_too(world, store):
    agent = world.agent(says(PAY, LOOK), says("Done."), store=store)
    answer = next(item for item in agent.stream_sync("Pay.") if isinstance(item, Answer))
    assert answer.suspended
    approve_call(store, answer.run_id, "pay-1")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert world.log == ["look here", "pay 5"]


def test_tool_that_suspends_itself_gets_its_result_later(world, store):
    started = []

    @toolwire.tool(effect="write")
    def order(item: str) -> Suspended:
        """Order an item."""
        started.append(item)
        return Suspended({"job": 7}, why="the supplier answers tomorrow")

    call = ToolCall("o", "order", {"item": "tea"})
    agent = Agent(ScriptedModel([says(call), says("It arrives.")]), [order], store=store)
    answer = agent.run_sync("Order tea.")
    (pending,) = answer.pending
    assert (pending.needs, pending.state, pending.why) == ("result", {"job": 7}, "the supplier answers tomorrow")
    assert agent.resume_sync(answer.run_id).suspended
    supply_result(store, answer.run_id, "o", {"arrives": "tomorrow"})
    answer = agent.resume_sync(answer.run_id)
    assert answer.output == "It arrives."
    assert answer.results[0].structured == {"arrives": "tomorrow"}
    assert started == ["tea"]


def test_gate_suspends_a_call_without_running_it(world, store):
    def review(pending):
        return Suspended({"ticket": 3}, why="a reviewer answers") if pending.call.name == "pay" else pending

    runner = Runner(world.pay, world.look, store=store, gates=(*GATES, review))
    agent = Agent(ScriptedModel([says(PAY, LOOK), says("Done.")]), runner)
    answer = agent.run_sync("Pay.")
    assert [(call.tool, call.needs, call.state) for call in answer.pending] == [("pay", "result", {"ticket": 3})]
    supply_result(store, answer.run_id, "pay-1", "paid by hand")
    assert agent.resume_sync(answer.run_id).results[0].text == "paid by hand"
    assert world.log == ["look here"]


def test_subagent_that_waits_suspends_the_call_of_its_parent(world, store):
    child = world.agent(says(PAY), says("Paid 5."), store=store, name="treasurer", tools=[world.pay])
    parent = Agent(
        ScriptedModel([says(ToolCall("t", "treasurer", {"prompt": "Pay 5."})), says("All paid.")]),
        [child.as_tool()],
        store=store,
    )
    answer = parent.run_sync("Pay everything.")
    (waiting,) = answer.pending
    assert [(call.call_id, call.tool) for call in waiting.calls] == [("pay-1", "pay")]
    approve_call(store, waiting.state["run_id"], "pay-1")
    supply_result(store, answer.run_id, "t", child.resume_sync(waiting.state["run_id"]).output)
    answer = parent.resume_sync(answer.run_id)
    assert (answer.output, answer.results[0].text) == ("All paid.", "Paid 5.")
    assert world.log == ["pay 5"]


def nested(world, store, *, child_lines, parent_lines=(says("All paid."),), **options):
    child = world.agent(*child_lines, store=store, name="treasurer", tools=[world.pay], **options)
    call = says(ToolCall("t", "treasurer", {"prompt": "Pay 5."}))
    return Agent(ScriptedModel([call, *parent_lines]), [child.as_tool()], store=store, price=lambda _: 1.0)


def test_subagent_that_waits_is_continued_with_its_parent(world, store):
    more = says(ToolCall("pay-2", "pay", {"amount": 6}))
    parent = nested(world, store, child_lines=[says(PAY), more, says("Paid 11.")], price=lambda _: 10.0)
    answer = parent.run_sync("Pay everything.")
    child_id = answer.pending[0].state["run_id"]
    assert parent.resume_sync(answer.run_id).suspended, "nothing is decided"
    approve_call(store, child_id, "pay-1")
    answer = parent.resume_sync(answer.run_id)
    assert [call.call_id for call in answer.pending[0].calls] == ["pay-2"], "the subagent asks again"
    assert [call.call_id for call in store_waiting(store, answer.run_id)] == ["pay-2"]
    approve_call(store, child_id, "pay-2")
    answer = parent.resume_sync(answer.run_id)
    assert (answer.output, answer.results[0].text) == ("All paid.", "Paid 11.")
    assert world.log == ["pay 5", "pay 6"]
    assert answer.cost == 32.0, "the requests of the subagent count before and after it waited"


def store_waiting(store, run_id):
    (waiting,) = Session.load(read_state(store, run_id), now=time.time).waiting
    return waiting.calls


def test_parent_reads_why_its_subagent_did_not_finish(world, store):
    parent = nested(world, store, child_lines=[says(PAY)], budget=Budget(iterations=1))
    answer = parent.run_sync("Pay everything.")
    approve_call(store, answer.pending[0].state["run_id"], "pay-1")
    answer = parent.resume_sync(answer.run_id)
    assert answer.results[0].is_error
    assert answer.results[0].text == "treasurer did not finish: max iterations reached (1)"


def test_session_of_a_parent_continues_its_subagent(world, store):
    parent = nested(world, store, child_lines=[says(PAY), says("Paid 5.")])
    answer = parent.run_sync("Pay everything.")
    approve_call(store, answer.pending[0].state["run_id"], "pay-1")
    assert parent.run_sync(answer.session()).results[0].text == "Paid 5."


def test_without_an_approver_calls_are_still_denied(world, store):
    answer = world.agent(says(PAY), says("Oh."), store=store, approve=None).run_sync("Pay.")
    assert answer.finished
    assert "was not approved" in answer.results[0].text


def test_runner_without_a_session_returns_a_suspended_result(world):
    (result,) = Runner(world.pay, policy=POLICY, approve="suspend").run_sync([PAY])
    assert result.is_error
    assert result.text == "This call waits for approval: pay is a write tool. It is not finished."
    assert world.log == []


def test_rewritten_arguments_are_shown_and_approved(store, tmp_path):
    log = []

    @toolwire.tool(effect="write")
    def save(path: str) -> str:
        """Save a file."""
        log.append(path)
        return "saved"

    policy = Policy(checks=(path_jail("path", "/files"),), approve=("write",))
    call = ToolCall("s", "save", {"path": "a.txt"})
    agent = Agent(ScriptedModel([says(call), says("Done.")]), [save], store=store, policy=policy, approve="suspend")
    answer = agent.run_sync("Save.")
    assert answer.pending[0].arguments == {"path": "/files/a.txt"}
    approve_call(store, answer.run_id, "s")
    assert agent.resume_sync(answer.run_id).output == "Done."
    assert log == ["/files/a.txt"]


def test_run_is_continued_by_one_process_at_a_time(world, waiting, store):
    assert store.runs.lease(waiting.run_id, "another process", 60)
    with pytest.raises(RunConflict, match="another process continues"):
        world.agent(store=store).resume_sync(waiting.run_id)
    with pytest.raises(RunConflict, match="another process continues"):
        approve_call(store, waiting.run_id, "pay-1")


def test_unknown_run_or_missing_store_is_an_error(world, store):
    with pytest.raises(ConfigError, match="there is no run 'r9'"):
        world.agent(store=store).resume_sync("r9")
    with pytest.raises(ConfigError, match="there is no run 'r9'"):
        approve_call(store, "r9", "c")
    with pytest.raises(ConfigError, match="without a store"):
        world.agent().resume_sync("r9")


def test_interrupted_run_continues_after_its_last_step(world, store):
    """The model fails in the second turn: the first turn is not repeated."""

    def fail(request):
        raise ConnectionError("the model is down")

    agent = world.agent(says(LOOK), fail, says("Seen."), store=store)
    with pytest.raises(ConnectionError):
        agent.run_sync("Look.")
    (stored,) = store.runs.list()
    assert (stored.status, stored.token) == ("running", "")
    assert agent.resume_sync(stored.run_id).output == "Seen."
    assert world.log == ["look here"]


def test_interrupted_run_is_kept_as_long_as_the_records_of_its_calls(world, store):
    """Without the records, the calls after the last save could run twice."""

    def fail(request):
        raise ConnectionError("the model is down")

    with pytest.raises(ConnectionError):
        world.agent(says(LOOK), fail, store=store).run_sync("Look.")
    (stored,) = store.runs.list()
    assert stored.expires_at - stored.updated_at <= 24 * 60 * 60


def test_run_that_cannot_be_saved_is_not_reported_as_waiting(world, store, monkeypatch):
    refuse_appends(store, monkeypatch, "waiting")
    with pytest.raises(StoreError, match="disk full"):
        world.agent(says(PAY), store=store).run_sync("Pay.")


@pytest.mark.finding("RU2")
def test_run_that_cannot_be_saved_is_not_reported_as_finished(world, store, monkeypatch):
    """Otherwise the answer says finished while the store says running, and the run could be continued."""
    refuse_appends(store, monkeypatch, "done")
    with pytest.raises(StoreError, match="disk full"):
        world.agent(says(LOOK), says("Seen."), store=store).run_sync("Look.")
    (stored,) = store.runs.list()
    monkeypatch.undo()
    assert world.agent(says("Seen."), store=store).resume_sync(stored.run_id).output == "Seen."
    assert world.log == ["look here"]


@pytest.mark.finding("RU1")
def test_step_that_could_not_be_saved_is_saved_with_the_next_one(world, store, monkeypatch):
    real, attempts = store.runs.append, []

    def append(run, *arguments, **options):
        attempts.append(run.status)
        if len(attempts) == 1:
            raise StoreError("disk full")
        return real(run, *arguments, **options)

    monkeypatch.setattr(store.runs, "append", append)
    answer = world.agent(says(LOOK), says("Seen."), store=store).run_sync("Look.")
    stored = store.runs.get(answer.run_id)
    assert (attempts, stored.version) == (["running", "running", "running", "done"], 3)
    assert Session.load(read_state(store, answer.run_id), now=time.time).state.request.messages == answer.messages


@pytest.mark.finding("RU2")
@pytest.mark.parametrize("lost", [1, 2])
def test_append_whose_response_was_lost_does_not_end_the_run(world, store, monkeypatch, lost):
    """The store has the events, so the next save must not take them for events of another process."""
    real, attempts = store.runs.append, []

    def append(run, *arguments, **options):
        stored = real(run, *arguments, **options)
        attempts.append(run.status)
        if len(attempts) == lost:
            raise StoreError("no reply within 5 seconds")
        return stored

    monkeypatch.setattr(store.runs, "append", append)
    answer = world.agent(says(LOOK), says("Seen."), store=store).run_sync("Look.")
    assert (answer.output, world.log) == ("Seen.", ["look here"])
    stored = store.runs.get(answer.run_id)
    assert (stored.status, stored.version) == ("done", 3)
    assert Session.load(read_state(store, answer.run_id), now=time.time).state.request.messages == answer.messages


@pytest.mark.finding("RU1")
@pytest.mark.parametrize("number", [1, 2])
def test_run_that_is_cancelled_during_a_save_can_be_continued_at_once(world, store, monkeypatch, number):
    """The append goes on in its thread. If it ended after the release, the run would be leased to nobody for a minute."""
    real, attempts = store.runs.append, []
    entered, leave = threading.Event(), threading.Event()

    def append(*arguments, **options):
        attempts.append(arguments)
        if len(attempts) == number:
            entered.set()
            leave.wait(SAFETY)
        return real(*arguments, **options)

    async def cancel():
        task = asyncio.create_task(world.agent(says(LOOK), says("Seen."), store=store).run("Look."))
        assert await asyncio.to_thread(entered.wait, SAFETY)
        task.cancel()
        await asyncio.sleep(0.05)
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(store.runs, "append", append)
    asyncio.run(cancel())
    (stored,) = store.runs.list()
    assert (stored.version, stored.token) == (number, "")
    assert world.agent(says("Seen."), store=store).resume_sync(stored.run_id).output == "Seen."
    assert world.log == ["look here"]


@pytest.mark.finding("RU1")
def test_steps_are_encoded_outside_the_event_loop(world, store, monkeypatch):
    real, threads = checkpoints.encode_steps, set()

    def encode(*arguments, **options):
        threads.add(threading.current_thread())
        return real(*arguments, **options)

    monkeypatch.setattr(checkpoints, "encode_steps", encode)
    assert asyncio.run(world.agent(says(LOOK), says("Seen."), store=store).run("Look.")).output == "Seen."
    assert threads
    assert threading.current_thread() not in threads


@pytest.mark.finding("RU1")
def test_resume_that_is_cancelled_while_it_takes_the_lease_leaves_none(world, waiting, store, monkeypatch):
    approve_call(store, waiting.run_id, "pay-1")
    real, entered, leave = store.runs.lease, threading.Event(), threading.Event()

    def lease(*arguments):
        entered.set()
        leave.wait(SAFETY)
        return real(*arguments)

    async def cancel():
        task = asyncio.create_task(world.agent(store=store).resume(waiting.run_id))
        assert await asyncio.to_thread(entered.wait, SAFETY)
        task.cancel()
        await asyncio.sleep(0.05)
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(store.runs, "lease", lease)
    asyncio.run(cancel())
    assert store.runs.get(waiting.run_id).token == ""


@pytest.mark.finding("RU1")
def test_session_that_cannot_be_taken_over_leaves_no_lease(world, waiting, store, monkeypatch):
    session = waiting.session()
    session.approve("pay-1")
    monkeypatch.setattr(checkpoints, "fold_events", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.agent(store=store).run_sync(session)
    assert store.runs.get(waiting.run_id).token == ""


def refuse_appends(store, monkeypatch, status):
    real = store.runs.append

    def append(run, *arguments, **options):
        if run.status == status:
            raise StoreError("disk full")
        return real(run, *arguments, **options)

    monkeypatch.setattr(store.runs, "append", append)


def test_session_without_an_id_is_not_stored(world, store):
    request = toolwire.Request("m", (toolwire.Message("user", (toolwire.Text("Look."),)),))
    session = Session(request, now=time.time)
    assert world.agent(says("Hm."), store=store).run_sync(session).output == "Hm."
    assert store.runs.list() == ()


@pytest.mark.parametrize("prompt", [None, "And be quick."])
def test_approval_is_kept_if_the_agent_does_not_have_the_tool(world, waiting, store, prompt):
    approve_call(store, waiting.run_id, "pay-1")
    before = store.runs.get(waiting.run_id)
    other = world.agent(says("Paid."), store=store, tools=[world.look])
    with pytest.raises(ConfigError, match="waits for pay, which this agent does not have"):
        other.resume_sync(waiting.run_id, prompt)
    assert other.model.requests == []
    after = store.runs.get(waiting.run_id)
    assert (after.rows, after.status, after.version) == (before.rows, "running", before.version)
    assert world.agent(says("Paid."), store=store).resume_sync(waiting.run_id).output == "Paid."
    assert world.log == ["look here", "pay 5"]


def test_session_is_kept_if_the_agent_does_not_have_the_tool(world):
    session = world.agent(says(PAY)).run_sync("Pay 5.").session()
    session.approve("pay-1")
    with pytest.raises(ConfigError, match="does not have"):
        world.agent(says("Paid."), tools=[world.look]).run_sync(session)
    assert world.agent(says("Paid.")).run_sync(session).output == "Paid."


def test_resumed_run_streams_its_calls_and_results(world, waiting, store):
    approve_call(store, waiting.run_id, "pay-1")

    async def scenario():
        agent = world.agent(says("Paid."), store=store)
        return [item async for item in agent.resume_stream(waiting.run_id)]

    items = asyncio.run(scenario())
    assert [item.name for item in items if isinstance(item, ToolCall)] == ["pay"], "the read has run before"
    assert [item.text for item in items if isinstance(item, ToolResult)] == ["paid 5"]
    assert isinstance(items[-1], Answer)
    assert items[-1].output == "Paid."
    assert store.runs.get(waiting.run_id).token == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"amount": "x"}, '/amount: expected integer, got "x"'),
        ({}, "amount"),
        ({"amount": 3, "curency": "EUR"}, "/curency: the tool has no such parameter"),
        ([1], "must be an object, got list"),
    ],
)
def test_invalid_edited_arguments_are_refused_and_the_call_still_waits(world, waiting, store, arguments, problem):
    with pytest.raises(ConfigError) as error:
        approve_call(store, waiting.run_id, "pay-1", arguments)
    assert problem in str(error.value)
    assert store.runs.get(waiting.run_id).status == "waiting"
    approve_call(store, waiting.run_id, "pay-1", {"amount": 3, "idempotency_key": "k1"})
    assert world.agent(says("Paid."), store=store).resume_sync(waiting.run_id).output == "Paid."
    assert world.log == ["look here", "pay 3"]
