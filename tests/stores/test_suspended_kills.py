"""kill -9 before and after every operation of the store, from the first call to the answer: nothing runs twice.

The memory store is that of another process here, so that it outlives the killed one.
"""

import time

import pytest

from run_logs import read_state, replace_state
from stores import approval_worker as worker
from stores.servers import PROCESSES
from stores.worker import executions
from toolwire.net import approve_call
from toolwire.run import Suspend
from toolwire.run.values.results import result_code
from toolwire.run.values.waiting import ApprovalExpired
from toolwire.testing import says


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


def killed(target, *arguments, die_at):
    """Run a function in a process that kills itself. Return False if it ended before the kill."""
    process = PROCESSES.Process(target=target, args=arguments, kwargs={"die_at": die_at})
    process.start()
    process.join()
    assert process.exitcode in (0, -9)
    return process.exitcode == -9


def points(count):
    return [(number, side) for number in range(count) for side in ("before", "after")]


@pytest.mark.one_in(4)
def test_kill_around_every_operation_before_the_suspension(store_url, store, effects):
    """After each kill the stored run is continued, approved and ended: the first call ran at most once."""
    run_id, count = worker.suspend(store_url, effects)
    for point in points(count):
        store.runs.delete(run_id)
        effects.unlink(missing_ok=True)
        assert killed(worker.suspend, store_url, effects, die_at=point), point
        time.sleep(worker.LEASE + 0.05)
        stored = store.runs.list()
        if not stored:
            assert not effects.exists(), "no call runs before the run is stored"
            continue
        run_id = stored[0].run_id
        assert worker.resume(store_url, effects, run_id)[0].suspended
        worker.approve(store_url, run_id)
        assert worker.resume(store_url, effects, run_id)[0].output == "Done."
        counts = executions(effects)
        assert counts["note start"] <= 1, point
        assert counts["pay 5"] == 1, point


@pytest.mark.finding("X7")
def test_suspended_run_survives_a_kill_between_suspension_and_approval(store_url, store, effects):
    """The process that suspended the run is killed at its end; the approval and the rest happen in others."""
    _, count = worker.suspend(store_url, effects)
    (first,) = store.runs.list()
    store.runs.delete(first.run_id)
    effects.unlink()
    assert killed(worker.suspend, store_url, effects, die_at=(count - 1, "after"))
    (waiting,) = store.runs.list("waiting")
    assert executions(effects) == {"note start": 1}
    worker.approve(store_url, waiting.run_id)
    answer, _ = worker.resume(store_url, effects, waiting.run_id)
    assert answer.output == "Done."
    assert executions(effects) == {"note start": 1, "pay 5": 1}


def test_kill_around_every_operation_of_the_approval(store_url, store, effects):
    run_id, _ = worker.suspend(store_url, effects)
    for point in points(3):  # get, rows, append
        assert killed(worker.approve, store_url, run_id, die_at=point)
        if store.runs.get(run_id).status == "running":
            break
    assert point == (2, "after")
    answer, _ = worker.resume(store_url, effects, run_id)
    assert answer.output == "Done."
    assert executions(effects) == {"note start": 1, "pay 5": 1}


@pytest.mark.one_in(4)
def test_kill_around_every_operation_of_the_continued_run(store_url, effects):
    """After each kill the run is continued again: it ends with an answer, and the payment ran at most once."""
    run_id, _ = worker.suspend(store_url, effects)
    worker.approve(store_url, run_id)
    _, count = worker.resume(store_url, effects, run_id)
    assert executions(effects) == {"note start": 1, "pay 5": 1}
    outcomes = set()
    for point in points(count):
        effects.unlink()
        run_id, _ = worker.suspend(store_url, effects)
        worker.approve(store_url, run_id)
        assert killed(worker.resume, store_url, effects, run_id, die_at=point), point
        time.sleep(worker.LEASE + 0.05)
        answer, _ = worker.resume(store_url, effects, run_id)
        counts = executions(effects)
        assert answer.finished
        assert counts["note start"] == 1, point
        assert counts["pay 5"] <= 1, f"the payment ran twice after a kill {point}"
        outcome = "paid" if answer.results[-1].text == "paid 5" else result_code(answer.results[-1])
        outcomes.add((outcome, counts["pay 5"]))
    assert outcomes == {("paid", 1), ("outcome_unknown", 0), ("outcome_unknown", 1)}


def test_expired_approval_is_refused_on_every_store(store, effects, monkeypatch):
    clock, hours = time.time, [0]
    monkeypatch.setattr(time, "time", lambda: clock() + 3600 * hours[0])
    lines = [says(worker.PAY), says("Done.")]
    agent = worker.make_agent(store, effects, lines, approve=lambda _: Suspend(ttl=3600))
    answer = agent.run_sync("Pay 5.")
    hours[0] = 1
    with pytest.raises(ApprovalExpired):
        approve_call(store, answer.run_id, "pay-1")
    again = agent.resume_sync(answer.run_id)
    approve_call(store, again.run_id, "pay-1")
    hours[0] = 2
    assert agent.resume_sync(answer.run_id).suspended
    assert not effects.exists()


def test_call_edited_after_the_approval_is_refused_on_every_store(store_url, store, effects):
    run_id, _ = worker.suspend(store_url, effects)
    approve_call(store, run_id, "pay-1")
    edited = read_state(store, run_id).replace('"amount":5', '"amount":500')
    assert replace_state(store, run_id, edited)
    answer, _ = worker.resume(store_url, effects, run_id)
    assert answer.suspended
    assert executions(effects) == {"note start": 1}
