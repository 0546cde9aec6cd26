"""What a record is at a time, and who may take it: the rules that every store follows, in plain Python.

The stores with a language of their own (SQL, Lua) say the same there, so that it is one atomic step.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...run.records import Claim, Record, RecordState

__all__ = ["begun", "may_complete", "seen", "takes"]


def seen(record: Record | None, now: float) -> Record | None:
    """The record as it is told at `now`: nothing where it is done and over, unknown where its lease has passed."""
    if record is None or (record.state == "done" and record.expires_at <= now):
        return None
    if record.state == "running" and record.lease_until <= now:
        return replace(record, state="unknown")
    return record


def takes(claim: Claim, there: Record | None) -> bool:
    """Whether the claim gets the key; `there` is what `seen` told."""
    if there is None:
        return True
    return claim.reclaim and there.state == "unknown" and there.fingerprint == claim.fingerprint


def begun(claim: Claim, now: float) -> Record:
    """The record of a claim that was taken."""
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
    """Who holds the token, also late; and again with the same words: an answer may be lost on its way, and be retried."""
    if record is None or record.token != token:
        return False
    return record.state != "done" or (state == "done" and record.result == result)
