"""Removing expired records and runs: what a sweep removes, who sweeps, and that no other process waits for it."""

import importlib
import logging
import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

import toolwire
from stores.servers import PROCESSES
from toolwire import Agent, Runner, ToolCall
from toolwire.ir.errors import StoreError
from toolwire.net.stores import open_store, sqlite_connection
from toolwire.net.stores import rules as expiry
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.stores.sqlite import SqliteStore
from toolwire.net.tools import steps as store_steps
from toolwire.net.tools.steps import StoreSteps
from toolwire.run.values.records import WEEK, StoredRun
from toolwire.testing import ScriptedModel
from waiting import SAFETY, wait_until

SHORT = 0.05
STATE = b"x" * 20_000


def add_expired(store, new_claim, count=3):
    for number in range(count):
        claim = new_claim(f"record {number}")
        store.claim(claim)
        store.complete(claim.key, claim.token, "done", SHORT)
        store.runs.append(StoredRun(f"run {number}", "done"), (), 0, ttl=SHORT)
    time.sleep(SHORT + 0.02)


@pytest.mark.finding("RU4")
def test_a_sweep_removes_records_and_runs(store, new_claim):
    add_expired(store, new_claim)
    store.runs.append(StoredRun("lasts", "done"), (), 0)
    assert store.sweep() == 6
    assert store.sweep() == 0
    assert [run.run_id for run in store.runs.list()] == ["lasts"]


@pytest.mark.finding("RU4")
def test_a_sweep_has_a_limit(store, new_claim):
    add_expired(store, new_claim)
    assert [store.sweep(4), store.sweep(1), store.sweep(4), store.sweep(4)] == [4, 1, 1, 0]


@pytest.mark.finding("RU4")
def test_a_leased_run_is_swept_after_its_lease(store):
    store.runs.append(StoredRun("r", "running", token="a"), (), 0, ttl=SHORT, lease=2 * SHORT)
    store.runs.renew("r", "a", 4 * SHORT)
    time.sleep(2 * SHORT)
    swept_early = store.sweep()
    time.sleep(3 * SHORT)
    assert swept_early + store.sweep() == 1


@toolwire.tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.mark.finding("RU4")
def test_an_agent_sweeps_its_store(new_claim, monkeypatch):
    monkeypatch.setattr(store_steps, "_FIRST_USE_SHARE", 1.0)
    store = MemoryStore()
    add_expired(store, new_claim)
    answer = Agent(ScriptedModel(["Hello."]), [pay], store=store).run_sync("Hi.")
    wait_until(lambda: not store._records and set(store.runs._runs) == {answer.run_id})


@pytest.mark.finding("RU4")
def test_a_sweep_delays_no_call_and_its_failure_is_logged(caplog):
    entered, leave = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def sweep(self, limit=None):
            entered.set()
            leave.wait(SAFETY)
            raise StoreError("the server is away")

    runner = Runner(pay, store=Slow())
    runner._store_steps._next_sweep = 0.0
    with caplog.at_level(logging.WARNING, "toolwire.runs"):
        (result,) = runner.run_sync([ToolCall("1", "pay", {"amount": 5})], run_id="r")
        assert result.text == "paid 5"
        assert entered.wait(SAFETY)
        leave.set()
        wait_until(lambda: "the server is away" in caplog.text)
    runner.close()


def test_a_sweep_that_ends_because_its_store_is_closed_is_not_reported(caplog):
    steps = StoreSteps(store := MemoryStore())
    steps.close()
    store.close()
    steps._sweep()
    assert not caplog.records


@pytest.mark.finding("RU4")
def test_processes_do_not_sweep_at_once():
    """Each `StoreSteps` is like a process that starts now. A sixteenth sweeps at once, the others over the interval."""
    now = time.monotonic()
    delays = [StoreSteps(MemoryStore())._next_sweep - now for _ in range(2000)]
    assert 50 <= sum(delay < 1 for delay in delays) <= 250
    for part in range(4):
        assert 350 <= sum(part * 150 <= delay - 1 < (part + 1) * 150 for delay in delays) <= 600


@pytest.mark.finding("RU4")
def test_a_sweep_that_reached_its_limit_is_continued_soon(monkeypatch):
    monkeypatch.setattr(store_steps, "_SWEEP_LIMIT", 2)
    store = MemoryStore()
    for number in range(3):
        store.runs.append(StoredRun(str(number), "done"), (), 0, ttl=-1.0)
    steps = StoreSteps(store)
    steps._sweep()
    assert steps._next_sweep - time.monotonic() < 10
    steps._sweep()
    assert steps._next_sweep - time.monotonic() > 100


def fill(store, count):
    """Store expired runs, without waiting for the disk."""
    with store._file.use() as connection:
        connection.execute("PRAGMA synchronous = OFF")
    store._file._synchronous = "FULL"  # the pragma above stays
    for number in range(count):
        store.runs.append(StoredRun(f"run {number}", "done"), [STATE], 0, ttl=-1.0)
    store._file._synchronous = ""


