"""Runs in queues: approvals, events, cancelling, failures, limits, schedules, webhooks, and a worker that is stopped."""

import os
import signal
import subprocess
import sys

import pytest
import sqlalchemy
from sqlalchemy import text

from durable.program import TURNS
from stores.worker import executions
from toolwire.ir.errors import ConfigError, StoreError
from toolwire.net import approve_call
from waiting import SAFETY, wait_until

ONCE = {str(number): 1 for number in range(TURNS)}
on_one_machine = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def test_approval_from_another_process_continues_the_run(runs, start_worker, tmp_path):
    run_id = runs.enqueue("notes", "Note.")
    start_worker(approves=True)
    for number in range(TURNS):
        wait_until(lambda: [call.call_id for call in runs.report(run_id).pending] == [f"c{number}"], 0.1)
        approve_call(runs.store, run_id, f"c{number}")
    report = runs.wait(run_id, SAFETY, through_waits=True)
    assert (report.status, report.output, report.segment) == ("done", "Done.", TURNS + 1)
    assert executions(tmp_path / "effects") == ONCE


@on_one_machine
def test_approval_in_the_run_of_a_subagent_continues_the_calling_run(runs, start_worker, tmp_path):
    run_id = runs.enqueue("lead", "Delegate.")
    start_worker(approves=True)
    for number in range(TURNS):
        wait_until(
            lambda: [inner.call_id for call in runs.report(run_id).pending for inner in call.calls] == [f"c{number}"],
            0.1,
        )
        (call,) = runs.report(run_id).pending
        approve_call(runs.store, call.state["run_id"], f"c{number}")
    assert runs.wait(run_id, SAFETY, through_waits=True).status == "done"
    assert executions(tmp_path / "effects") == ONCE


@pytest.mark.parametrize("point", ["model 1", "tool 1"])
@on_one_machine
def test_run_of_a_subagent_is_continued_after_a_kill(runs, start_worker, kill_at, tmp_path, point):
    run_id = runs.enqueue("lead", "Delegate.")
    kill_at(point)
    start_worker()
    report = runs.wait(run_id, SAFETY)
    assert (report.status, report.output) == ("done", "Done.")
    assert executions(tmp_path / "effects") == ONCE
    stored = runs.store.runs.list()
    assert {run.run_id.partition(".")[0] for run in stored} == {run_id}
    assert len(stored) == 2


@on_one_machine
def test_events_of_a_run_are_read_from_any_position(runs, start_worker):
    run_id = runs.enqueue("notes", "Note.")
    start_worker()
    updates = list(runs.updates(run_id))
    assert [update.kind for update in updates] == [
        "start",
        "model_turn",
        "results",
        "model_turn",
        "results",
        "model_turn",
    ]
    for number, update in enumerate(updates):
        assert list(runs.updates(run_id, update.position)) == updates[number + 1 :]
    with pytest.raises(ConfigError, match="invalid position"):
        list(runs.updates(run_id, "first"))


@on_one_machine
def test_cancelled_run_stops_and_is_continued_by_resume(runs, start_worker, block_at, tmp_path):
    wait_until_blocked = block_at("model 1")
    run_id = runs.enqueue("notes", "Note.")
    start_worker()
    wait_until_blocked()
    assert runs.cancel(run_id).status == "cancelled"
    other = runs.enqueue("notes", "Note.")
    assert runs.wait(other, SAFETY).status == "done"
    assert runs.report(run_id).status == "cancelled"
    assert executions(tmp_path / "effects") == {"0": 2, "1": 1}
    runs.resume(run_id)
    assert runs.wait(run_id, SAFETY).status == "done"
    assert executions(tmp_path / "effects") == {"0": 2, "1": 2}


@on_one_machine
def test_cancelled_run_stays_cancelled_when_its_worker_stops(runs, start_worker, block_at):
    wait_until_blocked = block_at("model 1")
    run_id = runs.enqueue("notes", "Note.")
    worker = start_worker(poll=3600)  # the worker notices the end before it notices the cancellation
    wait_until_blocked()
    runs.cancel(run_id)
    os.kill(worker.pid, signal.SIGTERM)
    worker.join(SAFETY)
    report = runs.report(run_id)
    assert (report.status, report.segment) == ("cancelled", 1)


@on_one_machine
def test_run_whose_next_segment_begins_during_its_cancellation_is_cancelled(runs, monkeypatch):
    run_id = runs.enqueue("notes", "Note.")
    _, job = next(runs.load(runs.latest([run_id]).values()))
    cancel = runs.client.cancel_workflow

    def enqueue_and_cancel(workflow_id):
        runs.enqueue_job(job.next())
        cancel(workflow_id)

    monkeypatch.setattr(runs.client, "cancel_workflow", enqueue_and_cancel)
    report = runs.cancel(run_id)
    assert (report.status, report.segment) == ("cancelled", 2)


