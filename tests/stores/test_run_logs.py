"""Runs as logs of events on every store: what a turn writes, runs of any size, and kills between any two appends."""

import time

import pytest

import toolwire
from run_logs import read_state
from stores import run_worker
from stores.approval_worker import LEASE
from stores.test_suspended_kills import killed, points
from stores.worker import executions
from toolwire import Agent, Policy, ToolCall
from toolwire.net import approve_call
from toolwire.run import Budget, Compaction, Session
from toolwire.run.session.events import RunFold, decode_events, fold_events
from toolwire.run.values.records import MAX_ROW_BYTES, RunConflict, read_rows
from toolwire.testing import ScriptedModel, says

OLD_LIMIT = 16 * 1024 * 1024  # bytes of a state, when each checkpoint wrote the whole state


class CountedRuns:
    """Counts the bytes and rows of each append."""

    def __init__(self, runs):
        self._runs = runs
        self.appends = []

    def __getattr__(self, name):
        return getattr(self._runs, name)

    def append(self, run, rows, *arguments, **options):
        self.appends.append((len(rows), sum(map(len, rows))))
        return self._runs.append(run, rows, *arguments, **options)


def make_agent(store, turns, size, **options):
    @toolwire.tool(effect="read", output_limit=2 * size + 1000)
    def read(number: int) -> str:
        """Read a text."""
        return f"{number} " + "x" * size

    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    lines = [says(ToolCall(f"c{number}", "read", {"number": number})) for number in range(turns)]
    policy = Policy(approve=("write",))
    budget = Budget(iterations=1000, calls=None)  # also of the agents that continue a run
    script = [*lines, *options.pop("last", [says("Done.")])]
    return Agent(
        ScriptedModel(script), [read, pay], store=store, budget=budget, policy=policy, approve="suspend", **options
    )


@pytest.mark.finding("RU1")
@pytest.mark.parametrize("compaction", [None, Compaction(max_tokens=20_000, keep_last=2)], ids=["whole", "compacted"])
def test_turn_writes_the_same_however_long_the_run_is(store, compaction):
    store.runs = runs = CountedRuns(store.runs)
    per_turn = []
    for turns in (25, 50, 100):
        runs.appends.clear()
        assert make_agent(store, turns, 5_000, compaction=compaction).run_sync("Read.").finished
        rows, written = map(sum, zip(*runs.appends, strict=True))
        assert rows == len(runs.appends) == 2 * turns + 1, "one row after each response, one after its results"
        assert max(size for _, size in runs.appends) < 20_000
        per_turn.append(written / turns)
    assert max(per_turn) < 1.2 * min(per_turn)
    assert max(per_turn) < 7_000


def check_large_run(store, turns, size):
    """Let a run read a lot, wait for approval and end in other agents."""
    pay = ToolCall("p1", "pay", {"amount": 5})
    waiting = make_agent(store, turns, size, last=[says(pay)]).run_sync("Read, then pay.")
    assert waiting.suspended
    stored = store.runs.get(waiting.run_id)
    assert (stored.status, stored.rows) == ("waiting", stored.rows)
    assert sum(map(len, read_rows(store.runs, stored))) > turns * size
    assert approve_call(store, waiting.run_id, "p1").status == "running"
    answer = make_agent(store, 0, size).resume_sync(waiting.run_id)
    assert (answer.output, answer.results[-1].text) == ("Done.", "paid 5")
    stored = store.runs.get(waiting.run_id)
    assert stored.status == "done"
    assert fold_events(read_rows(store.runs, stored)).request.messages == answer.messages


@pytest.mark.finding("RU2")
def test_run_above_the_old_limit_is_durable_approvable_and_resumable(store):
    """5 results of 4 MB, each of them larger than a row."""
    assert OLD_LIMIT < 5 * 4_000_000
    check_large_run(store, 5, 4_000_000)


@pytest.mark.full
@pytest.mark.finding("RU2")
def test_run_of_200_megabytes_is_durable_approvable_and_resumable(store):
    check_large_run(store, 20, 10_000_000)


@pytest.mark.finding("RU2")
def test_single_event_of_many_pages_is_stored(store):
    check_large_run(store, 1, 12 * MAX_ROW_BYTES)


@pytest.mark.finding("RU1")
@pytest.mark.one_in(4)
def test_kill_between_any_two_operations_loses_at_most_the_step_in_flight(store_url, store, tmp_path):
    effects = tmp_path / "effects"
    answer, count = run_worker.perform(store_url, effects)
    assert answer.output == "Done."
    for point in points(count):
        store.runs.delete(answer.run_id)
        effects.unlink(missing_ok=True)
        effects.with_name("requests").unlink(missing_ok=True)
        assert killed(run_worker.perform, store_url, effects, die_at=point), point
        time.sleep(LEASE + 0.05)
        runs = store.runs.list()
        if not runs:
            assert not effects.exists(), "no call runs before the run is stored"
            continue
        answer = run_worker.perform(store_url, effects, run_id=runs[0].run_id)[0]
        assert answer.finished, point
        assert all(count <= 1 for count in executions(effects).values()), f"a call ran twice after a kill {point}"
        assert Session.load(read_state(store, answer.run_id), now=time.time).state.request.messages == answer.messages
        requests = executions(effects.with_name("requests"))
        assert sum(requests.values()) <= run_worker.TURNS + 2, (
            f"more than one request was repeated after a kill {point}"
        )


@pytest.mark.finding("RU1")
def test_of_two_processes_that_continue_a_run_one_appends(store_url, store):
    waiting = make_agent(store, 1, 10, last=[says(ToolCall("p1", "pay", {"amount": 5}))]).run_sync("Pay.")
    before = store.runs.get(waiting.run_id)
    approve_call(store, waiting.run_id, "p1")
    copies = [waiting.session(), waiting.session()]
    for copy in copies:
        copy.approve("p1")
        with pytest.raises(RunConflict, match="was changed in the store"):
            make_agent(store, 0, 10).run_sync(copy)
    assert store.runs.lease(waiting.run_id, "another", 60)
    with pytest.raises(RunConflict, match="another process continues"):
        make_agent(store, 0, 10).resume_sync(waiting.run_id)
    assert store.runs.get(waiting.run_id).rows == before.rows + 1


@pytest.mark.finding("LE11")
def test_state_is_rebuilt_from_events_after_each_of_them(store):
    answer = make_agent(store, 3, 10).run_sync("Read.")
    fold, counts = RunFold(), []
    for event in decode_events(read_rows(store.runs, store.runs.get(answer.run_id))):
        fold.add(event)
        counts.append((event.kind, len(fold.state().request.messages)))
    turns = [pair for number in range(3) for pair in (("model_turn", 2 * number + 2), ("results", 2 * number + 3))]
    assert counts == [("start", 1), *turns, ("model_turn", 8)]
