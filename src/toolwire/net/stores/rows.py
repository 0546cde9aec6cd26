"""Convert records and runs to rows. Text is stored as bytes: stores differ in the text they accept, but all accept bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...run.records import Record
from ...run.stored_runs import StoredRun

__all__ = ["COLUMNS", "RUN_COLUMNS", "as_bytes", "as_text", "record_from_row", "run_from_row"]

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
