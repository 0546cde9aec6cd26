"""Store runs in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import islice

from msgspec.structs import replace

from ...run.stored_runs import WEEK, RunStatus, StoredRun, check_run
from .run_rules import existing_run, is_leased_to_another, is_listed, is_repeated_append, may_append, next_version

__all__ = ["MemoryRuns"]


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
        lease: float = 60.0,
        restart: bool = False,
    ) -> StoredRun | None:
        """Append to the log of a run if its version is `expected_version`; 0 for a new run."""
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

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        """Take or renew the lease of a run."""
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
