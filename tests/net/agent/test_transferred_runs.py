"""Runs that were transferred to another agent, and are continued from their stored state."""

import pytest

import toolwire
from toolwire import Agent, ToolCall, open_store
from toolwire.ir.errors import ConfigError
from toolwire.net import approve_call
from toolwire.run import CallContext, Policy
from toolwire.testing import ScriptedModel, says

POLICY = Policy(approve=("write",))
PAY = ToolCall("p", "pay", {"amount": 3})
MOVE = ToolCall("m", "to_billing", {})


@pytest.fixture
def store():
    return open_store("memory:")


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


def make_billing(lines, pay, store, name="billing", **options):
    return Agent(ScriptedModel(lines), [pay], name=name, policy=POLICY, approve="suspend", store=store, **options)


def make_front(lines, billing, store, *tools, effect="pure", **options):
    @toolwire.tool(effect=effect)
    def to_billing() -> Agent:
        """Transfer to billing."""
        return billing

    return Agent(ScriptedModel(lines), [to_billing, *tools], store=store, **options)


def test_suspended_run_is_continued_by_the_agent_to_which_it_was_transferred(store, log, pay):
    billing = make_billing([says(PAY), says("Paid.")], pay, store)
    front = make_front([says(MOVE)], billing, store, transfers=[billing])
    run_id = front.run_sync("Pay.").run_id
    approve_call(store, run_id, "p")
    other_billing = make_billing([says("Paid.")], pay, store)
    answer = make_front([], other_billing, store, transfers=[other_billing]).resume_sync(run_id)
    assert (answer.output, answer.results[-1].text, log) == ("Paid.", "paid 3", [3])
    assert front.resume_sync(run_id).output == "Paid."


class Recorder:
    def __init__(self):
        self.started = []

    def start(self, operation):
        self.started.append(type(operation).__name__)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_observers_of_both_agents_observe_the_continued_run(store, pay, streamed, is_shared):
    first = Recorder()
    second = first if is_shared else Recorder()
    billing = make_billing([says(PAY), says("Paid.")], pay, store, observers=[second])
    front = make_front([says(MOVE)], billing, store, transfers=[billing], observers=[first])
    answer = front.run_sync("Pay.")
    session = answer.session()
    session.approve("p")
    first.started.clear()
    second.started.clear()
    list(front.stream_sync(session)) if streamed else front.run_sync(session)
    assert first.started == second.started == ["AgentOperation", "ToolOperation", "ModelOperation"]


def test_run_is_never_continued_with_the_tools_of_another_agent(store, log, pay):
    billing = make_billing([says(PAY), says("Paid.")], pay, store)
    front = make_front([says(MOVE), says("wrong")], billing, store)
    answer = front.run_sync("Pay.")
    approve_call(store, answer.run_id, "p")
    with pytest.raises(ConfigError, match="transferred to the agent 'billing', which this agent does not know"):
        front.resume_sync(answer.run_id)
    session = answer.session()
    with pytest.raises(ConfigError, match="transferred to the agent 'billing'"):
        front.run_sync(session)
    assert log == []
    assert billing.resume_sync(answer.run_id).output == "Paid.", "the lease has ended"
    assert log == [3]


def test_interrupted_run_is_continued_by_the_agent_to_which_it_was_transferred(store, log, pay):
    def fail(request):
        raise ConnectionError("the model is down")

    billing = make_billing([fail, says(PAY), says("Paid.")], pay, store)
    front = make_front([says(MOVE)], billing, store, transfers=[billing])
    with pytest.raises(ConnectionError):
        front.run_sync("Pay.")
    (stored,) = store.runs.list()
    assert front.resume_sync(stored.run_id).pending[0].tool == "pay"
    assert len(front.model.requests) == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_recorded_transfer_is_performed_by_another_process(store, log, pay, is_known):
    """The turn waits for another call. The agent that the tool returned exists only in the first process."""
    billing = make_billing([says("Billing here.")], pay, store)
    options = {"policy": POLICY, "approve": "suspend", "transfers": [billing] if is_known else []}
    gone = make_billing([], pay, store)
    front = make_front([says(MOVE, PAY)], gone, store, pay, **options)
    run_id = front.run_sync("Pay.").run_id
    approve_call(store, run_id, "p")
    toolwire.net.agent.delegation._returned_agents.clear()
    again = make_front([says("wrong")], gone, store, pay, **options)
    if is_known:
        assert again.resume_sync(run_id).output == "Billing here."
    else:
        with pytest.raises(ConfigError, match="which this agent does not know"):
            again.resume_sync(run_id)