class SweptFile:
    """A SQLite store, the statements of its sweep, and the largest size of its log."""

    def __init__(self, path, count):
        self.path = path
        self.store = SqliteStore(str(path))
        fill(self.store, count)
        self.store.runs.append(StoredRun("lasts", "done"), (), 0, ttl=WEEK)
        self.size = path.stat().st_size
        self.largest_log = 0
        self.statements = []

    def sweep(self, limit=None):
        with self.store._file.use() as connection:
            connection.set_trace_callback(self._record)
        return self.store.sweep(limit)

    def count_pages(self):
        with self.store._file.use() as connection:
            return connection.execute("PRAGMA page_count").fetchone()[0]

    def _record(self, statement):
        self.statements.append(statement)
        self.largest_log = max(self.largest_log, self.path.with_name(f"{self.path.name}-wal").stat().st_size)

    @property
    def batches(self):
        """The number of transactions that delete runs."""
        first = [each for before, each in pairwise(self.statements) if before.startswith("BEGIN")]
        return sum("DELETE FROM run" in each for each in first)


@pytest.mark.finding("RU5")
def test_sqlite_sweeps_in_batches_and_shrinks(tmp_path):
    file = SweptFile(tmp_path / "runs.db", 2000)
    assert file.sweep() == 2000
    assert file.batches >= 1
    assert (tmp_path / "runs.db").stat().st_size < file.size / 20
    assert file.largest_log <= 2 * sqlite_connection._MAX_WAL_BYTES
    assert [run.run_id for run in file.store.runs.list()] == ["lasts"]
    file.store.close()


@pytest.mark.finding("RU5")
@pytest.mark.parametrize("table", ["runs", "records"])
def test_sqlite_finds_expired_rows_by_an_index(tmp_path, table):
    file = SweptFile(tmp_path / "runs.db", 1)
    file.sweep()
    (statement, *_) = [each for each in file.statements if f"DELETE FROM {table}" in each]
    with file.store._file.use() as connection:
        plan = str(connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall())
    assert f"{table}_by_expiry" in plan
    file.store.close()


@pytest.mark.finding("RU5")
@pytest.mark.parametrize("table", ["runs", "records"])
def test_postgres_finds_expired_rows_by_an_index(servers, tmp_path, table):
    store = open_store(servers("postgres").fresh(tmp_path))
    store.sweep()
    postgres = importlib.import_module("toolwire.net.stores.postgres")
    statement = {"runs": postgres._SWEEP_RUNS, "records": postgres._SWEEP}[table]
    # Without this setting, the planner reads a small table as a whole.
    store._pool.run("SET enable_seqscan = off", {})
    plan = str(store._pool.run(f"EXPLAIN {statement}", {"most": 10}).fetchall())
    assert f"toolwire_{table}_by_expiry" in plan
    store.close()


@pytest.mark.finding("RU5")
def test_file_of_the_previous_version_gets_the_indexes(tmp_path):
    path = str(tmp_path / "runs.db")
    store = SqliteStore(path)
    with store._file.use() as connection:
        connection.execute("DROP INDEX runs_by_expiry")
        connection.execute("DROP INDEX records_by_expiry")
        connection.execute("PRAGMA user_version = 3")
    store.close()
    store = SqliteStore(path)
    assert store.runs.get("r") is None
    with store._file.use() as connection:
        indexes = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    assert {"runs_by_expiry", "records_by_expiry"} <= indexes
    store.close()


class Clock:
    """A replacement of the module `time` whose clock moves only by `sleep` and `step`."""

    now = 0.0
    step = 0.0  # added each time it is read

    def monotonic(self):
        self.now += self.step
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.finding("RU5")
def test_postgres_deletes_few_large_runs_at_once(monkeypatch):
    """It deletes about 400 MB per second: 16 runs of 150 MB would exceed the timeout of the statement in each sweep."""
    runs = pytest.importorskip("toolwire.net.stores.postgres")
    clock, sizes = Clock(), []
    monkeypatch.setattr(expiry, "time", clock)

    class Pool:
        def run(self, statement, values):
            sizes.append(values["most"])
            clock.sleep(0.4 * values["most"])
            return SimpleNamespace(rowcount=values["most"])

    assert runs.PostgresRuns(Pool()).sweep(20) == 20
    assert max(sizes) == 3


@pytest.mark.finding("RU5")
def test_sqlite_batch_ends_by_its_time(tmp_path, monkeypatch):
    """A transaction with 16 runs of 60 MB blocked other writers for 9 seconds."""
    file = SweptFile(tmp_path / "runs.db", 5)
    file.store.runs.append(StoredRun("large", "done"), [b"x"] * 100, 0, ttl=-1.0)
    clock = Clock()
    monkeypatch.setattr(sqlite_connection, "time", clock)
    with file.store._file.use() as connection:  # each deleted row of a log takes 0.01 s
        connection.create_function("delay", 0, lambda: clock.sleep(0.01))
        connection.execute("CREATE TEMP TRIGGER slow AFTER DELETE ON main.run_rows BEGIN SELECT delay(); END")
    assert file.sweep() == 6
    assert file.batches >= 6
    with file.store._file.use() as connection:
        assert connection.execute("SELECT count(*) FROM run_rows").fetchone() == (0,)
    file.store.close()


