"""Checkpoints: save an agent's run after each step, so that another process can continue it.

While a stored run waits for approvals or results of its calls, any process may decide about them.

approve_call(store, run_id, call_id)                      # or with other arguments: arguments={…}
deny_call(store, run_id, call_id, "too expensive")
supply_result(store, run_id, call_id, {"total": 3})
answer = await agent.resume(run_id)
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from msgspec.structs import replace

from ...ir.errors import ConfigError, StoreError
from ...ir.parts import Text
from ...ir.pointer import Object
from ...ir.text import dumps
from ...run.session.events import RunStep, encode_steps, fold_events
from ...run.session.loop import Session
from ...run.session.state import AwaitApproval, Done, GiveUp, RunState
from ...run.values.records import DAY, WEEK, RunConflict, RunStatus, RunStore, Store, StoredRun, read_rows, split_rows
from ...run.values.waiting import WaitingCall

# Save the run of an agent after each step, so that another process can continue it.
#
# A save appends the events since the last one. They are encoded in a thread of the store: a large result delays the
# event loop no more than a small one.
#
# While a run is continued, its lease is renewed in the background. A save that finds a newer version, or the lease of
# another process, raises RunConflict and ends the run here. A store that cannot be reached does not end a run in
# progress: the next save first repeats the append that failed. It may have succeeded, only its response was lost; a
# store recognises the identical append. A run that waits or has ended is reported only if it was saved.
#
# A save that is cancelled goes on in its thread. The lease is released after it, since it would take the lease again.


_log = logging.getLogger("toolwire.runs")
_MAX_SUMMARY = 200  # characters of a run's summary; a line in a listing of runs


class StoreThreads(Protocol):
    """Runs a store operation outside the event loop; implemented by `Runner`."""

    async def use_store(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any: ...


class Checkpoints:
    """The stored form of one run. Use it as a context manager: the lease is renewed inside the block."""

    def __init__(
        self,
        runs: RunStore,
        threads: StoreThreads,
        *,
        ttl: float = WEEK,
        record_ttl: float = DAY,
        lease: float,
        tenant: str = "",
    ) -> None:
        """Prepare the checkpoints of a tenant's run.

        `ttl`: how long a run that waits or has ended is kept. `record_ttl`: the time to live of the records of calls. A
        run that is interrupted is kept as long as they are: without them, its last calls could run twice. `lease`: seconds
        after which another process can continue the run of a process that died; renewed three times within it.
        """
        self._runs = runs
        self._threads = threads
        self._ttl = ttl
        self._record_ttl = record_ttl
        self._lease = lease
        self._tenant = tenant
        self._token = secrets.token_hex(16)
        self._version = 0
        self._saved: RunState | None = None  # the state at this version
        self._is_copy = False  # the session comes from elsewhere, so that its values are other objects
        self._pending: deque[tuple[StoredRun, Sequence[RunStep]]] = deque()  # appends that are not confirmed
        self._operation: asyncio.Future[StoredRun | None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._run_id = ""
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        if self._run_id:
            self._start_renewal()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop renewing, wait for a save in progress, and end the lease: the run can be continued elsewhere at once."""
        self._is_open = False
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._operation is not None and not self._operation.done():
            await asyncio.wait({self._operation})  # it would take the lease again after the release
        if self._run_id:
            await self._release()

    async def _release(self) -> None:
        try:
            await self._threads.use_store(self._runs.release, self._run_id, self._token)
        except StoreError as error:
            _log.warning("cannot end the lease of run %s; it ends by itself: %s", self._run_id, error)

    def begin(self, session: Session) -> None:
        """Record the start of a new run. It is stored with its first step."""
        session.steps = []
        session.record_step("start")

    async def load(self, run_id: str) -> RunState:
        """Take the lease of a stored run and return its state.

        Raise ConfigError if there is no such run of this tenant, and RunConflict if another process has its lease.
        """
        if await self._belongs_to_another(run_id):
            raise _absent_run(run_id)
        stored = await self._take_lease(run_id)
        if stored is None:
            await self._refuse(run_id)
        assert stored is not None
        self._adopt(stored)
        self._saved = await self._threads.use_store(self._fold, stored)
        assert self._saved is not None
        return self._saved

    async def _take_lease(self, run_id: str) -> StoredRun | None:
        self._run_id = run_id
        return await self._perform(self._runs.lease, run_id, self._token, self._lease)

    async def _perform(self, work: Callable[..., StoredRun | None], *arguments: Any) -> StoredRun | None:
        """Perform an operation that may take the lease. It continues if this task is cancelled, and `close` awaits it."""
        self._operation = asyncio.ensure_future(self._threads.use_store(work, *arguments))
        return await asyncio.shield(self._operation)

    def _fold(self, stored: StoredRun) -> RunState:
        return fold_events(read_rows(self._runs, stored), stored.version)

    def follow(self, session: Session) -> None:
        """Record the steps of a session that has the loaded state."""
        session.steps = []

    async def take_over(self, session: Session) -> None:
        """Take the lease of a session's run, start its decided calls, and save it, as a new run if it is not stored.

        Raise RunConflict if the run has ended or is leased, or was changed in the store after the session was loaded: a
        decision of another process would be lost.
        """
        run_id, revision = session.state.run_id, session.state.revision
        if await self._belongs_to_another(run_id):
            raise RunConflict(f"the store has another run {run_id}", hint="start a new run")
        stored = await self._take_lease(run_id)
        if stored is not None:
            self._adopt(stored)
            if stored.status in ("done", "failed"):
                raise RunConflict(f"run {run_id} has ended", hint="start a new run")
            if stored.version != revision:
                raise RunConflict(
                    f"run {run_id} was changed in the store: the session has version {revision}, the store {stored.version}",
                    hint="decide with approve_call or deny_call, and continue with agent.resume(run_id)",
                )
            self._saved, self._is_copy = await self._threads.use_store(self._fold, stored), True
            self.follow(session)
        elif await self._threads.use_store(self._runs.get, run_id) is not None:
            await self._refuse(run_id)
        elif revision:
            raise RunConflict(f"run {run_id} is no longer in the store", hint="start a new run")
        else:
            self.begin(session)
        session.start_calls()
        await self.save(session)

    async def save(self, session: Session) -> None:
        """Append the steps of the session since the last save, and set its revision.

        If the store fails while the run goes on, log that; the next save repeats the append. Raise StoreError if the run
        waits or has ended, and RunConflict if another process has changed it.
        """
        status = run_status(session)
        run = StoredRun(session.state.run_id, status, run_summary(session), token=self._token, tenant=self._tenant)
        self._run_id = run.run_id
        # Kept until it is confirmed: an append whose answer was lost is repeated unchanged, which a store recognises.
        self._pending.append((run, session.take_steps()))
        try:
            stored = await self._perform(self._append_pending)
        except StoreError as error:
            if status != "running":
                raise
            _log.warning("run %s was not saved, the next step is saved with this one: %s", run.run_id, error)
            return
        if stored is None:
            raise RunConflict(f"run {run.run_id} was changed by another process", hint="continue it there")
        session.set_revision(stored.version)
        self._adopt(stored)

    def _append_pending(self) -> StoredRun | None:
        """Encode and append the pending steps. Return the stored run, or None if another process has changed it.

        This is called in a thread, which is safe because the values of a state are immutable.
        """
        stored = None
        while self._pending:
            run, steps = self._pending[0]
            rows = split_rows(encode_steps(self._saved, steps, by_value=self._is_copy))
            ttl = self._record_ttl if run.status == "running" else self._ttl
            stored = self._runs.append(run, rows, self._version, ttl=ttl, lease=self._lease)
            if stored is None:
                return None
            self._saved, self._version, self._is_copy = steps[-1].state, stored.version, False
            self._pending.popleft()
        return stored

    def _adopt(self, stored: StoredRun) -> None:
        self._version, self._run_id = stored.version, stored.run_id
        if self._is_open:
            self._start_renewal()

    def _start_renewal(self) -> None:
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        """Renew the lease until cancelled. A failure is only logged: the next attempt is made before the lease expires."""
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                await self._threads.use_store(self._runs.renew, self._run_id, self._token, self._lease)
            except StoreError as error:
                _log.warning("cannot renew the lease of run %s: %s", self._run_id, error)

    async def _belongs_to_another(self, run_id: str) -> bool:
        """Return True if the run belongs to another tenant, whose lease must not be taken."""
        stored: StoredRun | None = await self._threads.use_store(self._runs.get, run_id)
        return stored is not None and stored.tenant != self._tenant

    async def _refuse(self, run_id: str) -> None:
        """Raise the error for a run that cannot be leased."""
        if await self._threads.use_store(self._runs.get, run_id) is None:
            raise _absent_run(run_id)
        raise RunConflict(
            f"another process continues run {run_id}", hint="wait until it has ended or its lease expired"
        )


