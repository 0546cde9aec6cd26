"""Measure the cost of at-most-once execution: claim and completion, and a replay, compared with bare statements.

Bare is the minimal program on the same table and server, with one driver connection and no checks: two statements for claim
and completion (insert or nothing, update), one for the replay. µs of CPU of this process and of wall time; the servers' own
CPU is included in the wall time only.
"""

import hashlib
import itertools
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from stores.servers import Postgres, Redis
from toolwire.net.stores import open_store
from toolwire.run.values.records import DAY, Claim

ROUNDS = 9
CALLS = 150
RESULT = json.dumps({"paid": True, "amount": 5, "reference": "x" * 100})
_COLUMNS = "key, tool, fingerprint, state, token, lease_until, expires_at, created_at"


def main() -> dict:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for durable in (False, True):
            name = f"SQLite, {'FULL' if durable else 'NORMAL'}"
            path = f"{folder}/{durable}.db"
            rows += _measured(
                name, open_store(path), lambda path=path, durable=durable: _sqlite(path, durable), durable
            )
    for name, server, bare in (("Redis", Redis(), _redis), ("PostgreSQL", Postgres(), _postgres)):
        rows += _measured(name, open_store(server.url), lambda server=server, bare=bare: bare(server.url), durable=True)
        server.stop()
    return {"rows": rows}


def _measured(name: str, store, bare, durable: bool) -> list[dict]:
    """Measure toolwire and the bare statements, interleaved."""
    ours = _ours(store, durable)  # also creates the table for the bare statements
    theirs = bare()
    rows = []
    for what, mine, other in zip(("claim and complete", "replay"), ours, theirs, strict=True):
        best = _best({"toolwire": mine, "bare": other})
        rows.append({"store": name, "what": what, **best})
    store.close()
    return rows


def _best(candidates: dict) -> dict:
    best = {name: {"cpu": float("inf"), "wall": float("inf")} for name in candidates}
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(CALLS):
                run()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            best[name]["cpu"] = min(best[name]["cpu"], cpu / CALLS * 1e6)
            best[name]["wall"] = min(best[name]["wall"], wall / CALLS * 1e6)
    return best


def _ours(store, durable: bool):
    numbers = itertools.count()

    def run() -> None:
        key = f"ours {next(numbers)}"
        store.claim(Claim(key=key, tool="pay", fingerprint="f" * 64, token="t" * 32, durable=durable))
        assert store.complete(key, "t" * 32, RESULT, DAY)

    again = Claim(key="ours 0", tool="pay", fingerprint="f" * 64, token="other", durable=durable)

    def replay() -> None:
        assert store.claim(again).result == RESULT

    run()
    return run, replay


def _sqlite(path: str, durable: bool):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    numbers = itertools.count()
    insert = (
        f"INSERT INTO records ({_COLUMNS}, durable) VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING RETURNING token"
    )
    update = "UPDATE records SET state = 'done', result = ?, expires_at = ? WHERE key = ? AND token = ? AND state = 'running'"
    read = f"SELECT {_COLUMNS}, result FROM records WHERE key = ?"

    def run() -> None:
        key, now = f"bare {next(numbers)}".encode(), time.time()
        values = (key, b"pay", b"f" * 64, "running", b"t" * 32, now + 60, now + DAY, now, durable)
        connection.execute(insert, values).fetchall()
        assert connection.execute(update, (RESULT.encode(), now + DAY, key, b"t" * 32)).rowcount == 1

    def replay() -> None:
        assert connection.execute(read, (b"bare 0",)).fetchone()[8].decode() == RESULT

    run()
    return run, replay


def _redis(url: str):
    import redis

    client = redis.Redis.from_url(url)
    numbers = itertools.count()

    def run() -> None:
        key = f"bare {next(numbers)}"
        claim = json.dumps({"fingerprint": "f" * 64, "token": "t" * 32, "state": "running"})
        assert client.set(key, claim, nx=True, px=86_400_000)
        done = json.dumps({"fingerprint": "f" * 64, "token": "t" * 32, "state": "done", "result": RESULT})
        assert client.set(key, done, xx=True, px=86_400_000)

    def replay() -> None:
        assert json.loads(client.get("bare 0"))["result"] == RESULT

    run()
    return run, replay


def _postgres(url: str):
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    numbers = itertools.count()
    now = "extract(epoch FROM now())"
    insert = (
        f"INSERT INTO toolwire_records (id, {_COLUMNS}) VALUES "
        f"(%s, %s, %s, %s, 'running', %s, {now} + 60, {now} + 86400, {now}) ON CONFLICT DO NOTHING RETURNING token"
    )
    update = (
        f"UPDATE toolwire_records SET state = 'done', result = %s, expires_at = {now} + 86400 "
        "WHERE id = %s AND token = %s AND state = 'running'"
    )
    read = f"SELECT {_COLUMNS}, result FROM toolwire_records WHERE id = %s"

    def run() -> None:
        key = f"bare {next(numbers)}".encode()
        name = hashlib.sha256(key).digest()
        connection.execute(insert, (name, key, b"pay", b"f" * 64, b"t" * 32), binary=True).fetchall()
        assert connection.execute(update, (RESULT.encode(), name, b"t" * 32)).rowcount == 1

    first = hashlib.sha256(b"bare 0").digest()

    def replay() -> None:
        assert connection.execute(read, (first,), binary=True).fetchone()[8].decode() == RESULT

    run()
    return run, replay


if __name__ == "__main__":
    print(json.dumps(main()))
