"""At most once: what is remembered of a call, and what a store has to do.

    absent ──claim──▶ running ──complete──▶ done ──ttl──▶ absent
                        │  └────release (not executed)──▶ absent
                        └──lease passed──▶ unknown ──resolve──▶ done | absent

A claim has a token, and only who holds the token can complete it. A record in `unknown` means that the call may or may not
have had its effect: it is reported, and never run again by itself unless the tool says that running twice does no harm.

The promise: at most one execution per key, within the time to live, as long as the store does not lose acknowledged writes.
Exactly-once effects need the tool's backend to take the key, or the effect and the record to commit in one transaction.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from ..ir.value import Value

__all__ = ["DAY", "Claim", "Record", "RecordState", "Store"]

RecordState: TypeAlias = Literal["running", "done", "unknown"]
DAY = 24 * 60 * 60.0


class Claim(Value, frozen=True):
    """The wish to run a call. `fingerprint` is what was asked: the same key with another one is a conflict.

    `reclaim`: the tool may be run again where the outcome is unknown. `durable`: the claim must survive a power failure
    before the call is run.
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
    """What a store knows of a key. Times are seconds since the epoch, by the store's clock."""

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
    """Six operations, each atomic, safe between threads, processes and machines as far as the store itself is.

    A store that cannot be reached raises StoreError: whoever wanted to write something must not go on.
    """

    def claim(self, claim: Claim) -> Record:
        """Ours if the record that comes back is running and has our token; else what is there, its lease judged by the store's clock.

        Taken: an absent key; a done one whose time is over; with `reclaim`, one that is unknown or whose lease has passed
        and whose fingerprint is the same. A running one whose lease has passed becomes unknown otherwise.
        """
        ...

    def renew(self, key: str, token: str, lease: float) -> bool:
        """A longer lease; False where the token is no longer ours."""
        ...

    def complete(self, key: str, token: str, result: str, ttl: float, state: RecordState = "done") -> bool:
        """The result, if the token is still ours, also after the lease; False where it is not: then it is not recorded.

        What is done stays: to complete it again with the same words is True, for an answer may be lost and be retried.
        """
        ...

    def release(self, key: str, token: str) -> bool:
        """Forget a claim whose call was not executed; False where the token is no longer ours."""
        ...

    def get(self, key: str) -> Record | None: ...

    def records(self, state: RecordState | None = None, limit: int = 100) -> list[Record]:
        """The newest first; a running one whose lease has passed is told as unknown."""
        ...

    def resolve(self, key: str, result: str | None, ttl: float = DAY) -> bool:
        """A person knows what happened: with a result the record is done, without one it is forgotten. Only for `unknown`."""
        ...

    def sweep(self) -> int:
        """Deletes what is done and over; never what is running or unknown."""
        ...

    def close(self) -> None: ...
