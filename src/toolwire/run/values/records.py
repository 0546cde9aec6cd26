"""Stored calls and stored runs: their records, and the interfaces of their stores.

At-most-once execution of calls:

    absent ──claim──▶ running ──complete──▶ done ──ttl──▶ absent
                        │  └────release (not executed)──▶ absent
                        └──lease expired─▶ unknown ──resolve──▶ done | absent

A claim has a fencing token, and only the holder of the token can complete it. The state `unknown` means that the call
may or may not have had its effect. It is reported, and never retried automatically unless the tool declares a second
run harmless.

The guarantee: at most one execution per key, within the time to live, as long as the store does not lose acknowledged
writes. Exactly-once effects need a backend that takes the key, or a transaction that commits the effect and the
record together.

Runs that outlive their process:

    absent ──append(run, rows, 0)──▶ version 1 ──append(run, rows, 1)──▶ version 2 … ──ttl──▶ absent

A stored run is an append-only log of events (`session/events`), and a small summary of it, the `StoredRun`. The log is
a sequence of rows with at most `MAX_ROW_BYTES` each: an event that is larger continues in the next row, so that no
limit of a store applies to a run.

Two rules let any number of processes share a run. `append` is a compare-and-set on the version: a writer that read an
older version appends nothing. A lease with a fencing token lets one process at a time continue a run: while the lease
lasts, a writer with another token appends nothing. An append is atomic: all of its rows are stored, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias

from ...ir.errors import StoreError
from ...ir.value import Value

RunStatus: TypeAlias = Literal["running", "waiting", "done", "failed"]

WEEK = 7 * 24 * 60 * 60.0  # seconds that a stored run is kept: a person may decide after a weekend or a short absence
MAX_ROW_BYTES = 1024 * 1024  # far below the limits of all stores, of which 512 MB for a value in Redis is the smallest
PAGE_ROWS = 8  # rows that are sent in one statement or read at once: 8 MiB pass a slow network within a timeout of 5 s
_MAX_ID_LENGTH = 255  # characters; the ids of toolwire have 32
_MAX_SUMMARY_LENGTH = 1000  # characters; a listing shows 200


class StoredRun(Value, frozen=True):
    """A run in a store, without its events. Times are seconds since the epoch, by the store's clock.

    The store sets `version`, the times, `rows` (the number of rows of its log) and `digest` (of the last append).
    `token` is the fencing token of the process that continues the run until `lease_until`. `tenant`: the tenant of the
    runner that started the run; others neither see nor change it.
    """

    run_id: str
    status: RunStatus = "running"
    summary: str = ""
    version: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    expires_at: float = 0.0
    lease_until: float = 0.0
    token: str = ""
    tenant: str = ""
    rows: int = 0
    digest: str = ""


class RunConflict(StoreError):
    """Another process changed the run, or is continuing it."""

    default_status = 409


class RunStore(Protocol):
    """A store of runs. Every operation is atomic across threads, and across processes and machines if supported.

    An expired run is absent, unless its lease has not ended. A store that cannot be reached raises StoreError.
    """

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
        """Append rows to the log of a run if its version is `expected_version` (0: absent), and return its new version.

        Returns None if the version or the tenant is another one, or if another process holds the lease. Repeating an
        identical append returns the stored run, because the response to the first attempt may have been lost. A
        `running` run with a token gets or renews its lease; every other status ends the lease. `restart`: the rows
        replace the log, as if the run began again. The default lease is as long as a claim's.
        """
        ...

    def rows(self, run_id: str, start: int, stop: int) -> Sequence[bytes]:
        """Return the rows of a log from `start` to `stop` (exclusive). Fewer are returned if the run has fewer."""
        ...

    def get(self, run_id: str) -> StoredRun | None: ...

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List the runs of a tenant, or all runs (None), the newest first. The default limit fills a few screens."""
        ...

    def ready(self, limit: int = 1000) -> Sequence[str]:
        """Return the ids of running runs that no process continues, the latest change first.

        They were decided or handed over. A store finds them without a look at other runs, because workers ask every
        second; the limit is as many as a worker looks at.
        """
        ...

    def lease(self, run_id: str, token: str, seconds: float) -> StoredRun | None:
        """Take or renew the lease, and return the run; None if it is absent or another process holds the lease."""
        ...

    def renew(self, run_id: str, token: str, seconds: float) -> bool:
        """Extend the lease. Return False if the run no longer has this token."""
        ...

    def release(self, run_id: str, token: str) -> bool:
        """End the lease. Return False if the run no longer has this token."""
        ...

    def delete(self, run_id: str) -> bool:
        """Delete a run and its log. Return False if it is absent or a process holds its lease."""
        ...

    def sweep(self, limit: int | None = None) -> int:
        """Delete expired runs and their logs, at most `limit`, and return their number. `Store.sweep` also deletes records."""
        ...


def split_rows(lines: Iterable[bytes]) -> tuple[bytes, ...]:
    """Join encoded events, and split them into rows of at most `MAX_ROW_BYTES`.

    >>> [len(row) for row in split_rows([b"x" * MAX_ROW_BYTES, b"y"])]
    [1048576, 1]
    """
    log = memoryview(b"".join(lines))
    return tuple([bytes(log[start : start + MAX_ROW_BYTES]) for start in range(0, len(log), MAX_ROW_BYTES)])


