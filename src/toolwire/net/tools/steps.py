"""The steps of a call: ask its approver, claim its key in a store, call its function, store the result.

A function runs on the event loop, in a thread of a bounded pool, or in a process that can be killed. Stores and
synchronous approvers run in threads, because a person may think for minutes.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias

from ...ir.errors import StoreError
from ...ir.pointer import Object
from ...ir.value import Value
from ...run.calls.context import NotExecuted, running
from ...run.calls.settings import runs_at_once
from ...run.calls.signature import FunctionSignature, function_signature
from ...run.calls.steps import (
    ApprovalReply,
    Approve,
    ArgumentMismatch,
    ClaimKey,
    CompleteClaim,
    Failed,
    GetRecord,
    Invoke,
    Reconcile,
    ReleaseClaim,
    Returned,
    Step,
    TimedOut,
)
from ...run.values.records import Claim, Record, Store
from ...run.values.waiting import Suspend
from ..threads import ThreadPool, call_in_thread
from ..time_limit import TimeLimitedCall, await_value, call_limited
from .isolation import collect_async_items, collect_items, run_in_process

Approver: TypeAlias = Callable[[Approve], "ApprovalReply | Awaitable[ApprovalReply]"]


class ApproverThread:
    """An approver and its thread. There is one thread: questions on a terminal must not be mixed."""

    def __init__(self, approve: Approver | Literal["suspend"] | None) -> None:
        self._approve = approve
        call = getattr(approve, "__call__", None)  # noqa: B004  # the method, of an object with an async one
        self._is_async = inspect.iscoroutinefunction(approve) or inspect.iscoroutinefunction(call)
        self._thread = ThreadPool(1)

    @property
    def is_set(self) -> bool:
        return self._approve is not None

    async def ask(self, step: Approve) -> ApprovalReply:
        """Return the approver's reply, from its thread if it is not async. Without an approver, no call is approved."""
        approve = self._approve
        if approve is None:
            return False
        if approve == "suspend":
            return Suspend()
        if not self._is_async:
            plain_reply: ApprovalReply = await call_in_thread(self._thread, approve, step)
            return plain_reply
        reply = approve(step)
        return await reply if inspect.isawaitable(reply) else reply

    def close(self) -> None:
        self._thread.close()


InvokeOutcome: TypeAlias = Returned | Failed | TimedOut | ArgumentMismatch


class Rates:
    """Limit the calls per second of each tool: a call that is too early waits."""

    def __init__(self) -> None:
        self._next_start: dict[str, float] = {}

    async def acquire(self, name: str, rate: float) -> None:
        now = asyncio.get_running_loop().time()
        start_at = max(self._next_start.get(name, now), now)
        self._next_start[name] = start_at + 1 / rate
        if start_at > now:
            await asyncio.sleep(start_at - now)