@pytest.mark.finding("RU5")
def test_sweep_with_a_limit_shrinks_the_file_in_a_few_batches(tmp_path, monkeypatch):
    """A background sweep of a file with gigabytes of free pages would lock it half of the time for minutes."""
    file = SweptFile(tmp_path / "runs.db", 50)
    clock = Clock()
    clock.step = 0.01  # a batch frees at most ten pages
    monkeypatch.setattr(sqlite_connection, "time", clock)
    assert file.sweep(limit=50) == 50
    deleted = max(number for number, each in enumerate(file.statements) if "DELETE FROM" in each)
    assert 1 < sum(each.startswith("BEGIN") for each in file.statements[deleted:]) <= 6
    pages = file.count_pages()
    assert pages > 100
    assert file.sweep(limit=50) == 0
    assert file.count_pages() < pages, "the next sweep continues"
    assert file.sweep() == 0
    assert file.count_pages() < 50
    file.store.close()


@pytest.mark.finding("RU5")
def test_expired_run_is_not_revived(store):
    """A process that was stopped for long renews a lease after a sweep has deleted a part of the log."""
    store.runs.append(StoredRun("r", "running", token="a"), [b"x"], 0, ttl=SHORT, lease=SHORT)
    time.sleep(2 * SHORT)
    assert not store.runs.renew("r", "a", 60)
    assert store.runs.get("r") is None


@pytest.mark.finding("RU5")
def test_batches_become_smaller_if_they_take_long(monkeypatch):
    """A run may have a kilobyte or many megabytes; other writers wait for one batch."""
    clock, sizes = Clock(), []
    monkeypatch.setattr(expiry, "time", clock)

    def remove(size, seconds):
        sizes.append(size)
        clock.now += size * seconds
        return size

    assert expiry.sweep_in_batches(lambda size: remove(size, 1e-6), 5000, max_batch=500) == 5000
    assert sizes[:11] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500]
    sizes.clear()
    assert expiry.sweep_in_batches(lambda size: remove(size, 0.05), 500, max_batch=500) == 500
    assert max(sizes) == 21, "a second, and the next is smaller"
    assert sizes[sizes.index(21) + 1] <= 2


@pytest.mark.finding("RU5")
@pytest.mark.parametrize("round_trips", [0.051, 0.3])
def test_batches_grow_also_if_the_server_is_distant(monkeypatch, round_trips):
    """A sweep of one entry per batch removes fewer than 20 in a second, and may never end."""
    clock, sizes = Clock(), []
    monkeypatch.setattr(expiry, "time", clock)

    def remove(size):
        sizes.append(size)
        clock.now += round_trips + size * 1e-4
        return size

    assert expiry.sweep_in_batches(remove, 5000, max_batch=1000) == 5000
    assert len(sizes) <= 100


def write_runs(path, timeout, started, stop, outcome):
    """Write runs until stopped; the store of this process waits `timeout` seconds for other writers."""
    sqlite_connection._BUSY_TIMEOUT = timeout
    store = SqliteStore(path)
    written = refused = 0
    while not stop.is_set():
        try:
            store.runs.append(StoredRun(f"other {written}", "done"), (), 0, ttl=WEEK)
            written += 1
        except StoreError:
            refused += 1
        started.set()
        time.sleep(0.002)
    outcome.put((written, refused))


@pytest.mark.finding("RU5")
@pytest.mark.parametrize(
    ("count", "timeout"), [(3000, 10.0), pytest.param(50_000, 1.0, marks=pytest.mark.full)], ids=["3000", "50000"]
)
def test_another_process_writes_while_expired_runs_are_swept(tmp_path, count, timeout):
    path = tmp_path / "runs.db"
    file = SweptFile(path, count)
    started, stop, outcome = PROCESSES.Event(), PROCESSES.Event(), PROCESSES.Queue()
    process = PROCESSES.Process(target=write_runs, args=(str(path), timeout, started, stop, outcome), daemon=True)
    process.start()
    assert started.wait(SAFETY)
    before = len(file.store.runs.list(limit=1_000_000))
    assert file.sweep() == count
    during = len(file.store.runs.list(limit=1_000_000)) - before
    stop.set()
    _, refused = outcome.get(timeout=SAFETY)
    process.join(SAFETY)
    assert refused == 0
    assert during >= file.batches - 1, "the other process writes between any two batches"
    assert file.largest_log <= 4 * sqlite_connection._MAX_WAL_BYTES
    file.store.sweep()  # no process reads or writes now, so all of the log can be copied into the file
    assert path.stat().st_size < file.size / 10
    file.store.close()
