"""Wrong addresses, missing drivers, secrets, clocks that are off, forks, strange files."""

import importlib
import os
import re
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from stores.servers import open_test_store
from toolwire._extras import install_command
from toolwire.ir.errors import ConfigError, MissingExtra, StoreError
from toolwire.net.stores import open_store, sqlite_connection
from toolwire.net.stores.memory import MemoryStore
from toolwire.net.stores.sqlite import SqliteStore
from toolwire.run.values.records import DAY, StoredRun
from waiting import SAFETY


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/db", "memory:x", "sqlite://x.db", "redis:host", "", "http://x", ":memory:"]
)
def test_unknown_store_address_is_rejected(url):
    with pytest.raises(ConfigError, match="postgresql://") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://:pa/secret@host:port/0", "postgresql://me:sec%ret@host:1/db?nonsense=secret"])
def test_malformed_store_address_is_rejected_without_its_secrets(url):
    with pytest.raises(ConfigError, match="invalid store address") as caught:
        open_store(url)
    assert "sec" not in str(caught.value)


@pytest.mark.parametrize("url", ["PostgreSQL://me:secret@host/db", "host=host password=secret nonsense"])
def test_malformed_address_of_postgresql_is_rejected_with_its_hint_and_without_secrets(url):
    postgres = pytest.importorskip("toolwire.net.stores.postgres")
    with pytest.raises(ConfigError, match="use postgresql://") as caught:
        postgres.PostgresStore(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("scheme", "package"), [("redis", "redis"), ("postgresql", "psycopg")])
def test_missing_driver_raises_missing_extra(monkeypatch, scheme, package):
    for module in [name for name in sys.modules if name.startswith(f"toolwire.net.stores.{scheme.removesuffix('ql')}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=re.escape(install_command(scheme.removesuffix("ql")))):
        open_store(f"{scheme}://localhost")


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@127.0.0.1:9/0",
        "redis://127.0.0.1:9/0?password=hunter2",
        "redis://:hunter2/more@127.0.0.1:9/0",
        "postgresql://me:hunter2@127.0.0.1:9/db",
        "postgresql://127.0.0.1:9/db?password=hunter2",
        "postgresql://127.0.0.1:9/db?user=me&password=hunter2@x&sslmode=verify-full&sslrootcert=hunter2",
    ],
)
def test_errors_do_not_contain_credentials(url):
    with pytest.raises((StoreError, ConfigError)) as caught:
        open_store(url).get("k")
    error = caught.value
    said = f"{error} {error!r} {error.__cause__} {error.__context__ if not error.__suppress_context__ else ''}"
    assert "hunter2" not in said


@pytest.mark.parametrize(("option", "shown"), [("", "5s"), ("&options=-c%20statement_timeout%3D1000", "1s")])
@pytest.mark.parametrize("is_there", [True, False], ids=["a claim", "the table"])
def test_postgres_lock_wait_ends_with_the_statement_timeout(servers, tmp_path, new_claim, is_there, option, shown):
    import psycopg

    server = servers("postgres")
    url = server.fresh(tmp_path)
    others = open_store(url)
    if is_there:
        others.claim(new_claim("other"))
    lock = "LOCK TABLE toolwire_records" if is_there else "SELECT pg_advisory_xact_lock(x'746F6F6C77697265'::bigint)"
    store = open_store(url + option)
    with ThreadPoolExecutor(1) as thread, psycopg.connect(url) as holder:
        holder.execute(lock)
        with pytest.raises(StoreError, match="statement timeout"):
            thread.submit(store.claim, new_claim()).result(timeout=SAFETY)
    assert store._pool.run("SHOW statement_timeout", {}).fetchall() == [(shown,)]
    assert store.claim(new_claim()).state == "running"
    store.close()
    others.close()


def test_postgres_sweeps_in_batches(servers, tmp_path, new_claim, monkeypatch):
    monkeypatch.setattr("toolwire.net.stores.postgres._SWEEP_BATCH", 2)
    store = open_store(servers("postgres").fresh(tmp_path))
    for number in range(5):
        claim = new_claim(str(number))
        store.claim(claim)
        store.complete(claim.key, claim.token, "done", ttl=0.0)
    assert store.sweep() == 5
    assert store.sweep() == 0
    store.close()


