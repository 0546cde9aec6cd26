"""At-most-once execution: the records of calls and the interface of a store.

    absent ──claim──▶ running ──complete──▶ done ──ttl──▶ absent
                        │  └────release (not executed)──▶ absent
                        └──lease expired─▶ unknown ──resolve──▶ done | absent

A claim has a fencing token, and only the holder of the token can complete it. The state `unknown` means that the call
may or may not have had its effect. It is reported, and never retried automatically unless the tool declares a second
run harmless.

The guarantee: at most one execution per key, within the time to live, as long as the store does not lose acknowledged
writes. Exactly-once effects need a backend that takes the key, or a transaction that commits the effect and the
record together.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from ..ir.value import Value
from .stored_runs import RunStore

__all__ = ["DAY", "Claim", "Record", "RecordState", "Store"]

RecordState: TypeAlias = Literal["running", "done", "unknown"]
DAY = 24 * 60 * 60.0


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
        """List records, the newest first. A running record whose lease has expired is listed as unknown."""
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
