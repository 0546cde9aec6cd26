"""Decide about the waiting calls of a stored run, in any process.

approve_call(store, run_id, call_id)                      # or with other arguments: arguments={…}
deny_call(store, run_id, call_id, "too expensive")
supply_result(store, run_id, call_id, {"total": 3})
answer = await agent.resume(run_id)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.pointer import Object
from ..run.records import Store
from ..run.run_events import encode_steps, fold_events
from ..run.session import Session
from ..run.stored_runs import RunConflict, StoredRun, read_rows, split_rows
from .checkpoints import run_status, run_summary

__all__ = ["approve_call", "deny_call", "load_run", "supply_result"]

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
    """Apply a decision by compare-and-set: if another process changed the run meanwhile, read it again."""
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
