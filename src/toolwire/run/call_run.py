"""One call from the model's wish to its result, sans-IO.

    run = CallRun(call, settings)
    step = run.next()
    while not isinstance(step, Finished):
        step = run.next(<what came of it>)         # a driver performs the step: toolwire.net.runner
    step.result

Gates first, then approval, the claim, the function, and the record of what it gave. After the claim two rules hold: a write
whose outcome is not known is recorded as unknown and never run again by itself; a claim is given back only where surely
nothing has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from ..ir.errors import StoreError
from ..ir.parts import ToolCall, ToolResult
from ..ir.value import Value
from .cache import ResultCache
from .context import CallContext
from .failures import NotExecuted, ToolError, Transient
from .gates import GATES, Gate, Pending, pass_gates
from .keys import derived_key, fingerprint, given_key
from .output import LIMIT, Shelf, cap
from .policy import Deny, Policy, approval_hash
from .records import DAY, Claim, Record, RecordState
from .requests import (
    Approve,
    ClaimIt,
    CompleteIt,
    Failed,
    Finished,
    Invoke,
    Reconcile,
    ReleaseIt,
    Returned,
    Step,
    TimedOut,
    Unfit,
    Wait,
)
from .results import from_record, refusal, spoken, to_record, told, value_result
from .toolbox import Toolbox

__all__ = ["CallRun", "Settings"]

_POLL = 0.2
_LONGEST_WAIT = 30.0


class Settings(Value, frozen=True):
    """What holds for all calls of a run. `now` and `token` come from outside: this code has no clock and no dice."""

    box: Toolbox
    now: Callable[[], float]
    token: Callable[[], str]
    jitter: Callable[[float], float] = float
    run_id: str = ""
    caller: str = ""
    tenant: str = ""
    policy: Policy = Policy()
    gates: tuple[Gate, ...] = GATES
    has_store: bool = False
    lease: float = 60.0
    ttl: float = DAY
    while_running: str = "wait"  # or "refuse"
    patience: float = 30.0
    output_limit: int = LIMIT
    cache: ResultCache | None = None
    shelf: Shelf | None = None
    tainted: bool = False


class CallRun:
    """Call `next` with what came of the last step; the last step is Finished."""

    def __init__(self, call: ToolCall, settings: Settings, *, occurrence: int = 0, key: str | None = None) -> None:
        self.call = call
        self._settings = settings
        self._occurrence = occurrence
        self._given_key = key
        self._steps = self._run()
        self._started = False

    def next(self, reply: Any = None) -> Step:
        if not self._started:
            self._started = True
            return next(self._steps)
        return self._steps.send(reply)

    def _run(self) -> Generator[Step, Any, None]:
        settings = self._settings
        pending = Pending(
            self.call,
            settings.box,
            key=self._key(),
            caller=settings.caller,
            tenant=settings.tenant,
            tainted=settings.tainted,
        )
        passed = pass_gates(pending, settings.gates)
        result = passed if isinstance(passed, ToolResult) else (yield from self._allowed(passed))
        yield Finished(result)

    def _key(self) -> str | None:
        return None if self._given_key is None else given_key(self._given_key, self._settings.tenant)

    def _allowed(self, pending: Pending) -> Generator[Step, Any, ToolResult]:
        verdict = self._settings.policy.verdict(pending)
        if isinstance(verdict, Deny):
            return refusal(pending.call, "denied", f"Not allowed: {verdict.why}. Nothing was run.")
        if verdict is not None:
            asked = approval_hash(pending.call.name, pending.arguments)
            agreed = yield Approve(pending.call.name, pending.arguments, verdict.why, asked)
            if agreed is not True:
                words = f"A person has to agree to this and did not: {verdict.why}. Nothing was run."
                return refusal(pending.call, "needs_approval", words)
        result = yield from self._cached(pending)
        if self._settings.policy.taint == "warn" and pending.tainted and pending.tool.tool.effect == "write":
            result = told(result, tainted=True)
        return told(result, repaired=list(pending.steps)) if pending.steps else result

    def _cached(self, pending: Pending) -> Generator[Step, Any, ToolResult]:
        settings, entry = self._settings, pending.tool
        cache = settings.cache if entry.options.cache and entry.tool.effect in ("pure", "read") else None
        if cache is not None:
            found = cache.get(entry.name, pending.arguments, settings.now(), settings.tenant)
            if found is not None:
                return told(msgspec.structs.replace(found, call_id=self.call.id), cached=True)
        result = yield from self._once(pending)
        if cache is not None and not result.is_error:
            until = settings.now() + (entry.options.cache or 0)
            cache.put(entry.name, pending.arguments, result, until, settings.tenant)
        return result

    def _once(self, pending: Pending) -> Generator[Step, Any, ToolResult]:
        """With a claim where the tool does something to the world, or where somebody gave a key."""
        effect = pending.tool.tool.effect
        careful = effect in ("write", "idempotent")
        if not self._settings.has_store or not (careful or pending.key):
            return (yield from self._attempts(pending, None, None))
        claim = self._claim(pending)
        record = yield ClaimIt(claim)
        if isinstance(record, StoreError):
            if careful:
                words = f"Not run: what keeps it from running twice cannot be reached ({record.message})."
                return refusal(pending.call, "store_down", words)
            return (yield from self._attempts(pending, None, None))
        if record.token != claim.token:
            settled = yield from self._settled(pending, claim, record)
            if settled is not None:
                return settled
        return (yield from self._attempts(pending, claim.key, claim.token))

    def _claim(self, pending: Pending) -> Claim:
        settings, entry = self._settings, pending.tool
        key = pending.key
        if key is None and entry.options.key is not None:
            key = given_key(entry.options.key(pending.arguments), settings.tenant)
        if key is None:
            key = derived_key(settings.run_id, entry.name, pending.arguments, self._occurrence, settings.tenant)
        return Claim(
            key,
            entry.name,
            fingerprint(entry.name, pending.arguments, settings.tenant),
            settings.token(),
            settings.lease,  # it is renewed for as long as the function runs
            settings.ttl,
            reclaim=entry.tool.effect != "write",
            durable=entry.tool.effect == "write",
        )

    def _settled(self, pending: Pending, claim: Claim, record: Record) -> Generator[Step, Any, ToolResult | None]:
        """The answer of an earlier run of the same call; None once the claim is ours after all."""
        call, settings = pending.call, self._settings
        until = settings.now() + settings.patience
        while record.token != claim.token:
            if record.fingerprint != claim.fingerprint:
                words = "This idempotency key was used for a call with other arguments. Nothing was run."
                return refusal(call, "key_conflict", words)
            if record.state == "done":
                return from_record(record.result or "", call)
            if record.state == "unknown":
                return (yield from self._reconciled(pending, claim))
            if settings.while_running != "wait" or settings.now() >= until:
                return refusal(call, "in_progress", "The same call is still running. Its result is not known yet.")
            yield Wait(_POLL)
            found = yield ClaimIt(claim)
            if isinstance(found, StoreError):
                return refusal(call, "store_down", f"Not run: the store cannot be reached ({found.message}).")
            record = found
        return None

    def _reconciled(self, pending: Pending, claim: Claim) -> Generator[Step, Any, ToolResult]:
        call, entry = pending.call, pending.tool
        if entry.options.reconcile is not None:
            outcome = yield Reconcile(entry, claim.key, pending.arguments)
            if isinstance(outcome, Returned) and outcome.value is not None:
                return told(value_result(call, outcome.value), reconciled=True)
        words = (
            "An earlier try of this call may or may not have taken effect; it is not run again by itself. "
            "Find out what happened before you ask for it again."
        )
        return told(refusal(call, "outcome_unknown", words), key=claim.key)

    def _attempts(self, pending: Pending, key: str | None, token: str | None) -> Generator[Step, Any, ToolResult]:
        """Runs the function, again where that cannot do harm."""
        entry, settings = pending.tool, self._settings
        context = CallContext(self.call.id, entry.name, settings.run_id, settings.caller, key)
        for attempt in range(entry.options.retries + 1):
            outcome = yield Invoke(entry, pending.arguments, context, token, settings.lease)
            delay = self._worth_another(outcome, entry.tool.effect, attempt, entry.options.retries)
            if delay is None:
                break
            yield Wait(delay)
        return (yield from self._recorded(pending, outcome, key, token))

    def _worth_another(self, outcome: Any, effect: str, attempt: int, retries: int) -> float | None:
        """How long to wait before the next try; None where there is none."""
        if attempt >= retries or not isinstance(outcome, Failed):
            return None
        error = outcome.error
        harmless = effect != "write" or (isinstance(error, Transient) and error.before_effect)
        if not (isinstance(error, NotExecuted) or (isinstance(error, Transient) and harmless)):
            return None
        wanted = error.retry_after if isinstance(error, Transient) else None
        if wanted is None:
            return min(self._settings.jitter(0.25 * 2**attempt), _LONGEST_WAIT)
        return wanted if wanted <= _LONGEST_WAIT else None

    def _recorded(
        self, pending: Pending, outcome: Any, key: str | None, token: str | None
    ) -> Generator[Step, Any, ToolResult]:
        result, unknown, nothing_happened = self._classify(pending, outcome)
        limit = pending.tool.options.output_limit or self._settings.output_limit
        result = cap(result, limit, self._settings.shelf)
        if key is None or token is None:
            return result
        if nothing_happened:
            yield ReleaseIt(key, token)
            return result
        state: RecordState = "unknown" if unknown else "done"
        kept = yield CompleteIt(key, token, to_record(result), self._settings.ttl, state)
        return result if kept is True else told(result, recorded=False)

    def _classify(self, pending: Pending, outcome: Any) -> tuple[ToolResult, bool, bool]:
        """(the result, whether the effect is unknown, whether surely nothing has happened)"""
        call, effect = pending.call, pending.tool.tool.effect
        if isinstance(outcome, Returned):
            return value_result(call, outcome.value), False, False
        if isinstance(outcome, TimedOut):
            unknown = effect == "write"
            after = (
                "It may have taken effect." if unknown else "It changed nothing." if effect in ("pure", "read") else ""
            )
            words = f"{call.name} did not finish within {outcome.seconds:g} seconds. {after}".strip()
            return refusal(call, "outcome_unknown" if unknown else "timeout", words), unknown, not unknown
        if isinstance(outcome, Unfit):
            return refusal(call, "invalid_arguments", f"Nothing was run: {outcome.words}. Call it again."), False, True
        error = outcome.error
        words = spoken(error)
        if isinstance(error, ToolError):
            said = spoken(error, name=False) or "The tool refused."
            return told(call.result(said, is_error=True), code="failed"), False, False
        untouched = isinstance(error, NotExecuted) or (isinstance(error, Transient) and error.before_effect)
        if untouched or effect in ("pure", "read", "idempotent"):
            return refusal(call, "failed", f"{call.name} failed: {words}"), False, True
        said = f"{call.name} failed, and may have taken effect before it did: {words}"
        return refusal(call, "outcome_unknown", said), True, False