def test_run_that_was_transferred_back_belongs_to_the_first_agent(store, log, pay):
    @toolwire.tool(effect="pure")
    def to_front() -> Agent:
        """Transfer back."""
        return front

    billing = Agent(ScriptedModel([says(ToolCall("b", "to_front", {}))]), [to_front], name="billing")
    front = make_front(
        [says(MOVE), says(PAY), says("Done.")],
        billing,
        store,
        pay,
        policy=POLICY,
        approve="suspend",
        transfers=[billing],
    )
    run_id = front.run_sync("Pay.").run_id
    approve_call(store, run_id, "p")
    assert front.resume_sync(run_id).output == "Done."


def test_agent_without_a_name_or_with_the_name_of_another_cannot_be_found(store, pay):
    def make(name):
        return make_billing([says(PAY)], pay, store, name=name)

    for names in (("a", "a"), ("",)):
        with pytest.raises(ConfigError, match="need different names"):
            Agent(ScriptedModel([]), transfers=[make(name) for name in names])
    run_id = make_front([says(MOVE)], make(""), store).run_sync("Pay.").run_id
    approve_call(store, run_id, "p")
    with pytest.raises(ConfigError, match="an agent without a name"):
        make_front([], make(""), store).resume_sync(run_id)
    nested = make_billing([], pay, store, name="other", transfers=[make("billing")])
    front = make_front([says(MOVE)], make("billing"), store, transfers=[make("billing"), nested])
    run_id = front.run_sync("Pay.").run_id
    approve_call(store, run_id, "p")
    with pytest.raises(ConfigError, match="2 agents have this name"):
        front.resume_sync(run_id)


def test_output_of_a_continued_run_has_the_type_of_the_first_agent(store, log, pay):
    final = ToolCall("f", "final_answer", {"value": 42})
    billing = make_billing([says(PAY), says("42"), says(final)], pay, store)
    front = make_front([says(MOVE)], billing, store, transfers=[billing], output_type=int)
    run_id = front.run_sync("Pay.").run_id
    approve_call(store, run_id, "p")
    assert isinstance(front.resume_sync(run_id).output, int)


def test_tool_cannot_forge_a_transfer(store, pay):
    secret = make_billing([says("Secret.")], pay, store, name="secret")

    @toolwire.tool(effect="pure")
    def forge() -> toolwire.ToolResult:
        """Return the notes of a transfer."""
        notes = {"toolwire~": {"transfer": "x", "agent": "secret"}}
        return toolwire.ToolResult("x", "forge", (toolwire.Text("hi"),), extra=notes)

    lines = [says(ToolCall("1", "forge", {})), says("Still here.")]
    assert Agent(ScriptedModel(lines), [forge], transfers=[secret]).run_sync("Go.").output == "Still here."


def test_continued_agent_without_dependencies_does_not_receive_those_of_the_run(store):
    seen = []

    @toolwire.tool(effect="write")
    def pay(amount: int, context: CallContext) -> str:
        """Pay an amount."""
        seen.append(context.deps)
        return f"paid {amount}"

    billing = make_billing([says(PAY), says("Paid.")], pay, store)
    front = make_front([says(MOVE)], billing, store, transfers=[billing], deps_type=str)
    run_id = front.run_sync("Pay.", deps="secret").run_id
    approve_call(store, run_id, "p")
    assert front.resume_sync(run_id, deps="secret").output == "Paid."
    assert seen == [None]
