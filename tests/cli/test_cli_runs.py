"""`toolwire runs`, as a user types it: approve in one process, continue in another."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from toolwire import ToolCall, open_store
from toolwire.cli.agent import output
from toolwire.cli.main import main
from toolwire.run import Claim, StoredRun
from toolwire.testing import Upstream, says
from warm_command import WARM

TOOLS = '''
from pathlib import Path
import toolwire

LOG = Path(__file__).with_name("log")

@toolwire.tool
def send_mail(to: str) -> str:
    """Send a mail."""
    LOG.write_text(LOG.read_text() + f"{to}\\n" if LOG.exists() else f"{to}\\n")
    return f"sent to {to}"

@toolwire.tool
def order(item: str) -> toolwire.run.Suspended:
    """Order an item."""
    return toolwire.run.Suspended({"job": item}, why="the supplier answers later")
'''
MAIL = says(ToolCall("c1", "send_mail", {"to": "ann"}))
DONE = says("All done.")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


@pytest.fixture
def store(folder):
    with closing(open_store(str(folder / "runs.db"))) as opened:
        yield opened


@pytest.fixture
def toolwire(folder):
    """Run a command in a process of its own. `script`: the lines of the model, for commands that need one."""

    def run(*arguments, script=()):
        async def scenario():
            async with Upstream(*script) as upstream:
                model = ["-m", "vllm/any", "--base-url", upstream.url] if script else []
                process = await asyncio.create_subprocess_exec(
                    *(*WARM, *arguments, *model, "--store", str(folder / "runs.db")),
                    cwd=folder,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                out, err = await process.communicate()
                return process.returncode, out.decode(), err.decode()

        return asyncio.run(scenario())

    return run


@pytest.fixture
def waiting(toolwire, store):
    """The id of a run whose mail waits for approval."""
    code, _, err = toolwire("run", "Mail Ann.", "-t", "tools.py", "--suspend", script=[MAIL])
    assert code == 1, err
    (run,) = store.runs.list()
    assert f"toolwire runs approve {run.run_id} c1 --store" in err
    return run.run_id


def sent(folder):
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


@pytest.mark.finding("X7")
def test_call_is_approved_and_the_run_continued_in_other_processes(toolwire, folder, waiting):
    code, out, _ = toolwire("runs", "list")
    assert code == 0
    assert waiting in out
    assert 'send_mail({"to":"ann"}) · Mail' in out
    code, out, _ = toolwire("runs", "show", waiting[:6])
    assert "waits for approval: c1" in out
    assert 'send_mail({"to":"ann"})' in out
    code, out, _ = toolwire("runs", "approve", waiting[:6], "c1")
    assert (code, sent(folder)) == (0, [])
    assert f"toolwire runs resume {waiting} -t TOOLS -m MODEL" in out
    assert "ready" in toolwire("runs", "list")[1]
    assert json.loads(toolwire("runs", "list", "--status", "ready", "--json")[1])[0]["status"] == "ready"
    assert toolwire("runs", "list", "--status", "waiting")[1] == "no runs with the status waiting\n"
    code, _, err = toolwire("runs", "approve", waiting, "c1")
    assert (code, "call 'c1' was already approved" in err) == (2, True)
    code, out, err = toolwire("runs", "resume", waiting, "-t", "tools.py", script=[DONE])
    assert (code, out, sent(folder)) == (0, "All done.\n", ["ann"]), err
    assert err.splitlines() == ['→ send_mail {"to":"ann"}', "✓ send_mail sent to ann"]
    assert toolwire("runs", "resume", waiting, "-t", "tools.py", script=[DONE])[:2] == (0, "All done.\n")
    assert sent(folder) == ["ann"]
    code, _, err = toolwire("runs", "deny", waiting, "c1")
    assert (code, err) == (2, f"toolwire: the run has ended; no call is waiting (toolwire runs show {waiting})\n")


def test_denied_call_is_not_run(toolwire, folder, waiting):
    assert toolwire("runs", "deny", waiting, "c1", "--reason", "not now")[0] == 0
    code, out, err = toolwire("runs", "resume", waiting, "-t", "tools.py", "--json", script=[DONE])
    assert (code, err) == (0, "")
    answer = json.loads(out.splitlines()[-1])
    assert (answer["run_id"], answer["finished"], answer["pending"]) == (waiting, True, [])
    assert "not approved: not now" in out
    assert sent(folder) == []


def test_run_that_still_waits_exits_with_1(toolwire, folder, waiting):
    code, _, err = toolwire("runs", "resume", waiting, "-t", "tools.py", script=[DONE])
    assert code == 1
    assert f"toolwire runs approve {waiting} c1" in err


def test_result_of_a_suspended_tool_is_supplied(toolwire, store):
    order = says(ToolCall("o", "order", {"item": "tea"}))
    code, _, err = toolwire("run", "Order tea.", "-t", "tools.py", "--yes", script=[order])
    assert code == 1
    assert "waits for a result: o" in err
    assert '{"job":"tea"}' in err
    (run,) = store.runs.list()
    assert toolwire("runs", "supply", run.run_id, "o", "--result", '"Monday"')[0] == 0
    assert toolwire("runs", "resume", run.run_id, "-t", "tools.py", script=[DONE])[:2] == (0, "All done.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["approve", "RUN", "c9"], "no call 'c9' is waiting for a decision"),
        (["approve", "r9", "c1"], "there is no run 'r9'"),
        (["approve", "RUN", "c1", "--arguments", "[1]"], "must be a JSON object, got list"),
        (["approve", "RUN", "c1", "--arguments", '{"to": 1}'], "/to: expected string, got 1"),
        (["deny", "RUN", "c9"], "waiting calls: c1"),
        (["supply", "RUN", "c1", "--result", "1"], "use approve or deny"),
        (["show", "r9"], "there is no run"),
    ],
)
def test_wrong_use_exits_with_2(toolwire, waiting, arguments, message):
    code, _, err = toolwire("runs", *(waiting if argument == "RUN" else argument for argument in arguments))
    assert code == 2
    assert message in err


def test_json_of_list_show_and_approve(toolwire, waiting):
    (listed,) = json.loads(toolwire("runs", "list", "--json")[1])
    assert (listed["run_id"], listed["status"]) == (waiting, "waiting")
    assert "token" not in listed
    shown = json.loads(toolwire("runs", "show", waiting, "--json")[1])
    assert shown["waiting"][0]["arguments"] == {"to": "ann"}
    assert shown["state"]["run_id"] == waiting
    assert json.loads(toolwire("runs", "approve", waiting, "c1", "--json")[1])["waiting"] == []


def test_list_is_filtered_by_status(folder, capsys, store):
    store.runs.append(StoredRun("aa1", "done", "one\x1b[31m"), (), 0)
    store.runs.append(StoredRun("aa2", "failed", "two"), (), 0)
    assert main(["runs", "list", "--status", "failed", "--store", str(folder / "runs.db")]) == 0
    assert "aa1" not in capsys.readouterr().out
    assert main(["runs", "list", "--limit", "1", "--store", str(folder / "runs.db")]) == 0
    assert "aa2" in capsys.readouterr().out
    assert main(["runs", "list", "--store", str(folder / "runs.db")]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["runs", "show", "aa", "--store", str(folder / "runs.db")]) == 2
    assert "several runs begin with 'aa'" in capsys.readouterr().err
    with closing(open_store(str(folder / "empty.db"))) as store:
        assert not store.runs.list()
    assert main(["runs", "list", "--store", str(folder / "empty.db")]) == 0
    assert capsys.readouterr().out == "no stored runs\n"


@pytest.mark.parametrize("option", [["--yes"], ["--store", "none"]])
def test_suspend_is_refused_with_yes_or_without_a_store(folder, capsys, option):
    assert main(["run", "x", "-t", str(folder / "tools.py"), "-m", "vllm/any", "--suspend", *option]) == 2
    assert "--suspend cannot be combined with" in capsys.readouterr().err


def test_printed_commands_are_safe_to_copy(toolwire, folder):
    """The id of a call comes from the model or its provider."""
    mail = says(ToolCall("c1; rm -rf ~\x1b[2J", "send_mail", {"to": "ann"}))
    _, _, err = toolwire("run", "Mail.", "-t", "tools.py", "--suspend", script=[mail])
    assert "\x1b" not in err
    assert "'c1; rm -rf ~" in err


def test_denied_call_is_printed_when_the_run_is_continued(toolwire, folder, waiting):
    assert toolwire("runs", "deny", waiting, "c1", "--reason", "not now")[0] == 0
    code, out, err = toolwire("runs", "resume", waiting, "-t", "tools.py", script=[DONE])
    assert (code, out) == (0, "All done.\n")
    assert "✗ send_mail This call was not approved: not now" in err


def test_wrong_file_of_functions_does_not_use_up_the_approval(toolwire, folder, waiting):
    (folder / "other.py").write_text("def look() -> str:\n    return ''\n")
    toolwire("runs", "approve", waiting, "c1")
    code, out, err = toolwire("runs", "resume", waiting, "-t", "other.py", script=[DONE])
    assert (code, out) == (2, "")
    assert "the run waits for send_mail, which this agent does not have" in err
    assert toolwire("runs", "resume", waiting, "-t", "tools.py", script=[DONE])[:2] == (0, "All done.\n")
    assert sent(folder) == ["ann"]


def test_budget_of_a_run_is_kept_when_it_is_continued(toolwire, store):
    toolwire("run", "Mail Ann.", "-t", "tools.py", "--suspend", "--max-iterations", "1", script=[MAIL])
    (run,) = store.runs.list()
    toolwire("runs", "approve", run.run_id, "c1")
    code, out, err = toolwire("runs", "resume", run.run_id, "-t", "tools.py", script=[DONE])
    assert (code, out) == (1, "")
    assert "✓ send_mail" in err
    assert "max iterations reached (1)" in err


def test_resume_takes_a_budget_and_a_trace(toolwire, folder, store):
    toolwire("run", "Mail Ann.", "-t", "tools.py", "--suspend", "--max-iterations", "1", script=[MAIL])
    (run,) = store.runs.list()
    toolwire("runs", "approve", run.run_id, "c1")
    (folder / "run.jsonl").write_text("mine")
    options = ("--max-iterations", "2", "--ttl", "60", "--trace", "run.jsonl")
    code, out, err = toolwire("runs", "resume", run.run_id, "-t", "tools.py", *options, script=[DONE])
    assert (code, out) == (0, "All done.\n"), err
    assert "run.jsonl exists; the trace is written to run-2.jsonl" in err
    assert (folder / "run.jsonl").read_text() == "mine"
    assert "All done." in (folder / "run-2.jsonl").read_text()


def test_waiting_call_has_its_own_mark_and_the_printed_command_continues_the_run(toolwire, folder, store):
    options = ("--suspend", "--text", "hermes", "--ttl", "60")
    mail = says('<tool_call>{"name": "send_mail", "arguments": {"to": "ann"}}</tool_call>')
    _, _, err = toolwire("run", "Mail Ann.", "-t", "tools.py", *options, script=[mail])
    (run,) = store.runs.list()
    assert "… send_mail This call waits for approval" in err
    assert f"then continue with: toolwire runs resume {run.run_id} -t tools.py -m vllm/any --base-url http://" in err
    assert f"--text hermes --ttl 60 --store {folder / 'runs.db'}" in err
    assert "TOOLS" not in err


@pytest.mark.finding("LE11")
def test_rebuild_reads_the_events_and_corrects_the_status(waiting, toolwire, store):
    code, out = toolwire("runs", "rebuild", waiting)[:2]
    assert (code, "waiting, as stored" in out, "1 start, 1 model_turn, 1 results" in out) == (0, True, True)
    stored = store.runs.get(waiting)
    assert store.runs.append(StoredRun(waiting, "failed", "wrong"), (), stored.version)
    code, out = toolwire("runs", "rebuild", waiting, "--json")[:2]
    rebuilt = json.loads(out)
    assert (code, rebuilt["status"], rebuilt["corrected"], rebuilt["events"]["start"]) == (0, "waiting", True, 1)
    again = store.runs.get(waiting)
    assert (again.status, again.summary, again.rows) == ("waiting", stored.summary, stored.rows)
    assert store.runs.lease(waiting, "another", 60)
    assert toolwire("runs", "rebuild", waiting)[0] == 0, "nothing to correct"


def test_status_names_the_process_that_continues_a_run(folder, capsys, store):
    for run_id, lease in (("now", 60.0), ("lost", -1.0), ("free", None)):
        store.runs.append(StoredRun(run_id), (), 0)
        if lease is not None:
            store.runs.lease(run_id, "t", lease)
    for status, run_id in (("running", "now"), ("interrupted", "lost"), ("ready", "free")):
        assert main(["runs", "list", "--status", status, "--json", "--store", str(folder / "runs.db")]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [(run["run_id"], run["status"]) for run in listed] == [(run_id, status)]


@pytest.mark.finding("RU4")
def test_runs_are_deleted_by_the_beginning_of_their_ids(toolwire, store):
    for run_id in ("aa1", "aa2", "bb1", "cc1"):
        store.runs.append(StoredRun(run_id, "done"), (), 0)
    store.runs.append(StoredRun("dd1", "done", tenant="other"), (), 0)
    store.runs.lease("cc1", "a process", 60)
    code, _, err = toolwire("runs", "delete", "bb")
    assert (code, "add --yes" in err) == (2, True)
    code, _, err = toolwire("runs", "delete", "bb", "aa", "--yes")
    assert (code, "several runs begin with 'aa'" in err) == (2, True)
    code, _, err = toolwire("runs", "delete", "dd1", "--yes")
    assert (code, "there is no run 'dd1'" in err) == (2, True)
    assert len(store.runs.list()) == 5, "nothing is deleted after an error"
    assert toolwire("runs", "delete", "bb", "bb1", "--yes") == (0, "deleted 1 run\n", "")
    code, out, err = toolwire("runs", "delete", "aa1", "cc1", "--yes", "--json")
    assert (code, json.loads(out)) == (1, {"deleted": ["aa1"], "kept": ["cc1"]})
    assert "a process continues run cc1" in err
    assert {run.run_id for run in store.runs.list()} == {"aa2", "cc1", "dd1"}


@pytest.mark.finding("RU4")
@pytest.mark.parametrize(("reply", "code"), [("y", 0), ("", 1), (EOFError(), 1)])
def test_deletion_is_confirmed_on_a_terminal(folder, capsys, monkeypatch, reply, code, store):
    def answer(prompt):
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr("toolwire.cli.terminal.input.has_terminal", lambda: True)
    monkeypatch.setattr("toolwire.cli.terminal.input.edit_line", answer)
    store.runs.append(StoredRun("aa1", "done"), (), 0)
    assert main(["runs", "delete", "aa", "--store", str(folder / "runs.db")]) == code
    assert "aa1" in capsys.readouterr().err
    assert (store.runs.get("aa1") is None) == (code == 0)


@pytest.mark.finding("RU4")
def test_expired_runs_and_records_are_swept(toolwire, store):
    store.runs.append(StoredRun("over", "done", tenant="any"), (), 0, ttl=-1.0)
    store.runs.append(StoredRun("lasts", "done"), (), 0)
    for number in range(2):
        claim = Claim(key=str(number), tool="pay", fingerprint="f", token="t")
        store.claim(claim)
        store.complete(claim.key, "t", "done", ttl=-1.0)
    assert json.loads(toolwire("runs", "sweep", "--json")[1]) == {"runs": 1, "records": 2}
    assert toolwire("runs", "sweep") == (0, "deleted 0 expired runs and 0 expired records\n", "")
    assert [run.run_id for run in store.runs.list()] == ["lasts"]


@pytest.mark.finding("RU5")
def test_file_of_an_earlier_version_can_shrink_after_a_vacuum(toolwire, folder):
    path = folder / "runs.db"
    with closing(sqlite3.connect(path)) as connection:  # without `auto_vacuum`
        connection.execute("CREATE TABLE records (key)")
        connection.execute("DROP TABLE records")
    store = open_store(str(path))
    for number in range(50):
        store.runs.append(StoredRun(str(number), "done"), [b"x" * 20_000], 0, ttl=-1.0)
    store.close()
    before = path.stat().st_size
    assert toolwire("runs", "sweep")[0] == 0
    assert path.stat().st_size == before
    assert toolwire("runs", "sweep", "--vacuum") == (0, "deleted 0 expired runs and 0 expired records\n", "")
    assert path.stat().st_size < before / 5
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


@pytest.mark.finding("RU5")
def test_vacuum_of_another_store_is_refused_before_anything_is_deleted(monkeypatch, capsys):
    store = open_store("memory:")
    monkeypatch.setattr(store, "close", lambda: None)  # the command closes it
    store.runs.append(StoredRun("over", "done"), (), 0, ttl=-1.0)
    monkeypatch.setattr("toolwire.cli.agent.runs.open_store_at", lambda address, **_: store)
    assert main(["runs", "sweep", "--vacuum", "--store", "memory:"]) == 2
    assert "--vacuum is for SQLite files" in capsys.readouterr().err
    assert store.sweep() == 1


@pytest.mark.finding("LE11")
def test_stored_run_is_shown_and_replayed_from_its_events(toolwire, folder, waiting):
    assert toolwire("runs", "approve", waiting, "c1")[0] == 0
    assert toolwire("runs", "resume", waiting, "-t", "tools.py", script=[DONE])[0] == 0
    code, out, err = toolwire("trace", "show", waiting[:6])
    assert (code, "send_mail" in out) == (0, True), err
    shown = json.loads(toolwire("trace", "show", waiting, "--json")[1])
    labels = [(span["start"]["event"], span["end"]["event"]) for span in shown["spans"]]
    turn = ("request", "response")
    assert labels == [("run", "end"), turn, ("approval", "decision"), ("call", "result"), turn]
    assert "approved" in [row["note"] for row in shown["timeline"]]
    code, _, err = toolwire("trace", "replay", waiting)
    assert (code, "only the names of its tools" in err) == (2, True)
    code, out, err = toolwire("trace", "replay", waiting, "--tools", "tools.py")
    assert code == 0, out + err
    assert sent(folder) == ["ann"], "a replay uses the recorded results"


@pytest.mark.finding("NU3")
@pytest.mark.parametrize(
    "command", [["runs", "list"], ["runs", "show", "r1"], ["run", "--list"], ["trace", "show", "r1"]], ids=" ".join
)
def test_reading_a_store_that_does_not_exist_creates_no_file(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main([*command, "--store", "nope.db"]) == 2
    assert "there is no store nope.db" in capsys.readouterr().err
    if command[0] != "trace":
        main(command)  # the default store
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(-5, "just now"), (59, "just now"), (60, "1 min ago"), (7300, "2 h ago"), (200_000, "2 d ago")],
)
def test_age_of_a_run_has_one_unit(seconds, age, monkeypatch):
    monkeypatch.setattr(output.time, "time", lambda: 1e9)
    assert output.format_age(1e9 - seconds) == age