@pytest.mark.parametrize("form", ["{path}", "sqlite:///{path}"])
def test_sqlite_file_is_accessible_to_its_owner_only(tmp_path, new_claim, form):
    path = tmp_path / "records.db"
    store = open_store(form.format(path=path))
    assert not path.exists(), "nothing happens before the first use"
    store.claim(new_claim())
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "records.db": 0o600,
        "records.db-shm": 0o600,
        "records.db-wal": 0o600,
    }
    store.close()


def test_sqlite_file_of_another_version_is_rejected(tmp_path, new_claim):
    path = tmp_path / "records.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="version 99"):
        open_store(str(path)).claim(new_claim())


def test_sqlite_file_that_another_process_moves_to_a_later_version_is_rejected(tmp_path, new_claim, monkeypatch):
    path = tmp_path / "records.db"
    read_version, reads = sqlite_connection._read_version, []

    def read_then_move(connection):
        reads.append(read_version(connection))
        if len(reads) == 1:
            with sqlite3.connect(path) as other:
                other.execute("PRAGMA user_version = 99")
            other.close()
        return reads[-1]

    monkeypatch.setattr(sqlite_connection, "_read_version", read_then_move)
    with pytest.raises(StoreError, match="version 99"):
        open_store(str(path)).claim(new_claim())
    assert reads[0] == 0


OLD_RUNS = """
CREATE TABLE runs (
    run_id BLOB PRIMARY KEY, version INTEGER, status TEXT, token BLOB, summary BLOB, lease_until REAL, expires_at REAL,
    created_at REAL, updated_at REAL, tenant BLOB, state BLOB
)"""


@pytest.mark.finding("RU1")
@pytest.mark.parametrize(("ttl", "is_refused"), [(60.0, True), (-60.0, False)], ids=["stored", "expired"])
def test_sqlite_file_with_runs_in_the_old_form_is_refused(tmp_path, new_claim, ttl, is_refused):
    path = tmp_path / "records.db"
    with sqlite3.connect(path) as connection:
        connection.execute(OLD_RUNS)
        values = (b"r1", 1, "waiting", b"", b"", 0.0, time.time() + ttl, 0.0, 0.0, b"", b"{}")
        connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 11)})", values)
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    store = open_store(str(path))
    if is_refused:
        with pytest.raises(
            StoreError, match=r"records\.db: the table runs has runs in the old form.*finish these runs with"
        ):
            store.claim(new_claim())
    else:
        assert store.runs.append(StoredRun("r1"), [b"x"], 0).version == 1
    store.close()


@pytest.mark.finding("RU1")
def test_postgres_table_with_runs_in_the_old_form_is_refused(servers, tmp_path):
    server = servers("postgres")
    url = server.fresh(tmp_path)
    server.execute(
        "CREATE TABLE toolwire_runs (expires_at float8, lease_until float8); INSERT INTO toolwire_runs VALUES (9e9, 0);"
        "COMMENT ON TABLE toolwire_runs IS 'toolwire runs, version 2'"
    )
    with pytest.raises(StoreError, match=r"the table toolwire_runs has runs in the old form.*finish these runs with"):
        open_store(url).runs.list()
    server.execute("UPDATE toolwire_runs SET expires_at = 5")
    with ThreadPoolExecutor(4) as threads:  # several processes start at once
        assert sum(threads.map(lambda number: append_first(url, b"%d" % number), range(4))) == 1


def append_first(url, row):
    with closing(open_store(url)) as store:
        return store.runs.append(StoredRun("r"), [row], 0) is not None


@pytest.mark.finding("RU1")
def test_redis_run_in_the_old_form_is_refused(servers, tmp_path):
    url = servers("redis").fresh(tmp_path)
    old = {"version": 1, "status": "waiting", "token": "", "summary": "", "lease_until": 0, "expires_at": 9e9,
           "created_at": 1, "updated_at": 1, "tenant": "", "state": "{}"}  # fmt: skip
    redis = importlib.import_module("redis").Redis.from_url(url)
    redis.hset("{toolwire:1}:run:r1", mapping=old)
    redis.zadd("{toolwire:1}:runs", {"r1": 1})
    runs = open_store(url).runs
    for use in (runs.list, lambda: runs.get("r1"), lambda: runs.append(StoredRun("r1"), [b"x"], 1)):
        with pytest.raises(StoreError, match=r"runs in the old form.*finish these runs with"):
            use()


