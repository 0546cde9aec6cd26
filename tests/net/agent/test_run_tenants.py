"""Stored runs of one tenant are absent for another: to continue, to decide about, and to list."""

import pytest

import toolwire
from toolwire import Agent, ToolCall, open_store
from toolwire.cli.main import main
from toolwire.ir.errors import ConfigError
from toolwire.net import Runner, approve_call, deny_call, supply_result
from toolwire.run import Policy, RunConflict, Session
from toolwire.testing import ScriptedModel, says


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "runs.db"))
    yield opened
    opened.close()


def agent_of(tenant, store, *lines):
    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    runner = Runner(pay, store=store, tenant=tenant, policy=Policy(approve=("write",)), approve="suspend")
    return Agent(ScriptedModel(lines), runner)


@pytest.fixture
def run_id(store):
    return agent_of("a", store, says(ToolCall("c", "pay", {"amount": 1}))).run_sync("The secret of Ann.").run_id


def test_decisions_of_another_tenant_find_no_run(store, run_id):
    for tenant in ("b", ""):
        for decide in (approve_call, deny_call):
            with pytest.raises(ConfigError, match="there is no run"):
                decide(store, run_id, "c", tenant=tenant)
        with pytest.raises(ConfigError, match="there is no run"):
            supply_result(store, run_id, "c", "x", tenant=tenant)
    approve_call(store, run_id, "c", tenant="a")
    for tenant in ("b", ""):
        with pytest.raises(ConfigError, match="there is no run"):
            agent_of(tenant, store).resume_sync(run_id)
    assert store.runs.get(run_id).token == "", "the lease was not taken"
    answer = agent_of("a", store, says("Done.")).resume_sync(run_id)
    assert [result.text for result in answer.results] == ["paid 1"]


def test_session_with_the_run_id_of_another_tenant_is_refused(store, run_id):
    """Its state says that it belongs to this tenant; the store says that the run does not."""
    other = agent_of("b", store, says(ToolCall("c", "pay", {"amount": 2}))).run_sync("Pay.")
    forged = Session.load(other.state.replace(other.run_id, run_id), now=lambda: 0.0)
    with pytest.raises(RunConflict, match="the store has another run"):
        agent_of("b", store).run_sync(forged)
    assert "secret of Ann" in store.runs.get(run_id).summary


def test_run_of_a_tenant_is_saved_with_it(store, run_id):
    assert store.runs.get(run_id).tenant == "a"


def test_commands_show_and_change_the_runs_of_one_tenant(store, run_id, tmp_path, capsys):
    at = ["--store", str(tmp_path / "runs.db")]
    assert main(["runs", "list", *at]) == 0
    assert "no stored runs" in capsys.readouterr().out
    assert main(["runs", "list", "--tenant", "a", *at]) == 0
    assert run_id in capsys.readouterr().out
    for command in (["show", run_id], ["show", run_id[:6]], ["approve", run_id, "c"]):
        assert main(["runs", *command, *at]) == 2
        assert "secret" not in capsys.readouterr().out
    assert main(["runs", "approve", run_id[:6], "c", "--tenant", "a", *at]) == 0
    assert store.runs.get(run_id).status == "running"