def _absent_run(run_id: str) -> ConfigError:
    return ConfigError(f"there is no run {run_id!r} in the store", hint="toolwire runs list")


def run_status(session: Session) -> RunStatus:
    """Return the status under which a session is stored."""
    step = session.next()
    if isinstance(step, AwaitApproval):
        return "waiting"
    if isinstance(step, GiveUp):
        return "failed"
    return "done" if isinstance(step, Done) else "running"


def run_summary(session: Session) -> str:
    """Return the waiting calls and the beginning of the prompt on one line."""
    messages = session.state.request.messages[session.state.first_message :]
    texts = [part.text for message in messages[:1] for part in message.parts if isinstance(part, Text)]
    waiting = [_describe(call) for call in session.waiting]
    return " · ".join([*waiting, " ".join(" ".join(texts).split())])[:_MAX_SUMMARY]


def _describe(call: WaitingCall) -> str:
    return f"{call.tool}({dumps(call.arguments)[:_MAX_SUMMARY]})"


_ATTEMPTS = 10  # other processes may decide about other calls of the run at the same time


def approve_call(
    store: Store, run_id: str, call_id: str, arguments: Object | None = None, *, tenant: str = ""
) -> StoredRun:
    """Approve a waiting call, with other arguments if they are given. The call runs when the run is continued."""
    return _change_run(store, run_id, tenant, lambda session: session.approve(call_id, arguments))