def test_file_that_is_not_a_database_is_rejected(tmp_path, new_claim):
    path = tmp_path / "records.db"
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(StoreError, match="not a database"):
        open_store(str(path)).claim(new_claim())


def test_postgres_table_of_another_version_is_rejected(servers, tmp_path, new_claim):
    server = servers("postgres")
    url = server.fresh(tmp_path)
    server.execute("CREATE TABLE toolwire_records (id int); COMMENT ON TABLE toolwire_records IS 'version 99'")
    with pytest.raises(StoreError, match="version 99"):
        open_store(url).claim(new_claim())


def test_sqlite_write_times_out_while_another_writer_holds_the_lock(tmp_path, new_claim, monkeypatch):
    monkeypatch.setattr("toolwire.net.stores.sqlite_connection._BUSY_TIMEOUT", 0.2)
    path = str(tmp_path / "records.db")
    store = SqliteStore(path)
    store.claim(new_claim())
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.claim(new_claim("other"))
    assert store.get("k").state == "running", "who only reads does not wait"
    writer.execute("ROLLBACK")
    assert store.claim(new_claim("other")).state == "running"
    writer.close()
    store.close()


def test_redis_scripts_are_reloaded_after_a_flush(servers, tmp_path, new_claim):
    import redis

    url = servers("redis").fresh(tmp_path)
    store = open_store(url)
    claim = new_claim()
    store.claim(claim)
    redis.Redis.from_url(url).script_flush()
    assert store.complete("k", claim.token, "r", DAY)
    redis.Redis.from_url(url).script_flush()
    assert len(store.records()) == 1
    store.close()


@pytest.mark.parametrize("hours", [-48, 48])
@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_client_clock_skew_does_not_matter(servers, name, tmp_path, new_claim, monkeypatch, hours):
    store = open_test_store(servers(name).fresh(tmp_path))
    done, running = new_claim("done"), new_claim("running")
    store.claim(done)
    store.complete("done", done.token, "r", DAY)
    store.claim(running)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
    assert store.claim(new_claim("done", reclaim=True)).result == "r"
    assert store.claim(new_claim("running", reclaim=True)).token == running.token
    assert store.sweep() == 0
    lapsed = new_claim("lapsed", lease=0.05)
    store.claim(lapsed)
    time.sleep(0.07)
    assert store.get("lapsed").state == "unknown"
    store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_clock_jump_does_not_run_a_write_twice(tmp_path, new_claim, kind):
    """Forth: unknown too early. Back: running for `MAX_LEASE` at most. Neither lets anybody else in."""
    now = [1_000_000.0]
    clock = lambda: now[0]
    store = MemoryStore(clock) if kind == "memory" else SqliteStore(str(tmp_path / "records.db"), clock)
    claim = new_claim(lease=60)
    store.claim(claim)
    for jump, state in ((3600, "unknown"), (-7200, "unknown"), (3600, "running")):
        now[0] += jump
        assert store.claim(new_claim()).state == state
    assert store.complete("k", claim.token, "r", DAY)
    assert store.claim(new_claim()).result == "r"
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("name", ["sqlite", "redis", "postgres"])
def test_open_store_works_after_a_fork(servers, name, tmp_path, new_claim):
    store = open_test_store(servers(name).fresh(tmp_path))
    first = new_claim("parent")
    store.claim(first)
    child = os.fork()
    if not child:
        code = 1
        try:
            mine = new_claim("child")
            taken = store.claim(mine).token == mine.token and store.complete("child", mine.token, "r", DAY)
            code = 0 if taken and store.get("parent").state == "running" else 2
        finally:
            os._exit(code)
    for number in range(50):  # both at once
        store.claim(new_claim(f"k{number}"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.complete("parent", first.token, "r", DAY)
    assert {record.key for record in store.records("done")} == {"parent", "child"}
    store.close()
