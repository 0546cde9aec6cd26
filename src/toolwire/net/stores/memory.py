"""Store records and runs in the memory of this process: for tests, and for runs that are not continued later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice

from msgspec.structs import replace

from ...ir.errors import StoreError
from ...run.values.records import DAY, WEEK, Claim, Record, RecordState, RunStatus, StoredRun, check_run
from .rules import (
    ExpiryClock,
    effective_state,
    existing_run,
    is_leased_to_another,
    is_listed,
    is_ready,
    is_repeated_append,
    may_append,
    may_claim,
    may_complete,
    new_record,
    next_version,
)


class MemoryRuns:
    """The runs of a `MemoryStore`, under its lock. They end with the process."""

    def __init__(self, lock: Callable[[], AbstractContextManager[object]], clock: Callable[[], float]) -> None:
        self._lock = lock
        self._clock = clock
        self._runs: dict[str, StoredRun] = {}
        self._logs: dict[str, list[bytes]] = {}

    def append(
        self,
        run: StoredRun,
        rows: Sequence[bytes],
        expected_version: int,
        *,
        ttl: float = WEEK,
        lease: float = 60.0,  # seconds, as for records (`Claim.lease`)
        restart: bool = False,
    ) -> StoredRun | None:
        """Append to the log of a run if its version is `expected_version`, 0 for a new run. Return the stored run.

        `restart` replaces the log. Return None if another process has changed or leased the run. An identical append that
        succeeded before is accepted.
        """
        check_run(run, rows)
        with self._lock():
            now = self._clock()
            existing = existing_run(self._runs.get(run.run_id), now)
            if not may_append(existing, run, expected_version, now):
                return existing if is_repeated_append(existing, run, rows, expected_version) else None
            if existing is None or restart:
                existing = existing and replace(existing, rows=0)
                self._logs[run.run_id] = []
            self._logs[run.run_id] += rows
            stored = self._runs[run.run_id] = next_version(existing, run, rows, now, ttl, lease)
            return stored

    def rows(self, run_id: str, start: int, stop: int) -> Sequence[bytes]:
        with self._lock():
            return self._logs.get(run_id, [])[start:stop]

    def get(self, run_id: str) -> StoredRun | None:
        with self._lock():
            return existing_run(self._runs.get(run_id), self._clock())

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs, the newest first."""
        with self._lock():
            now = self._clock()
            runs = [run for run in self._runs.values() if existing_run(run, now) and is_listed(run, status, tenant)]
        runs.sort(key=lambda run: run.created_at, reverse=True)
        return tuple(runs[:limit])

    def ready(self, limit: int = 1000) -> Sequence[str]:
        """Return the ids of running runs that no process continues, the latest change first."""
        with self._lock():
            now = self._clock()
            runs = [run for run in self._runs.values() if existing_run(run, now) and is_ready(run)]
        runs.sort(key=lambda run: run.updated_at, reverse=True)
        return [run.run_id for run in runs[:limit]]

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        """Take or renew the lease of a run, and return it, or None if it is absent or leased to another token."""
        with self._lock():
            now = self._clock()
            existing = existing_run(self._runs.get(run_id), now)
            if existing is None or is_leased_to_another(existing, token, now):
                return None
            leased = self._runs[run_id] = replace(existing, token=token, lease_until=now + seconds)
            return leased

    def renew(self, run_id: str, token: str, seconds: float) -> bool:
        return self._change_lease(run_id, token, seconds)

    def release(self, run_id: str, token: str) -> bool:
        return self._change_lease(run_id, token, None)

    def _change_lease(self, run_id: str, token: str, seconds: float | None) -> bool:
        """Extend the lease by `seconds`, or end it (None), if the run has this token."""
        with self._lock():
            run = existing_run(self._runs.get(run_id), self._clock())
            if run is None or not token or run.token != token:
                return False
            until = 0.0 if seconds is None else self._clock() + seconds
            self._runs[run_id] = replace(run, lease_until=until, token="" if seconds is None else token)
            return True

    def delete(self, run_id: str) -> bool:
        with self._lock():
            now = self._clock()
            existing = existing_run(self._runs.get(run_id), now)
            if existing is None or is_leased_to_another(existing, "", now):
                return False
            del self._runs[run_id], self._logs[run_id]
            return True

    def sweep(self, limit: int | None = None) -> int:
        """Delete expired runs and return their number."""
        with self._lock():
            now = self._clock()
            expired = (run_id for run_id, run in self._runs.items() if existing_run(run, now) is None)
            run_ids = list(islice(expired, limit))
            for run_id in run_ids:
                del self._runs[run_id], self._logs[run_id]
            return len(run_ids)

    def clear(self) -> None:
        """Discard all runs, when the store is closed."""
        self._runs.clear()
        self._logs.clear()


