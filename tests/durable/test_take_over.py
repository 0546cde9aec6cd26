"""A worker dies at any moment: another one finishes its runs without an operator, and no write happens twice."""

import time

import pytest

from durable.program import TURNS
from stores.worker import executions
from toolwire.durable.take_over import WorkerRounds
from toolwire.net import approve_call
from toolwire.run.values.records import StoredRun
from waiting import SAFETY, wait_until

on_one_machine = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.mark.parametrize("point", ["model 0", "model 1"])
def test_run_of_a_worker_killed_during_a_model_turn_is_finished_by_another(
    runs, start_worker, kill_at, tmp_path, point
):
    run_id = runs.enqueue("notes", "Note.")
    kill_at(point)
    start_worker()
    report = runs.wait(run_id, SAFETY)
    assert (report.status, report.output) == ("done", "Done.")
    assert executions(tmp_path / "effects") == {str(number): 1 for number in range(TURNS)}


def test_write_of_a_worker_killed_during_the_tool_is_reported_as_unknown(runs, start_worker, kill_at, tmp_path):
    run_id = runs.enqueue("notes", "Note.")
    kill_at("tool 0")
    start_worker()
    assert runs.wait(run_id, SAFETY).status == "done"
    assert executions(tmp_path / "effects") == {"0": 1, "1": 1}
    results = [
        part.text
        for update in runs.updates(run_id)
        for message in update.messages
        for part in message.parts
        if type(part).__name__ == "ToolResult"
    ]
    assert ["may or may not have taken effect" in text for text in results] == [True, False]


def test_live_worker_takes_over_while_it_executes_other_runs(runs, start_worker, kill_at, tmp_path):
    first = runs.enqueue("notes", "Note.")
    kill_at("model 1")
    other = runs.enqueue("notes", "Note too.")
    start_worker()
    assert {runs.wait(run_id, SAFETY).status for run_id in (first, other)} == {"done"}
    assert executions(tmp_path / "effects") == {str(number): 2 for number in range(TURNS)}


@on_one_machine
def test_run_that_has_expired_in_the_store_does_not_begin_again(runs, start_worker, kill_at, tmp_path):
    run_id = runs.enqueue("notes", "Note.")
    kill_at("model 1")
    wait_until(lambda: runs.store.runs.delete(run_id), 0.1)  # as its expiry does
    runs.client.update_workflow_attributes(f"{run_id}:1", {"begun_at": time.time() - 86_400}, merge=True)
    start_worker()
    report = runs.wait(run_id, SAFETY)
    assert (report.status, "has expired in the store" in report.reason) == ("failed", True)
    assert executions(tmp_path / "effects") == {"0": 1}


@on_one_machine
def test_run_that_was_cancelled_during_its_take_over_stays_cancelled(runs, kill_at, monkeypatch):
    run_id = runs.enqueue("notes", "Note.")
    kill_at("model 1")
    wait_until(lambda: not runs.live_versions(), 0.1)
    update = runs.client.update_workflow_attributes

    def cancel_and_update(*arguments, **options):
        runs.cancel(run_id)
        update(*arguments, **options)

    monkeypatch.setattr(runs.client, "update_workflow_attributes", cancel_and_update)
    rounds = WorkerRounds(runs, "other", "v1", 60.0)
    rounds.begin_heartbeat()
    rounds.perform(set)
    assert runs.report(run_id).status == "cancelled"
    assert runs.store.records("unknown") == []  # the heartbeat of the worker that died


@on_one_machine
def test_worker_whose_own_heartbeat_expired_takes_nothing_over_until_others_had_time_to_renew(runs, kill_at):
    """After a jump of the store's clock, or a pause of this process, the heartbeats of live workers look expired."""
    run_id = runs.enqueue("notes", "Note.")
    kill_at("model 1")
    wait_until(lambda: not runs.live_versions(), 0.1)
    rounds = WorkerRounds(runs, "other", "v1", 1.0)
    rounds.begin_heartbeat()
    wait_until(lambda: not runs.live_versions(), 0.1)
    rounds.perform(set)
    rounds.renew_heartbeat()
    rounds.perform(set)
    assert runs.report(run_id).status == "running"

    def take_over():
        rounds.renew_heartbeat()
        rounds.perform(set)
        return runs.report(run_id).status == "queued"

    wait_until(take_over, 0.2)


@on_one_machine
def test_decided_run_is_continued_whatever_else_is_in_the_store(runs, start_worker):
    """A thousand newer runs are in progress, and as many were decided that no worker executes."""
    run_id = runs.enqueue("notes", "Note.")
    worker = start_worker(approves=True)
    assert runs.wait(run_id, SAFETY).status == "waiting"
    worker.kill()
    worker.join()
    for number in range(1000):
        runs.store.runs.append(StoredRun(f"leased-{number}", token="t"), [b""], 0)
        runs.store.runs.append(StoredRun(f"decided-{number}"), [b""], 0)
    approve_call(runs.store, run_id, "c0")
    WorkerRounds(runs, "other", "v1", 60.0).perform(set)
    report = runs.report(run_id)
    assert (report.status, report.segment) == ("queued", 2)


@on_one_machine
def test_heartbeat_whose_record_was_lost_begins_again(runs):
    rounds = WorkerRounds(runs, "one", "v1", 0.1)
    rounds.begin_heartbeat()
    wait_until(lambda: runs.store.resolve("toolwire-worker/one", None), 0.05)
    rounds.renew_heartbeat()
    assert [record.fingerprint for record in runs.store.records()] == ["v1"]


@on_one_machine
def test_sweep_deletes_heartbeats_of_workers_that_died(runs, kill_at):
    runs.enqueue("notes", "Note.")
    kill_at("model 0")
    wait_until(lambda: not runs.live_versions(), 0.1)
    runs.sweep()
    assert runs.store.records() == []
