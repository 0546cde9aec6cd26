"""The rules that every store follows, in plain Python: the effective state of a record, and the claims that may take it.

The stores with their own language (SQL, Lua) implement the same rules there, so that each operation is atomic.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...run.records import Claim, Record, RecordState

__all__ = ["effective_state", "may_claim", "may_complete", "new_record"]


def effective_state(record: Record | None, now: float, expiry_now: float) -> Record | None:
    """Return the effective record: None if it is done and expired, `unknown` if its lease has expired.

    `now` is the time for leases, `expiry_now` that of the `ExpiryClock`.
    """
    if record is None or (record.state == "done" and record.expires_at <= expiry_now):
        return None
    if record.state == "running" and record.lease_until <= now:
        return replace(record, state="unknown")
    return record


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