class MemoryStore:
    """A store in memory, thread-safe. A forked process has a copy, which is a separate store."""

    def __init__(self, clock: Callable[[], float] = time.time, ticks: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._expiry = ExpiryClock(clock, ticks)
        self._records: dict[str, Record] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.runs = MemoryRuns(self._lock_records, clock)

    def claim(self, claim: Claim) -> Record:
        """Claim a key, or return the existing record."""
        with self._lock_records() as records:
            now = self._clock()
            existing = effective_state(records.get(claim.key), now, self._expiry.now())
            if existing is None or may_claim(claim, existing):
                existing = records[claim.key] = new_record(claim, now)
            return existing

    def renew(self, key: str, token: str, lease: float) -> bool:
        with self._lock_records() as records:
            own_record = _find_running(records, key, token)
            if own_record is not None:
                records[key] = replace(own_record, lease_until=self._clock() + lease)
            return own_record is not None

    def complete(self, key: str, token: str, result: str, ttl: float, state: RecordState = "done") -> bool:
        """Store the result for the holder of `token`. A done record accepts only an identical result."""
        with self._lock_records() as records:
            record = records.get(key)
            if record is None or not may_complete(record, token, result, state):
                return False
            records[key] = replace(record, state=state, result=result, expires_at=self._expiry.end_of(ttl))
            return True

    def release(self, key: str, token: str) -> bool:
        with self._lock_records() as records:
            own_record = _find_running(records, key, token)
            if own_record is not None:
                del records[key]
            return own_record is not None

    def get(self, key: str) -> Record | None:
        with self._lock_records() as records:
            return effective_state(records.get(key), self._clock(), self._expiry.now())

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:  # a page in a terminal
        """List records, the newest first, without expired ones."""
        with self._lock_records() as records:
            now, expiry_now = self._clock(), self._expiry.now()
            states = [effective_state(stored, now, expiry_now) for stored in records.values()]
            effective = [record for record in states if record is not None]
        wanted = [record for record in effective if state is None or record.state == state]
        return sorted(wanted, key=lambda record: record.created_at, reverse=True)[:limit]

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        """Settle an unknown record: store its result, or delete it if `result` is None. Return whether there was one."""
        with self._lock_records() as records:
            now = self._clock()
            record = effective_state(records.get(key), now, self._expiry.now())
            if record is None or record.state != "unknown":
                return False
            if result is None:
                del records[key]
            else:
                records[key] = replace(
                    record, state="done", token="", result=result, expires_at=self._expiry.end_of(ttl)
                )
            return True

    def sweep(self, limit: int | None = None) -> int:
        """Delete expired records and runs, and return their number."""
        with self._lock_records() as records:
            now, expiry_now = self._clock(), self._expiry.now()
            expired = (key for key, record in records.items() if effective_state(record, now, expiry_now) is None)
            keys = list(islice(expired, limit))
            for key in keys:
                del records[key]
        return len(keys) + self.runs.sweep(None if limit is None else limit - len(keys))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._records.clear()
            self.runs.clear()

    @contextmanager
    def _lock_records(self) -> Iterator[dict[str, Record]]:
        """Yield the records while the lock is held. Raise StoreError if the store is closed."""
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed", hint="open a new store")
            yield self._records


def _find_running(records: dict[str, Record], key: str, token: str) -> Record | None:
    record = records.get(key)
    return record if record is not None and record.token == token and record.state == "running" else None
