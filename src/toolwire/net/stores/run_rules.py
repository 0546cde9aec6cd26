"""The rules of stored runs in plain Python: expiry, compare-and-set and leases.

The stores with their own language (SQL, Lua) implement the same rules there, so that each operation is atomic.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...run.stored_runs import RunStatus, StoredRun, append_digest

__all__ = ["existing_run", "is_leased_to_another", "is_listed", "is_repeated_append", "may_append", "next_version"]


def existing_run(run: StoredRun | None, now: float) -> StoredRun | None:
    """Return the run, or None if it is absent or expired. A run with a lease does not expire."""
    return None if run is None or max(run.expires_at, run.lease_until) <= now else run


def is_leased_to_another(run: StoredRun, token: str, now: float) -> bool:
    return run.token not in ("", token) and run.lease_until > now


def is_listed(run: StoredRun, status: RunStatus | None, tenant: str | None) -> bool:
    return status in (None, run.status) and tenant in (None, run.tenant)


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
