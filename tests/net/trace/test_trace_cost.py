"""The cost of recording, replaying and compacting long runs, counted in work and not in time."""

import asyncio
import os
import threading

import pytest

from toolwire import Agent, Response, ToolCall, open_store, tool
from toolwire.ir import prompt_size
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Fault
from toolwire.net import TraceObserver
from toolwire.net.trace.file import TraceRetention
from toolwire.net.trace.replay import load_run, replay_run
from toolwire.run import Budget, Compaction, read_rows
from toolwire.run.traces import replay
from toolwire.run.traces.redact import Redactor
from toolwire.run.traces.replay import ReplayDifference
from toolwire.run.traces.sanitise import Sanitiser
from toolwire.run.traces.stored_run import trace_of_log
from toolwire.testing import ScriptedModel, says

RECORDED = "2026-11-18T060000-000Z"


@tool(effect="read", output_limit=100_000)
def read(number: int) -> str:
    """Read a text."""
    return f"{number} " + "word " * 100


def make_agent(turns, **options):
    lines = [says(ToolCall(f"c{number}", "read", {"number": number})) for number in range(turns)]
    budget = Budget(iterations=turns + 1, calls=None)
    return Agent(ScriptedModel([*lines, says("Done.")]), [read], budget=budget, **options)


@pytest.fixture
def counted(monkeypatch):
    """Count the calls of a function in a module."""

    def count(module, name):
        real, calls = getattr(module, name), []

        def run(*arguments, **options):
            calls.append(threading.current_thread())
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, run)
        return calls

    return count


@pytest.mark.finding("RU8")
def test_recording_redacts_outside_the_event_loop_and_each_result_once(tmp_path, counted):
    redactions = counted(Redactor, "__call__")
    sizes = []
    for turns in (5, 10):
        redactions.clear()
        asyncio.run(make_agent(turns, observers=[TraceObserver(tmp_path / f"{turns}.jsonl")]).run("Read."))
        sizes.append(len(redactions))
        inside = sum(thread is threading.current_thread() for thread in redactions)
        assert inside <= 2, "only the name of the file"
    per_turn = (sizes[1] - sizes[0]) / 5
    assert per_turn < 35
    text = (tmp_path / "10.jsonl").read_text()
    assert text.count('"event":"result"') == 10, "the file is complete when the run returns"
    assert text.rstrip().rpartition("\n")[2].startswith('{"event":"end"')


@pytest.mark.finding("RU8")
def test_recording_that_cannot_be_written_does_not_fail_the_run(tmp_path, caplog, monkeypatch):
    def fail(self, line):
        raise OSError("disk full")

    observer = TraceObserver(tmp_path / "run.jsonl")
    monkeypatch.setattr("toolwire.net.trace.file.TraceWriter.write", fail)
    assert asyncio.run(make_agent(1, observers=[observer]).run("Read.")).output == "Done."
    assert "cannot record an operation" in caplog.text


@pytest.mark.finding("RU8")
@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (TraceRetention(), 6),
        (TraceRetention(files=2), 2),
        (TraceRetention(days=2.5), 3),
        (TraceRetention(bytes=350), 3),
        (TraceRetention(files=5, days=1.5), 2),
    ],
)
def test_folder_keeps_the_newest_recordings(tmp_path, keep, kept):
    now = tmp_path.stat().st_mtime
    for age in range(6):
        file = tmp_path / f"{RECORDED}-run-{age}.jsonl"
        file.write_text("x" * 100)
        os.utime(file, (now, now - age * 24 * 60 * 60))
    other = tmp_path / "examples.jsonl"
    other.write_text("not a recording")
    os.utime(other, (0, 0))
    keep.prune(tmp_path)
    assert sorted(file.stem[-1] for file in tmp_path.glob("*-run-*")) == [str(age) for age in range(kept)]
    assert other.exists()


@pytest.mark.finding("RU8")
def test_observer_applies_the_retention_now_and_then_outside_the_event_loop(tmp_path, counted):
    """Listing a folder with thousands of files costs more than a short run."""
    prunings = counted(TraceRetention, "prune")
    observer = TraceObserver(folder=tmp_path, keep=TraceRetention(files=2))
    for _ in range(17):
        asyncio.run(make_agent(1, observers=[observer]).run("Read."))
    assert len(list(tmp_path.glob("*.jsonl"))) == 2, "the one before the last run, and its own"
    assert len(prunings) == 2
    assert threading.current_thread() not in prunings
    with pytest.raises(ConfigError, match="keep is for a folder"):
        TraceObserver(tmp_path / "run.jsonl", keep=TraceRetention(files=2))
    with pytest.raises(ConfigError, match="files must be positive, got 0"):
        TraceRetention(files=0)


@pytest.mark.finding("RU8")
def test_trace_of_a_stored_run_has_no_secret_in_any_text():
    """The reason why a run ended may repeat a provider's message, and that a key."""
    key, store = "sk-proj-abcdefghijklmnop1234", open_store("memory:")
    failed = Response(fault=Fault("server", f"invalid key {key}"))
    answer = Agent(ScriptedModel([failed]), [read], store=store).run_sync("Read.")
    assert key in answer.reason
    rows = list(read_rows(store.runs, store.runs.get(answer.run_id)))
    trace = trace_of_log(answer.run_id, rows, Sanitiser(Redactor()))
    assert "invalid key" in str(trace)
    assert key not in str(trace)


@pytest.mark.finding("RU9")
def test_replay_compares_each_message_once(tmp_path, counted):
    comparisons = counted(replay, "_differences")
    sizes = []
    for turns in (10, 20, 40):
        file = tmp_path / f"{turns}.jsonl"
        agent = make_agent(turns, observers=[TraceObserver(file)])
        asyncio.run(agent.run("Read."))
        comparisons.clear()
        assert asyncio.run(replay_run(load_run(file), agent)).output == "Done."
        sizes.append(len(comparisons))
    assert sizes[2] - sizes[1] <= 2.1 * (sizes[1] - sizes[0]), "linear in the turns"


@pytest.mark.finding("LE11")
@pytest.mark.parametrize("compaction", [None, Compaction(max_tokens=600, keep_last=1)], ids=["whole", "compacted"])
def test_stored_run_is_replayed_from_its_events(compaction):
    store = open_store("memory:")
    agent = make_agent(8, store=store, compaction=compaction)
    run_id = agent.run_sync("Read the key sk-abcdefghijklmnop1234.").run_id
    rows = list(read_rows(store.runs, store.runs.get(run_id)))
    trace = trace_of_log(run_id, rows, Sanitiser(Redactor()))
    assert [len(trace.turns()), len(trace.calls())] == [9, 8]
    assert "sk-abcd" not in str(trace)
    assert asyncio.run(replay_run(trace, make_agent(8, compaction=compaction))).output == "Done."
    other = Agent(ScriptedModel([]), [read], system="Be brief.")
    with pytest.raises(ReplayDifference, match="request 1, /messages/0"):
        asyncio.run(replay_run(trace, other))


@pytest.mark.finding("RU9")
def test_compaction_measures_each_message_once(counted):
    measured = counted(prompt_size, "part_size")
    sizes = []
    for turns in (20, 40, 80):
        measured.clear()
        assert make_agent(turns, compaction=Compaction(max_tokens=2_000)).run_sync("Read.").finished
        sizes.append(len(measured))
    assert sizes[2] - sizes[1] <= 2.2 * (sizes[1] - sizes[0])
    assert sizes[2] < 20 * 80
