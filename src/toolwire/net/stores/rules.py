"""The rules that every store follows, in plain Python: states of records, leases of runs, expiry, rows.

`run.values.records` defines the states. The memory store calls these functions inside its lock, SQLite in
part, inside a transaction. Redis (Lua) and PostgreSQL (SQL) implement the same rules in their own language: a check in
Python and a write after it would be two operations, and two processes could both pass the check. One set of tests runs
against all stores (tests/stores).

    clock        Leases and expiry use one clock per store: of the server, or of this machine. Clocks of clients differ.
                 A lease that ends later than `MAX_LEASE` from now was made while the clock was ahead, and is over.
    claim        Reads first, and writes only if the key is free: most repeated claims find a finished record.
    complete     The holder of the token may complete after its lease has expired: its outcome is a fact, and better
                 than unknown. A repeated completion with the same result succeeds, because its first answer may be
                 lost.
    append       A compare-and-set on the version, which accepts an identical repetition for the same reason
                 (`is_repeated_append`).
    sweep        In batches limited by their time, because a run has a kilobyte or many megabytes, and others must
                 write.

Finished records expire by a clock that does not jump. Text is stored as bytes: stores differ in the text they accept,
but all accept bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...run.values.records import MAX_LEASE, Claim, Record, RecordState, RunStatus, StoredRun, append_digest


def effective_state(record: Record | None, now: float, expiry_now: float) -> Record | None:
    """Return the record as it counts now: None if it is done and expired, `unknown` if its lease has expired.

    `now` is the time for leases, `expiry_now` the time by the `ExpiryClock`.
    """
    if record is None or (record.state == "done" and record.expires_at <= expiry_now):
        return None
    if record.state == "running" and is_lease_over(record.lease_until, now):
        return replace(record, state="unknown")
    return record


def is_lease_over(lease_until: float, now: float) -> bool:
    """Return True for a lease that has ended, or that was made while the clock was ahead (`MAX_LEASE`)."""
    return not now < lease_until <= now + MAX_LEASE


def may_claim(claim: Claim, existing: Record | None) -> bool:
    """Return True if the claim gets the key; `existing` is the result of `effective_state`."""
    if existing is None:
        return True
    return claim.reclaim and existing.state == "unknown" and existing.fingerprint == claim.fingerprint


def new_record(claim: Claim, now: float) -> Record:
    """Build the record of a successful claim."""
    return Record(
        key=claim.key,
        tool=claim.tool,
        fingerprint=claim.fingerprint,
        state="running",
        token=claim.token,
        lease_until=now + claim.lease,
        expires_at=now + claim.ttl,
        created_at=now,
    )


def may_complete(record: Record | None, token: str, result: str, state: RecordState) -> bool:
    """Return True for the claim holder, even after its lease expired, and for a retry with an identical result."""
    if record is None or record.token != token:
        return False
    return record.state != "done" or (state == "done" and record.result == result)


def existing_run(run: StoredRun | None, now: float) -> StoredRun | None:
    """Return the run, or None if it is absent or expired. A run with a lease does not expire."""
    return None if run is None or max(run.expires_at, run.lease_until) <= now else run


def is_leased_to_another(run: StoredRun, token: str, now: float) -> bool:
    return run.token not in ("", token) and not is_lease_over(run.lease_until, now)


def is_listed(run: StoredRun, status: RunStatus | None, tenant: str | None) -> bool:
    return status in (None, run.status) and tenant in (None, run.tenant)


def is_ready(run: StoredRun) -> bool:
    return run.status == "running" and run.token == ""


def may_append(existing: StoredRun | None, run: StoredRun, expected_version: int, now: float) -> bool:
    """Return True if `run` may continue the existing run."""
    if existing is None:
        return expected_version == 0
    if (existing.version, existing.tenant) != (expected_version, run.tenant):
        return False
    return not is_leased_to_another(existing, run.token, now)


def is_repeated_append(
    existing: StoredRun | None, run: StoredRun, rows: Sequence[bytes], expected_version: int
) -> bool:
    """Return True if an identical append succeeded before: its response may have been lost."""
    return (
        existing is not None
        and existing.version == expected_version + 1
        and existing.digest == append_digest(run, rows)
    )


def next_version(
    existing: StoredRun | None, run: StoredRun, rows: Sequence[bytes], now: float, ttl: float, lease: float
) -> StoredRun:
    """Build the stored form of `run` after an append. Only a running run keeps a lease."""
    is_leased = run.status == "running" and run.token != ""
    return replace(
        run,
        version=1 if existing is None else existing.version + 1,
        created_at=now if existing is None else existing.created_at,
        updated_at=now,
        expires_at=now + ttl,
        lease_until=now + lease if is_leased else 0.0,
        token=run.token if is_leased else "",
        rows=len(rows) + (0 if existing is None else existing.rows),
        digest=append_digest(run, rows),
    )


# The time by which finished records expire, and their removal in batches. A clock that jumps must not end their time
# to live.
#
# The time of the machine can be set: by hand, by a hypervisor, or by a wrong time server. The clock that counts since
# the start of the machine cannot. A record expires only if both agree, and is kept from the later of both. So a jump
# makes records live longer, and never lets a finished write run again while this process runs. After a restart there
# is nothing to compare the time with.


BATCH_SECONDS = 0.1  # a writer of another process waits for one batch; far below the timeout of every store
_LONG_SECONDS = 1.0  # more than the round trips to a distant server, and also far below the timeouts


class ExpiryClock:
    """Compares the time of day (`wall`) with `ticks`, which only grows; by default the time since the start."""

    def __init__(self, wall: Callable[[], float], ticks: Callable[[], float] | None = None) -> None:
        self._wall = wall
        self._ticks = ticks or (_since_start if wall is time.time else wall)
        self._offset = self._wall() - self._ticks()

    def now(self) -> float:
        """Return the earlier time: records that expire before it have expired by both clocks."""
        return min(self._wall(), self._ticks() + self._offset)

    def end_of(self, ttl: float) -> float:
        """Return the end of the time to live of a record that is completed now, by the later time."""
        return max(self._wall(), self._ticks() + self._offset) + ttl


def sweep_in_batches(remove: Callable[[int], int], limit: int | None, *, max_batch: int) -> int:
    """Remove expired entries until none are left or `limit` are removed, and return their number.

    `remove(size)` removes at most `size` entries in one transaction, and returns how many. The next size follows the
    time that it took, because a run can have a kilobyte or many megabytes. Only a long batch makes it smaller: a
    shorter one may consist of round trips, which take as long for fewer entries.
    """
    swept, size = 0, 1
    while True:
        wanted = size if limit is None else min(size, limit - swept)
        if wanted <= 0:
            return swept
        started = time.monotonic()
        removed = remove(wanted)
        seconds = time.monotonic() - started
        swept += removed
        if removed < wanted:
            return swept
        suitable = int(size * min(2.0, BATCH_SECONDS / max(seconds, 1e-6)))
        size = min(max_batch, max(suitable, 1 if seconds > _LONG_SECONDS else size + 1))


def _since_start() -> float:
    """Return the seconds since the machine started, if possible with the time in which it slept."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; elsewhere the monotonic clock
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


