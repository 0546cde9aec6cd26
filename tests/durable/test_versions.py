"""Deployments: a run finishes under the version that began it, and a removed tool is reported."""

from durable.program import TURNS
from stores.worker import executions
from waiting import SAFETY


def test_run_finishes_under_its_version_while_new_runs_use_the_next(runs, start_worker, kill_at, tmp_path):
    first = runs.enqueue("notes", "Note.")
    kill_at("model 1", version="1")
    start_worker(version="2", has_tool=False)
    second = runs.enqueue("notes", "Note.")
    report = runs.wait(second, SAFETY)
    assert (report.status, report.version) == ("done", "2")
    assert (runs.report(first).status, runs.report(first).version) == ("queued", "1")
    assert runs.live_versions() == {"2"}

    runs.resume(first, version="2")
    report = runs.wait(first, SAFETY)
    assert (report.status, report.version) == ("failed", "2")
    assert "version 2 lacks tools of the run, or has changed them: note" in report.reason
    assert executions(tmp_path / "effects") == {"0": 1}

    start_worker(version="1")
    runs.resume(first, version="1")
    report = runs.wait(first, SAFETY)
    assert (report.status, report.version, report.output) == ("done", "1", "Done.")
    assert executions(tmp_path / "effects") == {str(number): 1 for number in range(TURNS)}