class Invoker:
    """Performs `Invoke`. A function that does not return occupies its thread until it does; see `ThreadPool`."""

    def __init__(self, threads: int = 64) -> None:  # as in `Runner`
        self._pool = ThreadPool(threads)
        self._rates = Rates()

    def close(self) -> None:
        self._pool.close()

    async def reconcile(self, step: Reconcile) -> Returned | Failed:
        """Ask the tool's `reconcile` function about the outcome of an earlier call; an error is returned as a failure."""
        function = step.entry.options.reconcile
        assert function is not None
        try:
            if inspect.iscoroutinefunction(function):
                return Returned(await function(step.key, step.arguments))
            return Returned(await call_in_thread(self._pool, function, step.key, step.arguments, share=step.entry.name))
        except Exception as error:  # noqa: BLE001  # a user-defined function
            return Failed(error)

    def begin(self, step: Invoke) -> InvokeOutcome | Awaitable[InvokeOutcome]:
        """Start the function, unless the call was stopped before. Arguments that do not fit its parameters are an outcome.

        Return its outcome if it did not wait, else an awaitable for the current task.
        """
        signature = step.signature or function_signature(step.entry.function)
        if runs_at_once(step.entry, signature):
            return _begin_async(step)
        return self._run_waiting(step, step.arguments, signature)

    async def _run_waiting(self, step: Invoke, arguments: Object, signature: FunctionSignature) -> InvokeOutcome:
        """Run a call that has to wait for its rate limit, a process or a thread."""
        entry = step.entry
        if entry.options.rate is not None:
            await self._rates.acquire(entry.name, entry.options.rate)
        if entry.options.isolation == "process":
            return await run_in_process(step, arguments) if step.start.begin() else _stopped_failure()
        if not signature.is_async:
            return await self._run_in_thread(step, arguments)
        ran = _begin_async(step)
        return ran if isinstance(ran, Value) else await ran

    async def _run_in_thread(self, step: Invoke, arguments: Object) -> InvokeOutcome:
        """Run a function in the pool, and return its outcome. On cancellation or timeout, its context is cancelled.

        On timeout, a call that has no thread yet was not executed, and is reported as such. An awaitable that the
        function returned is awaited on the event loop.
        """
        limit, context = step.entry.options.timeout, contextvars.copy_context()
        context.run(running.set, step.context)
        abandoned = threading.Event()
        work = self._pool.submit(
            lambda: context.run(_call_guarded, step, arguments, abandoned.is_set), share=step.entry.name
        )
        try:
            done, _ = await asyncio.wait({asyncio.wrap_future(work)}, timeout=limit)
        except asyncio.CancelledError:
            step.context.cancelled = True
            abandoned.set()
            work.cancel()  # if it has no thread yet
            raise
        if not done:
            step.context.cancelled = True
            abandoned.set()
            busy = NotExecuted(f"no thread was free for it for {limit:g} seconds")
            return Failed(busy) if work.cancel() else TimedOut(limit or 0)
        not_begun = work.exception()
        if not_begun is not None:
            return Failed(not_begun)
        outcome: Returned | Failed = work.result()
        remaining = _remaining_work(outcome.value) if isinstance(outcome, Returned) else None
        if remaining is None:
            return outcome
        ran = call_limited(lambda: remaining, {}, step.context, limit)
        return ran if isinstance(ran, Value) else await ran


def _begin_async(step: Invoke) -> InvokeOutcome | TimeLimitedCall:
    """Start an async function on the event loop. Return its outcome, or an awaitable if it waits."""
    if not step.start.begin():
        return _stopped_failure()
    return call_limited(step.entry.function, step.arguments, step.context, step.entry.options.timeout)


def _remaining_work(value: object) -> Coroutine[Any, Any, Any] | None:
    """Return the coroutine that finishes the work if a plain function returned an awaitable; else None."""
    if inspect.isawaitable(value):
        return await_value(value)
    return collect_async_items(value) if inspect.isasyncgen(value) else None


def _stopped_failure() -> Failed:
    return Failed(NotExecuted("stopped before it began"))


def _call_guarded(step: Invoke, arguments: Any, is_abandoned: Callable[[], bool]) -> Returned | Failed:
    """Call the function; anything that it raises, even `SystemExit`, is a failure of the call."""
    if not step.start.begin():
        return _stopped_failure()
    try:
        value = step.entry.function(**arguments)
        return Returned(collect_items(value, is_abandoned) if inspect.isgenerator(value) else value)
    except BaseException as error:  # noqa: BLE001
        return Failed(error)


# Perform the steps of a call that use a store: claim a key, renew its lease, store the result, release the claim.
#
# A process that uses a store also sweeps it now and then, in one of these threads, so that a store needs no server
# and no cron job to stay small. A sweep is bounded, and its time is random, so that many processes on one store do
# not sweep at once. Some sweeps come with the first use: a process that lives for seconds would otherwise never
# sweep.


_SAVE_ATTEMPTS = 3  # a lost result makes the outcome of a write unknown, so a short failure of the store is survived
_THREADS = 8  # operations take milliseconds; PostgreSQL keeps as many connections
_SWEEP_INTERVAL = 600.0  # seconds on average; records live for a day, runs for a week
_SWEEP_LIMIT = 5000  # records and runs per sweep: a few seconds of one thread, which mostly pauses
_NEXT_SWEEP_AFTER_LIMIT = 2.0  # seconds until the next sweep if this one left something: above any rate of new runs
_FIRST_USE_SHARE = 1 / 16  # share of the processes that sweep at their first use: of many short processes, some do
_CLOSE_TIMEOUT = 2.0  # seconds; a release takes milliseconds, and an unreachable store must not delay the exit
_log = logging.getLogger("toolwire.runs")