@on_one_machine
def test_run_that_expired_while_it_waited_has_failed(runs, start_worker):
    run_id = runs.enqueue("notes", "Note.")
    start_worker(approves=True)
    assert runs.wait(run_id, SAFETY).status == "waiting"
    wait_until(lambda: runs.store.runs.delete(run_id), 0.1)  # as its expiry does
    report = runs.wait(run_id, SAFETY)
    assert (report.status, "has expired" in report.reason) == ("failed", True)


@on_one_machine
@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""},
        {"queue": "_dbos_internal_queue"},
        {"priority": -1},
        {"priority": 2**31},
        {"delay": -1.0},
        {"delay": float("inf")},
        {"delay": float("nan")},
    ],
)
def test_run_is_refused_for_a_queue_priority_or_delay_that_cannot_be(runs, options):
    with pytest.raises(ConfigError, match="invalid"):
        runs.enqueue("notes", "Note.", **options)
    assert runs.list() == []


@on_one_machine
def test_lone_surrogate_is_refused(runs):
    for prompt, options in (("\ud800", {}), ("Note.", {"tenant": "\ud800"})):
        with pytest.raises(ConfigError, match="lone surrogate"):
            runs.enqueue("notes", prompt, **options)


@on_one_machine
def test_run_in_which_something_was_cancelled_is_continued(runs, start_worker, tmp_path):
    (tmp_path / "failure").write_text("cancelled")
    start_worker()
    report = runs.wait(runs.enqueue("notes", "Note."), SAFETY)
    assert (report.status, report.segment) == ("done", 2)


@on_one_machine
def test_cancelled_run_that_waits_is_not_continued_by_its_approval(runs, start_worker, tmp_path):
    run_id = runs.enqueue("notes", "Note.")
    start_worker(approves=True)
    assert runs.wait(run_id, SAFETY).status == "waiting"
    assert runs.cancel(run_id).status == "cancelled"
    approve_call(runs.store, run_id, "c0")
    other = runs.enqueue("notes", "Note.")
    assert runs.wait(other, SAFETY).status == "waiting"
    assert runs.report(run_id).status == "cancelled"
    assert executions(tmp_path / "effects") == {}
    runs.resume(run_id)
    wait_until(lambda: [call.call_id for call in runs.report(run_id).pending] == ["c1"], 0.1)


@on_one_machine
def test_temporary_failure_is_retried_and_another_one_waits_for_retry(runs, start_worker, tmp_path):
    (tmp_path / "failure").write_text("temporary")
    start_worker()
    run_id = runs.enqueue("notes", "Note.")
    assert runs.wait(run_id, SAFETY).segment == 2
    (tmp_path / "failure").write_text("permanent")
    run_id = runs.enqueue("notes", "Note.")
    report = runs.wait(run_id, SAFETY)
    assert (report.status, report.reason) == ("failed", "ValueError: no such model")
    assert runs.retry(run_id).run_id == run_id
    assert runs.wait(run_id, SAFETY).status == "done"
    again = runs.retry(run_id)
    assert again.run_id != run_id
    assert runs.wait(again.run_id, SAFETY).status == "done"
    assert runs.wait(runs.enqueue("nobody", "Hello."), SAFETY).reason.startswith("ConfigError: version")


@on_one_machine
def test_sweep_deletes_entries_of_ended_runs_and_keeps_others(runs, start_worker):
    ended = runs.enqueue("notes", "Note.")
    worker = start_worker()
    assert runs.wait(ended, SAFETY).status == "done"
    worker.kill()
    worker.join()
    queued = runs.enqueue("notes", "Note.")
    assert runs.sweep() == 0
    assert runs.sweep(ttl=-60) == 1
    assert [report.run_id for report in runs.list()] == [queued]
    with pytest.raises(ConfigError, match="there is no durable run"):
        runs.report(ended)
    assert runs.store.runs.get(ended).status == "done"


@on_one_machine
def test_sweep_keeps_entries_of_a_run_that_waits(runs, start_worker):
    run_id = runs.enqueue("notes", "Note.")
    start_worker(approves=True)
    assert runs.wait(run_id, SAFETY).status == "waiting"
    assert runs.sweep(ttl=-60) == 0
    approve_call(runs.store, run_id, "c0")
    wait_until(lambda: [call.call_id for call in runs.report(run_id).pending] == ["c1"], 0.1)


@on_one_machine
def test_latest_of_many_segments_is_found(runs):
    run_id = runs.enqueue("notes", "Note.")
    _, job = next(runs.load(runs.latest([run_id]).values()))
    for number in range(2, 18):
        job = job.next()
        runs.enqueue_job(job)
        assert runs.report(run_id).segment == number
    assert runs.latest([]) == runs.latest(["absent"]) == {}


