"""Approvals of single calls, for servers: stored, decided elsewhere, and used once by the next identical call."""

import threading
import time

import pytest

import toolwire
from toolwire import Runner, ToolCall, open_store
from toolwire.ir.errors import ConfigError
from toolwire.net import StoredApprovals, approve_call, deny_call
from toolwire.net.tools.stored_approvals import owned_by
from toolwire.run import Policy
from toolwire.run.values.results import result_code
from toolwire.run.values.waiting import ApprovalExpired

POLICY = Policy(approve=("write",))
CALL = ToolCall("c1", "pay", {"amount": 5})


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "runs.db"))
    yield opened
    opened.close()


@pytest.fixture
def log():
    return []


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
def pay(store, log):
    """Make the same call as a client of a server does: every time in a run of its own."""

    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay an amount."""
        log.append(amount)
        return f"paid {amount}"

    def call(amount=5, *, client="", ttl=60.0, tool=pay):
        runner = Runner(tool, store=store, policy=POLICY, approve=StoredApprovals(store.runs, ttl=ttl))
        with owned_by(client):
            (result,) = runner.run_sync([ToolCall("c1", "pay", {"amount": amount})])
        runner.close()
        return result

    return call


def question(store):
    (run,) = store.runs.list("waiting")
    return run.run_id


@pytest.mark.finding("X7")
def test_approval_admits_exactly_one_identical_call(store, log, pay):
    result = pay()
    assert result_code(result) == "suspended"
    assert question(store) in result.text
    assert pay().text == result.text, "the question is stored once"
    approve_call(store, question(store), "c1")
    assert pay().text == "paid 5"
    assert result_code(pay()) == "suspended", "the approval is used up"
    assert log == [5]


def test_approval_is_bound_to_the_arguments_the_client_and_the_definition(store, log, pay):
    pay(client="ann")
    approve_call(store, question(store), "c1")
    assert result_code(pay(6, client="ann")) == "suspended"
    assert result_code(pay(client="bob")) == "suspended"

    @toolwire.tool(name="pay", effect="write")
    def other(amount: int) -> str:
        """Pay an amount in gold."""
        log.append("gold")
        return ""

    assert result_code(pay(client="ann", tool=other)) == "suspended"
    assert log == []
    assert pay(client="ann").text == "paid 5"


def test_denied_call_gets_the_reason_once(store, log, pay):
    pay()
    deny_call(store, question(store), "c1", "too expensive")
    assert pay().text == "This call was not approved: too expensive. Nothing was run."
    assert result_code(pay()) == "suspended"
    assert log == []


def test_edited_arguments_run(store, log, pay):
    pay()
    approve_call(store, question(store), "c1", {"amount": 3})
    assert pay().text == '[A person changed the arguments of this call to {"amount":3}]\npaid 3'
    assert log == [3]


def test_expired_question_is_asked_again(store, log, pay, pass_time):
    pay(ttl=60.0)
    first = question(store)
    pass_time(61)
    with pytest.raises(ApprovalExpired):
        approve_call(store, first, "c1")
    assert result_code(pay(ttl=60.0)) == "suspended"
    assert question(store) == first
    approve_call(store, first, "c1")
    pass_time(61)
    assert result_code(pay()) == "suspended", "the approval was not used in time"
    assert log == []


def test_only_one_of_many_concurrent_calls_uses_the_approval(store, log, pay):
    pay()
    approve_call(store, question(store), "c1")
    results = []
    threads = [threading.Thread(target=lambda: results.append(pay())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log == [5]
    assert [result.text for result in results].count("paid 5") == 1


def test_client_has_a_limited_number_of_questions(store, log):
    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay an amount."""
        log.append(amount)
        return f"paid {amount}"

    runner = Runner(pay, policy=POLICY, approve=StoredApprovals(store.runs, max_waiting=2))

    def ask(amount, client):
        with owned_by(client):
            (result,) = runner.run_sync([ToolCall("c", "pay", {"amount": amount})])
        return result

    assert [result_code(ask(amount, "a")) for amount in (1, 2, 3, 4)] == ["suspended", "suspended", "denied", "denied"]
    assert "too many calls wait for approval" in ask(3, "a").text
    assert len(store.runs.list()) == 2
    assert result_code(ask(1, "a")) == "suspended", "a question that is known"
    assert result_code(ask(3, "b")) == "suspended", "another client"
    first = next(run for run in store.runs.list("waiting") if run.run_id in ask(1, "a").text)
    approve_call(store, first.run_id, "c")
    assert ask(1, "a").text == "paid 1"
    assert result_code(ask(3, "a")) == "suspended", "one question was decided"
    runner.close()


def test_question_is_kept_little_longer_than_it_can_be_answered(store, pay):
    pay(ttl=60.0)
    (run,) = store.runs.list()
    assert run.expires_at - run.updated_at == pytest.approx(60 + 3600, abs=1)


def test_limit_of_questions_is_positive(store):
    with pytest.raises(ConfigError, match="max_waiting must be at least 1"):
        StoredApprovals(store.runs, max_waiting=0)
