"""Store records and runs in the memory of this process: for tests, and for runs that are not continued later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from msgspec.structs import replace

from ...ir.errors import StoreError
from ...run.records import DAY, Claim, Record, RecordState
from .expiry import ExpiryClock
from .memory_runs import MemoryRuns
from .record_rules import effective_state, may_claim, may_complete, new_record

__all__ = ["MemoryStore"]


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

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        """List records, the newest first, without expired ones."""
        with self._lock_records() as records:
            now, expiry_now = self._clock(), self._expiry.now()
            states = [effective_state(stored, now, expiry_now) for stored in records.values()]
            effective = [record for record in states if record is not None]
        wanted = [record for record in effective if state is None or record.state == state]
        return sorted(wanted, key=lambda record: record.created_at, reverse=True)[:limit]

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        """Settle an unknown record: store its result, or delete it if `result` is None."""
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
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed", hint="open a new store")
            yield self._records


def _find_running(records: dict[str, Record], key: str, token: str) -> Record | None:
    record = records.get(key)
    return record if record is not None and record.token == token and record.state == "running" else None
