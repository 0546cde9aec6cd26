"""Perform the steps of a call that use a store: claim a key, renew its lease, store the result, release the claim.

A process that uses a store also sweeps it now and then, in one of these threads, so that a store needs no server and no cron
job to stay small. A sweep is bounded, and its time is random, so that many processes on one store do not sweep at once.
Some sweeps come with the first use: a process that lives for seconds would otherwise never sweep.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ..ir.errors import StoreError
from ..run.records import Claim, Record, Store
from ..run.steps import ClaimKey, CompleteClaim, GetRecord, Invoke, ReleaseClaim, Step
from .invoke import InvokeOutcome
from .threads import ThreadPool

__all__ = ["StoreSteps"]

_SAVE_ATTEMPTS = 3
_THREADS = 8
_SWEEP_INTERVAL = 600.0  # seconds on average; records live for a day, runs for a week
_SWEEP_LIMIT = 5000  # records and runs per sweep: a few seconds of one thread, which mostly pauses
_NEXT_SWEEP_AFTER_LIMIT = 2.0  # seconds until the next sweep if this one left something: above any rate of new runs
_FIRST_USE_SHARE = 1 / 16  # share of the processes that sweep at their first use
_log = logging.getLogger("toolwire.runs")


class StoreSteps:
    """A store and the threads that use it. They are separate: busy tools must not delay the renewal of leases."""

    def __init__(self, store: Store | None) -> None:
        self._optional_store = store
        self._threads = ThreadPool(_THREADS)
        delay = 0.0 if random.random() < _FIRST_USE_SHARE else random.uniform(0.0, _SWEEP_INTERVAL)
        self._next_sweep = time.monotonic() + delay

    @property
    def _store(self) -> Store:
        assert self._optional_store is not None, "calls without a store have no such steps"
        return self._optional_store

    async def use(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Run an operation of the store on a thread."""
        if self._optional_store is not None and time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + _SWEEP_INTERVAL
            self._threads.submit(self._sweep)
        return await asyncio.wrap_future(self._threads.submit(partial(work, *arguments, **options)))

    async def perform(self, step: Step) -> Any:
        """Perform a store operation; return a StoreError as a value. Storing a result is tried several times."""
        store = self._store
        attempts = _SAVE_ATTEMPTS if isinstance(step, CompleteClaim) else 1
        for remaining in reversed(range(attempts)):
            try:
                if isinstance(step, GetRecord):
                    return await self.use(store.get, step.key)
                if isinstance(step, ClaimKey):
                    return await self._claim(step.claim)
                if isinstance(step, CompleteClaim):
                    return await self.use(store.complete, step.key, step.token, step.result, step.ttl, step.state)
                assert isinstance(step, ReleaseClaim)
                return await self.use(store.release, step.key, step.token)
            except StoreError as error:
                if not remaining:
                    return error
                await asyncio.sleep(0.1)
        return None

    async def await_call(self, step: Invoke, work: Awaitable[InvokeOutcome]) -> InvokeOutcome:
        """Await the function, and renew the lease of its claim while it runs."""
        assert step.token is not None
        assert step.context.idempotency_key is not None
        renewal = asyncio.create_task(self._renew(step.context.idempotency_key, step.token, step.lease))
        try:
            return await work
        finally:
            renewal.cancel()

    def release(self, key: str, token: str) -> None:
        """Release a claim in the background; if that fails, its lease expires."""
        self._threads.submit(partial(self._store.release, key, token))

    def _sweep(self) -> None:
        """Remove expired records and runs. A failure is logged: the next sweep removes them."""
        delay = _SWEEP_INTERVAL * random.uniform(0.5, 1.5)
        try:
            if self._store.sweep(_SWEEP_LIMIT) >= _SWEEP_LIMIT:
                delay = _NEXT_SWEEP_AFTER_LIMIT * random.uniform(0.5, 1.5)
        except Exception as error:  # noqa: BLE001  # also a store of the user: its errors must not end the calls
            _log.warning("cannot remove expired records and runs from the store: %s", error)
        self._next_sweep = time.monotonic() + delay

    async def _renew(self, key: str, token: str, lease: float) -> None:
        """Renew a lease until cancelled. A failure is ignored: the next attempt comes before the lease expires."""
        while True:
            await asyncio.sleep(lease / 3)
            try:
                await self.use(self._store.renew, key, token, lease)
            except StoreError:
                continue

    async def _claim(self, claim: Claim) -> Record:
        """Claim a key on a thread. If this task is cancelled meanwhile, the claim is released once it is made."""
        pending_claim = self._threads.submit(partial(self._store.claim, claim))
        try:
            return await asyncio.wrap_future(pending_claim)
        except asyncio.CancelledError:  # the claim may still succeed, and the call will not run
            pending_claim.add_done_callback(lambda _: self.release(claim.key, claim.token))
            raise