class StoreSteps:
    """A store and the threads that use it. They are separate: busy tools must not delay the renewal of leases."""

    def __init__(self, store: Store | None) -> None:
        self._optional_store = store
        self._threads = ThreadPool(_THREADS)
        self._operations: dict[Future[Any], int] = {}  # that are not done, each with its process
        self._is_closed = False
        delay = 0.0 if random.random() < _FIRST_USE_SHARE else random.uniform(0.0, _SWEEP_INTERVAL)
        self._next_sweep = time.monotonic() + delay

    @property
    def _store(self) -> Store:
        assert self._optional_store is not None, "calls without a store have no such steps"
        return self._optional_store

    async def use(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Run an operation of the store on a thread. Start a sweep if it is due."""
        if self._optional_store is not None and time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + _SWEEP_INTERVAL
            self._threads.submit(self._sweep)
        return await asyncio.wrap_future(self._submit(partial(work, *arguments, **options)))

    def _submit(self, work: Callable[[], Any]) -> Future[Any]:
        return self._track(self._threads.submit(work))

    def _track(self, operation: Future[Any]) -> Future[Any]:
        """Keep an operation until it is done, for `close`."""
        self._operations[operation] = os.getpid()
        operation.add_done_callback(self._operations.pop)
        return operation

    async def perform(self, step: Step) -> Any:
        """Perform a store operation, and return its result, or the StoreError. Storing a result is tried several times."""
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

    def release(self, key: str, token: str, claim: Future[Record] | None = None) -> None:
        """Release a claim in the background, once `claim` has ended; if that fails, its lease expires."""
        work = partial(self._store.release, key, token)
        if claim is None:
            self._submit(work)
            return
        submitted = self._track(Future())  # so that `close` waits for a release that is not submitted yet

        def release(claim: Future[Record]) -> None:  # a callback, because a thread that waits could not renew leases
            try:
                if not claim.cancelled():  # else it never began
                    self._submit(work)
            finally:
                submitted.set_result(None)

        claim.add_done_callback(release)

    def close(self) -> None:
        """Wait until the operations that have begun are done, so that the store's owner may close it.

        In an event loop it does not wait: a store that hangs would stop the loop. See `aclose`.
        """
        self._is_closed = True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            end = time.monotonic() + _CLOSE_TIMEOUT
            while (begun := self._unfinished()) and (left := end - time.monotonic()) > 0:
                wait(begun, left)

    async def aclose(self) -> None:
        """Wait like `close`, while the event loop goes on."""
        self._is_closed = True
        end = time.monotonic() + _CLOSE_TIMEOUT
        while self._unfinished() and time.monotonic() < end:  # noqa: ASYNC110  # they end in threads
            await asyncio.sleep(0.01)

    def _unfinished(self) -> set[Future[Any]]:
        """Return the operations of this process that are not done. A forked process also holds its parent's."""
        begun = self._operations.copy()  # other threads add operations
        return {operation for operation, process in begun.items() if process == os.getpid() and not operation.done()}

    def _sweep(self) -> None:
        """Remove expired records and runs, and set the time of the next sweep: soon if some are left.

        A failure is logged: the next sweep removes them.
        """
        delay = _SWEEP_INTERVAL * random.uniform(0.5, 1.5)
        try:
            if self._store.sweep(_SWEEP_LIMIT) >= _SWEEP_LIMIT:
                delay = _NEXT_SWEEP_AFTER_LIMIT * random.uniform(0.5, 1.5)
        except Exception as error:  # noqa: BLE001  # also a store of the user: its errors must not end the calls
            if not self._is_closed:  # else the store may be closed, too
                _log.warning("cannot remove expired records and runs from the store: %s", error)
        self._next_sweep = time.monotonic() + delay

    async def _renew(self, key: str, token: str, lease: float) -> None:
        """Renew a lease until cancelled. A failure is ignored: the next attempt comes before the lease expires."""
        while True:
            await asyncio.sleep(lease / 3)
            with suppress(StoreError):
                await self.use(self._store.renew, key, token, lease)

    async def _claim(self, claim: Claim) -> Record:
        """Claim a key on a thread. If this task is cancelled meanwhile, the claim is released once it is made."""
        pending_claim = self._submit(partial(self._store.claim, claim))
        try:
            return await asyncio.wrap_future(pending_claim)
        except asyncio.CancelledError:  # the claim may still succeed, and the call will not run
            self.release(claim.key, claim.token, pending_claim)
            raise