def read_rows(runs: RunStore, run: StoredRun) -> Iterator[bytes]:
    """Iterate over the log of a run as it was at this version, page by page.

    Raises RunConflict if the run was deleted or began again meanwhile.
    """
    for start in range(0, run.rows, PAGE_ROWS):
        stop = min(run.rows, start + PAGE_ROWS)
        page = runs.rows(run.run_id, start, stop)
        if len(page) != stop - start:
            raise RunConflict(
                f"run {run.run_id} has {start + len(page)} rows, expected {run.rows}: it was deleted or began again",
                hint="read it again",
            )
        yield from page


def append_digest(run: StoredRun, rows: Sequence[bytes]) -> str:
    """Return the digest by which a store recognises a repeated append."""
    digest = blake2b(
        f"{run.status}\0{run.token}\0{run.summary}\0{run.tenant}".encode("utf-8", "surrogatepass"), digest_size=16
    )
    for row in rows:
        digest.update(row)
    return digest.hexdigest()


def check_run(run: StoredRun, rows: Sequence[bytes]) -> None:
    """Raise StoreError for a run that a store cannot take: each of its values must be small."""
    if not run.run_id or len(run.run_id) > _MAX_ID_LENGTH:
        raise StoreError(f"a run id must have 1 to {_MAX_ID_LENGTH} characters, got {len(run.run_id)}")
    if len(run.summary) > _MAX_SUMMARY_LENGTH:
        raise StoreError(f"a summary must have at most {_MAX_SUMMARY_LENGTH} characters, got {len(run.summary)}")
    if len(run.tenant) > _MAX_ID_LENGTH:
        raise StoreError(f"a tenant must have at most {_MAX_ID_LENGTH} characters, got {len(run.tenant)}")
    largest = max(map(len, rows), default=0)
    if largest > MAX_ROW_BYTES:
        raise StoreError(f"a row has {largest} bytes, the maximum is {MAX_ROW_BYTES}", hint="use split_rows")


def old_form(place: str, what: str) -> StoreError:
    """Return the error for a store whose runs were written before they were logs of events."""
    return StoreError(
        f"{place}: {what} has runs in the old form, one state per run; this toolwire stores the events of a run",
        hint="finish these runs with the version of toolwire that wrote them and delete them, or use another store",
    )


RecordState: TypeAlias = Literal["running", "done", "unknown"]
MAX_LEASE = 60 * 60.0
"""Seconds that a lease can last. One that ends later was made while the clock was ahead, and is over.

Otherwise a clock that is a year ahead for a moment would keep a call or a run of a process that died for a year.
"""
DAY = 24 * 60 * 60.0  # seconds that a result is kept under its key; as long as Stripe keeps idempotency keys


class Claim(Value, frozen=True):
    """A request to run a call.

    `fingerprint` identifies tool and arguments: the same key with another fingerprint is a conflict. `reclaim`: the
    tool may be run again if the outcome is unknown. `durable`: the call may run only after the claim can survive a
    power failure.
    """

    key: str
    tool: str
    fingerprint: str
    token: str
    # Seconds; renewed three times within it, so it outlives two lost renewals, and a crash is noticed within a minute.
    lease: float = 60.0
    ttl: float = DAY
    reclaim: bool = False
    durable: bool = True


class Record(Value, frozen=True):
    """The stored state of a key. Times are seconds since the epoch, by the store's clock."""

    key: str
    tool: str
    fingerprint: str
    state: RecordState
    token: str
    lease_until: float
    expires_at: float
    created_at: float
    result: str | None = None


class Store(Protocol):
    """A store of records, and of runs. Operations are atomic across threads, processes and machines if supported.

    A store that cannot be reached raises StoreError. The caller must not run a write after that.
    """

    @property
    def runs(self) -> RunStore:
        """The runs that this store keeps."""
        ...

    def claim(self, claim: Claim) -> Record:
        """Claim a key. The claim succeeded if the returned record is running and has the token of the claim.

        Otherwise the existing record is returned, its lease compared with the store's clock. A claim succeeds for an
        absent key, for a done record whose time to live is over and, with `reclaim`, for a record with the same
        fingerprint that is unknown or whose lease has expired. Without `reclaim`, a running record whose lease has
        expired becomes unknown.
        """
        ...

    def renew(self, key: str, token: str, lease: float) -> bool:
        """Extend the lease. Return False if the record no longer has this token."""
        ...

    def complete(self, key: str, token: str, result: str, ttl: float, state: RecordState = "done") -> bool:
        """Store the result if the record still has this token, even after its lease expired. Otherwise return False.

        A done record does not change. Completing it again with an identical result returns True, because the response
        to the first attempt may have been lost.
        """
        ...

    def release(self, key: str, token: str) -> bool:
        """Delete a claim whose call was not executed. Return False if the record no longer has this token."""
        ...

    def get(self, key: str) -> Record | None: ...

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        """List records, the newest first. A running record whose lease has expired is listed as unknown.

        The default limit fills a few screens of a terminal.
        """
        ...

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        """Resolve an `unknown` record by hand: with a result it becomes done, without one it is deleted."""
        ...

    def sweep(self, limit: int | None = None) -> int:
        """Delete expired runs, and done records whose time to live is over; return how many were deleted.

        Running and unknown records stay. Writers of other processes can write between the batches of a sweep. `limit`:
        the maximum number to delete; the next sweep deletes the others.
        """
        ...

    def close(self) -> None: ...
