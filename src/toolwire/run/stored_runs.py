"""Runs that outlive their process: the stored form of a run and the interface of a store of runs.

    absent ──put(run, 0)──▶ version 1 ──put(run, 1)──▶ version 2 … ──ttl──▶ absent

Two rules let any number of processes share a run. `put` is a compare-and-set on the version: a writer that read an
older version changes nothing. A lease with a fencing token lets one process at a time continue a run: while the lease
lasts, a writer with another token changes nothing.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from ..ir.errors import StoreError
from ..ir.value import Value

__all__ = ["MAX_STATE_BYTES", "WEEK", "RunConflict", "RunStatus", "RunStore", "StoredRun", "check_run_size"]

RunStatus: TypeAlias = Literal["running", "waiting", "done", "failed"]

WEEK = 7 * 24 * 60 * 60.0
MAX_STATE_BYTES = 16 * 1024 * 1024
_MAX_ID_LENGTH = 255
_MAX_SUMMARY_LENGTH = 1000


class StoredRun(Value, frozen=True):
    """A run in a store. Times are seconds since the epoch, by the store's clock.

    `state` is the text of `Session.dump()`; it is empty in a listing. The store sets `version` and the times.
    `token` is the fencing token of the process that continues the run until `lease_until`. `tenant`: the tenant of the
    runner that started the run; others neither see nor change it.
    """

    run_id: str
    state: str
    status: RunStatus = "running"
    summary: str = ""
    version: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    expires_at: float = 0.0
    lease_until: float = 0.0
    token: str = ""
    tenant: str = ""


class RunConflict(StoreError):
    """Another process changed the run, or is continuing it."""

    default_status = 409


class RunStore(Protocol):
    """A store of runs. Every operation is atomic across threads, and across processes and machines if supported.

    An expired run is absent, unless its lease has not ended. A store that cannot be reached raises StoreError.
    """

    def put(self, run: StoredRun, expected_version: int, *, ttl: float = WEEK, lease: float = 60.0) -> StoredRun | None:
        """Store a run if its stored version is `expected_version` (0: absent), and return it with its new version.

        Returns None if the version or the tenant is another one, or if another process holds the lease. Repeating an identical put
        returns the stored run, because the response to the first attempt may have been lost. A `running` run with a
        token gets or renews its lease; every other status ends the lease. Raises StoreError for a state above
        `MAX_STATE_BYTES`.
        """
        ...

    def get(self, run_id: str) -> StoredRun | None: ...

    def list(
        self, status: RunStatus | None = None, limit: int = 100, *, tenant: str | None = None
    ) -> tuple[StoredRun, ...]:
        """List runs without their state, the newest first: those of a tenant, or all (None)."""
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
        """Delete a run. Return False if it is absent or a process holds its lease."""
        ...

    def sweep(self, limit: int | None = None) -> int:
        """Delete expired runs, at most `limit`, and return their number. `Store.sweep` also deletes records."""
        ...


def check_run_size(run: StoredRun) -> None:
    """Raise StoreError for a run that is too large to store, so that one run cannot fill a store."""
    if not run.run_id or len(run.run_id) > _MAX_ID_LENGTH:
        raise StoreError(f"a run id must have 1 to {_MAX_ID_LENGTH} characters, got {len(run.run_id)}")
    if len(run.summary) > _MAX_SUMMARY_LENGTH:
        raise StoreError(f"a summary must have at most {_MAX_SUMMARY_LENGTH} characters, got {len(run.summary)}")
    if len(run.tenant) > _MAX_ID_LENGTH:
        raise StoreError(f"a tenant must have at most {_MAX_ID_LENGTH} characters, got {len(run.tenant)}")
    size = len(run.state)
    if size * 4 > MAX_STATE_BYTES:
        size = len(run.state.encode("utf-8", "surrogatepass"))
    if size > MAX_STATE_BYTES:
        raise StoreError(
            f"the state of run {run.run_id} has {size} bytes, the maximum is {MAX_STATE_BYTES}",
            hint="compact the conversation, or keep large media out of it",
        )
