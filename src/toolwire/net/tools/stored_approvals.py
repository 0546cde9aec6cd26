"""Approvals for servers: a call that needs approval is stored, and the next identical call uses the decision once.

    runner = Runner(tools, store=store, policy=policy, approve=StoredApprovals(store.runs))
    with owned_by("client 7"): await runner.run(calls)

A server has no run that it could continue: its client repeats the call. The question is stored as a run with this call
only, so `toolwire runs approve` decides about it like about any other. An approval is bound to the tool, its definition,
the arguments and the owner, expires, and is consumed by compare-and-set before the call runs: it admits one call.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextvars import ContextVar
from hashlib import sha256

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.parts import Text, ToolCall
from ...ir.request import Message, Request
from ...ir.response import Response, Stop
from ...run.calls.steps import ApprovalReply, Approve, Approved, Denied
from ...run.session.events import RunStep, encode_steps, fold_events
from ...run.session.loop import Session
from ...run.session.state import AwaitApproval, RunTools
from ...run.values.records import DAY, RunConflict, RunStore, StoredRun, read_rows, split_rows
from ...run.values.results import result_note
from ...run.values.waiting import Suspend, WaitingCall, suspended_result

_ATTEMPTS = 10  # lost races in a row; each means that another process decided or asked about the same call
_MAX_LISTED = 10_000  # questions of all clients; it bounds the listing that every new question needs
_HOUR = 3600.0  # seconds that the store keeps a question after it has expired, because clocks differ
_TOO_MANY = "too many calls wait for approval; repeat it when some of them are decided"

_owner: ContextVar[str] = ContextVar("toolwire_call_owner", default="")


class owned_by:  # noqa: N801  # used like a function; a generator would cost several times as much per call
    """Assign the calls inside the block to a client: other clients cannot use its approvals."""

    __slots__ = ("_client", "_token")

    def __init__(self, client: str) -> None:
        self._client = client

    def __enter__(self) -> None:
        self._token = None if _owner.get() == self._client else _owner.set(self._client)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _owner.reset(self._token)


class StoredApprovals:
    """An approver that stores questions. They expire after `ttl` seconds.

    Further calls of a client with `max_waiting` questions are denied, so that one client cannot fill the store.
    """

    # More than a person decides in a day; a client cannot fill the store.
    def __init__(self, runs: RunStore, *, ttl: float = DAY, max_waiting: int = 100) -> None:
        if max_waiting < 1:
            raise ConfigError(f"max_waiting must be at least 1, got {max_waiting}")
        self._runs = runs
        self._max_waiting = max_waiting
        self._ttl = Suspend(ttl).ttl  # validated

    async def __call__(self, step: Approve) -> ApprovalReply:
        """Consume and return the stored decision, or store the approval request."""
        run_id = _question_id(step, _owner.get())
        return await asyncio.to_thread(self._decide, run_id, step)

    def _decide(self, run_id: str, step: Approve) -> ApprovalReply:
        """Return the decision and mark it as used, or store the question and suspend, or deny it if too many wait.

        All of it is one compare-and-set: if another process changed the run meanwhile, it is read again.
        """
        for _ in range(_ATTEMPTS):
            stored = self._runs.get(run_id)
            session, reply = None, None
            if stored is not None and stored.status != "done":
                try:
                    session = Session.load(fold_events(read_rows(self._runs, stored)), now=time.time)
                except RunConflict:
                    continue  # asked again by another process meanwhile
                reply = _read_decision(session, stored)
                if isinstance(reply, Suspend):
                    return reply
            if reply is None and self._has_too_many(run_id):
                return Denied(_TOO_MANY)
            if session is not None and stored is not None and reply is not None:
                is_written = self._write_use(session, stored)
            else:
                is_written = self._write_question(run_id, step, 0 if stored is None else stored.version)
            if is_written:
                return Suspend(self._ttl, run_id) if reply is None else reply
        return False

    def _write_question(self, run_id: str, step: Approve, version: int) -> bool:
        """Store the question. The log of an older, identical one is replaced, so that it does not grow with each use."""
        session = _question_session(run_id, step, self._ttl)
        rows = split_rows(encode_steps(None, [RunStep("start", time.time(), session.state)]))
        question = StoredRun(run_id, "waiting", f"{step.tool}: {step.why}"[:200])
        return self._runs.append(question, rows, version, ttl=self._ttl + _HOUR, restart=True) is not None

    def _write_use(self, session: Session, stored: StoredRun) -> bool:
        """Mark the decision as used. The reason is unique: a store accepts a repeated append of the same rows."""
        reason = f"the decision was used ({secrets.token_hex(16)})"
        used = RunStep("decision", time.time(), replace(session.state, phase="gave_up", reason=reason))
        rows = split_rows(encode_steps(session.state, [used]))
        run = StoredRun(stored.run_id, "done", stored.summary)
        return self._runs.append(run, rows, stored.version, ttl=self._ttl + _HOUR) is not None

    def _has_too_many(self, run_id: str) -> bool:
        """Return whether no other question of this question's owner can be stored."""
        waiting = [run.run_id for run in self._runs.list("waiting", _MAX_LISTED) if run.run_id.startswith("call-")]
        if run_id in waiting:
            return False  # an expired question that is asked again
        mark = _owner_mark(run_id)
        return len(waiting) >= _MAX_LISTED or sum(_owner_mark(other) == mark for other in waiting) >= self._max_waiting


def _question_id(step: Approve, owner: str) -> str:
    """Return the id of a question. Its end is the same for all questions of the owner."""
    question, mark = (sha256(text.encode()).hexdigest() for text in (f"{owner}\x00{step.hash}", f"owner {owner}"))
    return f"call-{question[:24]}-{mark[:12]}"


def _owner_mark(run_id: str) -> str:
    return run_id.rpartition("-")[2]


def _question_session(run_id: str, step: Approve, ttl: float) -> Session:
    """Build a session with one call, which waits for approval."""
    call = ToolCall(step.call_id, step.tool, step.arguments)
    prompt = Message("user", (Text(f"A client of the server calls {step.tool}."),))
    session = Session(Request("", (prompt,)), now=time.time, run_id=run_id)
    session.add_response(Response(parts=(call,), stop=Stop("tool_calls")))
    expires_at = time.time() + ttl
    waiting = WaitingCall(call.id, step.tool, step.arguments, step.why, hash=step.hash, expires_at=expires_at)
    session.add_results([suspended_result(call, waiting)])
    return session


def _read_decision(session: Session, stored: StoredRun) -> ApprovalReply | None:
    """Return the decision about the call of a session, `Suspend` if it still waits, or None if it has expired."""
    step = session.next()
    if isinstance(step, AwaitApproval):
        remaining = step.calls[0].expires_at - time.time()
        return Suspend(remaining, stored.run_id) if remaining > 0 else None
    if not isinstance(step, RunTools) or not step.results:
        return None
    result, approval = step.results[0], step.approvals[0]
    if result is not None:
        return Denied(result_note(result, "reason") or "")
    return None if approval is None else Approved(approval.arguments)
