"""`toolwire run --durable`, `toolwire runs` and `toolwire worker` for runs in queues."""

import json

import pytest

from toolwire.cli.main import main
from toolwire.net import approve_call
from waiting import SAFETY

on_one_machine = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def toolwire(url, capsys):
    """Run a command on the store; return its exit code, its output and its messages."""

    def run(*arguments):
        code = main([*arguments, "--store", url])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@on_one_machine
def test_queued_run_is_listed_shown_cancelled_and_resumed(toolwire, runs):
    assert toolwire("runs", "list")[0] == 2, "there is no store"
    code, out, _ = toolwire("run", "--durable", "Note.", "--agent", "notes", "--detach")
    run_id = out.strip()
    assert code == 0
    assert runs.report(run_id).status == "queued"
    (listed,) = json.loads(toolwire("runs", "list", "--json")[1])
    assert (listed["run_id"], listed["status"], listed["agent"]) == (run_id, "queued", "notes")
    assert "queue    default" in toolwire("runs", "show", run_id[:6])[1]
    assert toolwire("runs", "cancel", run_id[:6]) == (0, f"run {run_id} is cancelled\n", "")
    assert run_id in toolwire("runs", "list", "--status", "cancelled")[1]
    assert "no runs with the status queued" in toolwire("runs", "list", "--status", "queued")[1]
    assert toolwire("runs", "resume", run_id) == (0, f"run {run_id} is queued\n", "")
    code, _, message = toolwire("runs", "retry", "0000")
    assert (code, "there is no durable run '0000'" in message) == (2, True)


@on_one_machine
def test_run_is_followed_until_it_waits_and_until_it_ends(toolwire, runs, start_worker):
    start_worker(approves=True)
    code, _, message = toolwire("run", "--durable", "Note.", "--agent", "notes")
    (report,) = runs.list()
    assert code == 1
    assert f"toolwire runs approve {report.run_id} c0" in " ".join(message.split())
    approved = toolwire("runs", "approve", report.run_id, "c0")
    assert approved == (0, "a worker continues the run\n", "")
    while runs.wait(report.run_id, SAFETY, through_waits=False).pending != ():
        for call in runs.report(report.run_id).pending:
            approve_call(runs.store, report.run_id, call.call_id)
    runs.wait(report.run_id, SAFETY, through_waits=True)
    shown = toolwire("runs", "show", report.run_id)[1]
    assert "status    done" in shown
    assert "output    Done." in shown
    document = json.loads(toolwire("runs", "show", report.run_id, "--json")[1])
    assert (document["durable"]["status"], document["status"]) == ("done", "done")


@on_one_machine
def test_followed_run_prints_its_events_and_its_answer(toolwire, start_worker):
    start_worker()
    code, out, message = toolwire("run", "--durable", "Note.", "--agent", "notes")
    assert (code, out) == (0, "Done.\n")
    assert "note 1" in message.replace('{"number":1}', "1")
    code, out, _ = toolwire("run", "--durable", "Note.", "--agent", "notes", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["type"] for event in events if event["type"] in ("call", "result", "report")] == [
        "call",
        "result",
    ] * 2 + ["report"]
    assert (code, events[-1]["output"]) == (0, "Done.")


@on_one_machine
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--durable", "Note.", "-t", "tools.py"], "--durable takes no tools"),
        (["worker"], "a worker needs a file of agents, or tools"),
        (["worker", "empty.py"], "has no agents with names"),
        (["worker", "empty.py", "-t", "tools.py"], "a worker needs a file of agents, or tools"),
    ],
)
def test_wrong_usage_is_explained(toolwire, tmp_path, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("")
    code, _, message = toolwire(*arguments)
    assert (code, expected in message) == (2, True), message