def deny_call(store: Store, run_id: str, call_id: str, reason: str = "", *, tenant: str = "") -> StoredRun:
    """Deny a waiting call. The model reads the reason when the run is continued."""
    return _change_run(store, run_id, tenant, lambda session: session.deny(call_id, reason))


def supply_result(store: Store, run_id: str, call_id: str, result: Any, *, tenant: str = "") -> StoredRun:
    """Set the result of a call whose tool returned `Suspended`."""
    return _change_run(store, run_id, tenant, lambda session: session.supply(call_id, result))


def load_run(store: Store, run_id: str, tenant: str = "") -> tuple[StoredRun, Session]:
    """Read a stored run of a tenant. Raises ConfigError if there is none."""
    stored = store.runs.get(run_id)
    if stored is None or stored.tenant != tenant:
        raise ConfigError(f"there is no run {run_id!r} in the store", hint="toolwire runs list")
    return stored, Session.load(fold_events(read_rows(store.runs, stored), stored.version), now=time.time)


def _check_phase(session: Session) -> None:
    """Raise ConfigError for a run without waiting calls."""
    phase = session.state.phase
    if phase == "wait":
        return
    state = "has ended" if phase in ("done", "gave_up") else "is not suspended"
    raise ConfigError(f"the run {state}; no call is waiting", hint=f"toolwire runs show {session.state.run_id}")


def _change_run(store: Store, run_id: str, tenant: str, change: Callable[[Session], None]) -> StoredRun:
    """Apply a decision to a stored run, and return it. If another process changed it meanwhile, try again.

    Raise ConfigError if there is no such run or no call waits, and RunConflict after ten attempts.
    """
    for _ in range(_ATTEMPTS):
        stored, session = load_run(store, run_id, tenant)
        _check_phase(session)
        before, session.steps = session.state, []
        change(session)
        rows = split_rows(encode_steps(before, session.take_steps()))
        changed = replace(stored, status=run_status(session), summary=run_summary(session), token="")
        saved = store.runs.append(changed, rows, stored.version)
        if saved is not None:
            return saved
    raise RunConflict(f"another process continues run {run_id}", hint="try again when it has ended")