COLUMNS = "key, tool, fingerprint, state, token, lease_until, expires_at, created_at, result"
RUN_COLUMNS = (
    "run_id, version, status, token, summary, lease_until, expires_at, created_at, updated_at, tenant, rows, digest"
)


def as_bytes(text: str) -> bytes:
    r"""Encode any text, even with NUL and lone surrogates.

    >>> as_text(as_bytes("\ud800\0")) == "\ud800\0"
    True
    """
    return text.encode("utf-8", "surrogatepass")


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def record_from_row(row: Sequence[Any]) -> Record:
    """Build a record from a row in the order of COLUMNS. All text except the state is bytes."""
    key, tool, fingerprint, state, token, lease_until, expires_at, created_at, result = row
    return Record(
        key=as_text(key),
        tool=as_text(tool),
        fingerprint=as_text(fingerprint),
        state=state,
        token=as_text(token),
        lease_until=float(lease_until),
        expires_at=float(expires_at),
        created_at=float(created_at),
        result=None if result is None else as_text(result),
    )


def run_from_row(row: Sequence[Any]) -> StoredRun:
    """Build a run from a row in the order of RUN_COLUMNS. All text except the status is bytes."""
    run_id, version, status, token, summary, lease_until, expires_at, created_at, updated_at, tenant, rows, digest = row
    return StoredRun(
        run_id=as_text(run_id),
        status=status,
        summary=as_text(summary),
        version=int(version),
        created_at=float(created_at),
        updated_at=float(updated_at),
        tenant=as_text(tenant),
        expires_at=float(expires_at),
        lease_until=float(lease_until),
        token=as_text(token),
        rows=int(rows),
        digest=as_text(digest),
    )