@on_one_machine
def test_second_run_with_the_same_id_is_not_started(runs, start_worker, tmp_path):
    assert {runs.enqueue("notes", "Note.", run_id="invoice-7") for _ in range(3)} == {"invoice-7"}
    start_worker()
    assert runs.wait("invoice-7", SAFETY).status == "done"
    assert runs.enqueue("notes", "Note.", run_id="invoice-7") == "invoice-7"
    assert runs.wait("invoice-7", SAFETY).status == "done"
    assert executions(tmp_path / "effects") == ONCE
    with pytest.raises(ConfigError, match="invalid run id"):
        runs.enqueue("notes", "Note.", run_id="a.b")


def test_limits_hold_for_a_queue_and_for_each_tenant(runs, start_worker, block_at):
    """While a run of each tenant is blocked, no other run of these tenants starts, and the third tenant's does."""
    runs.configure_queue("mail", tenant_concurrency=1, concurrency=2)
    wait_until_blocked = block_at("model 0")
    blocked = runs.enqueue("notes", "Note.", queue="mail", tenant="acme")
    start_worker()
    wait_until_blocked()
    second = runs.enqueue("notes", "Note.", queue="mail", tenant="acme", priority=1)
    other = runs.enqueue("notes", "Note.", queue="mail", tenant="initech", priority=9)
    assert runs.wait(other, SAFETY).status == "done"
    assert runs.report(second).status == "queued"
    runs.cancel(blocked)
    assert runs.wait(second, SAFETY).status == "done"


@on_one_machine
def test_schedule_starts_a_run_at_each_time(runs, start_worker):
    with pytest.raises(ConfigError, match="cannot schedule"):
        runs.schedule("often", "notes", "Note.", "every day")
    runs.schedule("often", "notes", "Note.", "* * * * * *")
    start_worker()
    wait_until(lambda: any(report.status == "done" for report in runs.list()), 0.2)
    runs.unschedule("often")
    found = [report.run_id for report in runs.list()]
    assert all(run_id.startswith("often-20") for run_id in found)
    assert len(found) == len(set(found))


@on_one_machine
@pytest.mark.parametrize(("point", "status"), [("model 1", "queued"), ("tool 0", "running")])
def test_run_of_a_stopped_worker_is_handed_over_or_taken_over(runs, start_worker, block_at, tmp_path, point, status):
    """A write that does not end keeps no worker from its end."""
    wait_until_blocked = block_at(point)
    run_id = runs.enqueue("notes", "Note.")
    worker = start_worker()
    wait_until_blocked()
    os.kill(worker.pid, signal.SIGTERM)
    worker.join(SAFETY)
    assert worker.exitcode == 0
    assert runs.report(run_id).status == status
    start_worker()
    assert runs.wait(run_id, SAFETY).status == "done"
    assert executions(tmp_path / "effects") == ONCE


def test_program_with_a_dbos_application_cannot_be_a_worker(tmp_path):
    program = """
import sys
from dbos import DBOS
from toolwire import Agent
from toolwire.durable import DurableRuns, RunWorker
from toolwire.testing import ScriptedModel
DBOS(config={"name": "mine", "system_database_url": f"sqlite:///{sys.argv[1]}/mine.db"})
runs = DurableRuns(sys.argv[1] + "/runs.db")
RunWorker(runs, [Agent(ScriptedModel([]), name="a", store=runs.store)]).run()
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this process has a DBOS application" in done.stderr


def test_error_of_the_database_is_a_store_error_without_the_prompt(runs):
    runs.enqueue("notes", "Note.")
    engine = runs.client._client._sys_db.engine
    with engine.begin() as connection:
        table = "workflow_status" if engine.dialect.name == "sqlite" else "dbos.workflow_status CASCADE"
        connection.execute(text(f"DROP TABLE {table}"))
    with pytest.raises(StoreError, match="queues, ") as caught:
        runs.enqueue("notes", "the prompt")
    assert "the prompt" not in str(caught.value)
    with pytest.raises(sqlalchemy.exc.SQLAlchemyError) as logged, engine.begin() as connection:  # as DBOS logs it
        connection.execute(text("INSERT INTO absent VALUES (:prompt)"), {"prompt": "the prompt"})
    assert "the prompt" not in str(logged.value)


def test_described_error_of_a_database_has_no_parameters():
    from toolwire.durable.queues import describe_error

    error = sqlalchemy.exc.OperationalError("INSERT …", {"inputs": "the prompt"}, OSError("disk full"))
    assert describe_error(error) == "OperationalError: disk full"
