"""Divide work into shards that several machines share: each shard is claimed with a lease in a store.

A worker renews its lease while it works. If it is killed, the lease expires and another worker claims the shard. The
fencing token of the claim rejects the result of a worker that lost its lease, so every shard has exactly one result.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from ..ir.errors import ConfigError, StoreError
from ..run.values.records import DAY, Claim, Record, Store

__all__ = ["job_key", "run_shards"]


_KEPT = 30 * DAY  # seconds that a store keeps the results
_POLL = 0.5  # seconds between two attempts to claim a shard of another worker


def job_key(settings: Any, inputs: Sequence[str]) -> str:
    """Return the key of a job: equal on every machine with equal settings and equal hashes of the inputs."""
    described = msgspec.json.encode([msgspec.to_builtins(settings), list(inputs)], order="sorted")
    return hashlib.sha256(described).hexdigest()[:32]


def run_shards(
    store: Store,
    job: str,
    shards: Sequence[str],
    work: Callable[[int], Any],
    *,
    lease: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Any]:
    """Compute each shard once, together with the other workers of the store, and return all results in order.

    `shards` are fingerprints of the inputs of each shard. `work` gets the number of a shard and returns a JSON value.
    The function returns after every shard is done, also those of other workers.
    """
    if not lease > 0:
        raise ConfigError(f"lease must be positive, got {lease}", hint="give it in seconds")
    results: dict[int, Any] = {}
    if progress is not None:
        progress(0, len(shards))
    while len(results) < len(shards):
        before = len(results)
        for number, fingerprint in enumerate(shards):
            if number in results:
                continue
            record = _claim(store, job, number, fingerprint, lease)
            if record.state == "running" and record.token:
                if not _work_on(store, record, partial(work, number), lease):
                    continue  # another worker holds the shard, or has taken it over
                stored = store.get(record.key)
                record = stored if stored is not None else record
            if record.state == "done":
                results[number] = msgspec.json.decode(record.result or "null")
                if progress is not None:
                    progress(len(results), len(shards))
        if len(results) == before:
            time.sleep(min(_POLL, lease / 4))
    return [results[number] for number in range(len(shards))]


def _claim(store: Store, job: str, number: int, fingerprint: str, lease: float) -> Record:
    """Claim a shard. The record of a shard that another worker holds comes back without its token."""
    token = secrets.token_hex(16)
    claim = Claim(f"learn:{job}:{number}", "toolwire learn", fingerprint, token, lease, _KEPT, reclaim=True)
    record = store.claim(claim)
    if record.fingerprint != fingerprint:
        raise ConfigError(f"shard {number} of the store has other inputs", hint="use another store or another folder")
    if record.state == "running" and record.token != token:
        return msgspec.structs.replace(record, token="")
    return record


def _work_on(store: Store, record: Record, work: Callable[[], Any], lease: float) -> bool:
    """Do the work of a claimed shard and store its result; False if the claim was lost meanwhile.

    A claim whose work failed is released, so that another worker can try.
    """
    try:
        with _renewed(store, record, lease):
            result = msgspec.json.encode(work()).decode()
    except BaseException:
        store.release(record.key, record.token)
        raise
    return store.complete(record.key, record.token, result, _KEPT)


@contextmanager
def _renewed(store: Store, record: Record, lease: float) -> Iterator[None]:
    """Renew the lease of a record from another thread while the block runs."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(lease / 3):
            try:
                if not store.renew(record.key, record.token, lease):
                    return  # lost: `complete` rejects the result
            except StoreError:
                continue  # the next attempt may reach the store before the lease ends

    thread = threading.Thread(target=renew, name="toolwire-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
