"""Run one tool call from the model's request to its result, sans-IO.

    run = CallRun(call, settings)
    step = run.next()
    while not isinstance(step, Finished):
        step = run.next(<outcome of the step>)     # a driver performs the step: toolwire.net.runner
    step.result

The order is: gates, approval, claim, function, record of the result. Two rules hold after the claim. A write whose
outcome is not known is recorded as unknown and never retried automatically. A claim is released only if the call
certainly had no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from ..ir.errors import StoreError
from ..ir.parts import ToolCall, ToolResult
from ..ir.value import Value
from .cache import ResultCache
from .classify import EffectState, classify
from .context import CallContext, ProgressSink
from .gates import GATES, Gate, Pending, pass_gates
from .keys import derive_key, fingerprint, store_key
from .output import LIMIT, TruncatedOutputs, cap_result
from .policy import Ask, Deny, Policy, approval_hash
from .records import DAY, Claim, Record
from .results import annotate, error_text, from_record, refusal, to_record, unserialisable_result, value_result
from .session import Session
from .signature import function_signature
from .steps import (
    Approve,
    ArgumentMismatch,
    ClaimKey,
    CompleteClaim,
    Failed,
    Finished,
    Invoke,
    Reconcile,
    ReleaseClaim,
    Returned,
    Step,
    Wait,
)
from .toolbox import Entry, Toolbox
from .transient import retry_advice
from .waiting import Approval, Suspend, WaitingCall, suspended_result

__all__ = ["CallRun", "RunSettings"]

_POLL = 0.2
_MAX_WAIT = 30.0


class RunSettings(Value, frozen=True):
    """Settings of all calls of a run. `now` and `token` are passed in: this code has no clock and no random numbers."""

    box: Toolbox
    now: Callable[[], float]
    token: Callable[[], str]
    jitter: Callable[[float], float] = float
    run_id: str = ""
    caller: str = ""
    tenant: str = ""
    policy: Policy | None = None
    gates: tuple[Gate, ...] = GATES
    has_store: bool = False
    keeps_keyless: bool = True  # False: no client can present a derived key again, so its result is not stored
    lease: float = 60.0
    ttl: float = DAY
    while_running: str = "wait"  # or "refuse"
    wait_timeout: float = 30.0
    output_limit: int = LIMIT
    cache: ResultCache | None = None
    truncated_outputs: TruncatedOutputs | None = None
    tainted: bool = False
    deps: Any = None  # the caller's object, for `CallContext.deps`
    on_progress: ProgressSink | None = None
    session: Session | None = None  # the run of the agent that makes the calls


class CallRun:
    """One call as a sequence of steps. Pass the outcome of each step to `next`; the last step is Finished."""

    __slots__ = ("_approval", "_gated", "_invoke", "_occurrence", "_steps", "call", "given_key", "settings")

    def __init__(
        self,
        call: ToolCall,
        settings: RunSettings,
        *,
        occurrence: int = 0,
        key: str | None = None,
        approval: Approval | None = None,
    ) -> None:
        """Prepare a call. `occurrence`: its number among identical calls; `key`: the client's idempotency key.

        `approval`: the decision about this call, if the run was suspended to ask for it.
        """
        self._approval = approval
        self.call = call
        self.settings = settings
        self._occurrence = occurrence
        self.given_key = key
        self._steps: Generator[Step, Any, ToolResult] | None = None
        self._invoke: Invoke | None = None
        self._gated: Pending | ToolResult | None = None

    def pass_gates(self) -> Pending | ToolResult:
        """Pass the gates. The first step does it, unless the driver has done it before, such as in a thread."""
        self._gated = pass_gates(self._make_pending(), self.settings.gates)
        return self._gated

    def next(self, reply: Any = None) -> Step:
        """Return the next step. `reply` is the outcome of the previous step; None for the first."""
        steps = self._steps
        if steps is None:
            steps = self._steps = self._run()
        try:
            return steps.send(reply)
        except StopIteration as done:
            return Finished(done.value)

    def stop(self) -> bool:
        """Stop the call. Return False if its function has begun: the call then continues and must be awaited."""
        return self._invoke is None or self._invoke.start.stop()

    def mark_cancelled(self) -> None:
        """Set `cancelled` in the context of the call: a function that cannot be interrupted may check it."""
        if self._invoke is not None:
            self._invoke.context.cancelled = True

    def release_step(self) -> ReleaseClaim | None:
        """Return the step that releases the claim of an abandoned call; None if the call may have had an effect."""
        step = self._invoke
        if step is None or step.token is None:
            return None
        if step.entry.tool.effect not in ("pure", "read") and not step.start.stop():
            return None
        return ReleaseClaim(step.context.idempotency_key or "", step.token)

    def _run(self) -> Generator[Step, Any, ToolResult]:
        """Yield the steps of the call in the order of the module docstring, and return the result."""
        settings = self.settings
        gated = self.pass_gates() if self._gated is None else self._gated
        if not isinstance(gated, Pending):
            return gated
        pending = self._convert_arguments(gated)
        if isinstance(pending, Deny):
            return _denied_result(gated, pending)
        entry = pending.tool
        options, effect = entry.options, entry.tool.effect
        verdict = None if settings.policy is None else settings.policy.check(pending)
        claim, key, token = None, None, None
        if verdict is not None or settings.has_store or options.cache is not None:
            cleared = yield from self._authorize(pending, verdict)
            if isinstance(cleared, ToolResult):
                return cleared
            if cleared is not None:
                claim, key, token = cleared, cleared.key, cleared.token
        context = self._make_context(entry, key)
        values = function_signature(entry.function).add_context(pending.values or {}, context)
        step = self._invoke = Invoke(entry, values, context, token, settings.lease)
        outcome = (yield step) if pending.conversion_error is None else ArgumentMismatch(pending.conversion_error)
        if not isinstance(outcome, Returned):
            outcome = yield from self._retry(pending, step, outcome)
        step.start.begin()  # from here on the call cannot be stopped: its outcome is recorded
        result, size, effect_state = classify(pending.call, effect, outcome)
        limit = options.output_limit or settings.output_limit
        if size is None or size > limit:
            result = cap_result(result, limit, settings.truncated_outputs)
        if claim is not None:
            result = yield from self._record_result(
                claim, effect_state if self._is_key_reusable(pending) else "nothing", result
            )
        return (
            self._finish(pending, result) if pending.steps or pending.tainted or options.cache is not None else result
        )

    def _make_context(self, entry: Entry, key: str | None) -> CallContext[Any]:
        settings = self.settings
        return CallContext(
            self.call.id,
            entry.name,
            settings.run_id,
            settings.caller,
            key,
            settings.deps,
            settings.session,
            _sink=settings.on_progress,
        )

    def _make_pending(self) -> Pending:
        """Build the call that the gates and the policy inspect, before its arguments are validated."""
        call, settings, key = self.call, self.settings, self.given_key
        return Pending(
            call,
            settings.box,
            settings.box.find(call.name),
            {} if call.arguments is None else call.arguments,
            None if key is None else store_key(key, settings.tenant),
            settings.caller,
            settings.tenant,
            settings.tainted,
        )

    def _convert_arguments(self, pending: Pending) -> Pending | Deny:
        """Convert the arguments to the types of the function: it receives exactly the values that are checked."""
        policy = self.settings.policy
        found = pending if policy is None else policy.rewrite(pending)
        if isinstance(found, Deny):
            return found
        try:
            values = function_signature(found.tool.function).bind_arguments(found.arguments)
        except Exception as error:  # noqa: BLE001  # user-defined types may raise anything
            return msgspec.structs.replace(found, values=None, conversion_error=error_text(error))
        return msgspec.structs.replace(found, values=values)

    def _apply_verdict(self, pending: Pending, verdict: Deny | Ask) -> Generator[Step, Any, ToolResult | None]:
        """Return the refusal of a call that is denied or not approved; None for a call that may run."""
        call, policy = pending.call, self.settings.policy
        if isinstance(verdict, Deny):
            return _denied_result(pending, verdict)
        call_hash = approval_hash(call.name, pending.arguments)
        given = self._approval
        if given is not None and given.arguments is None and given.is_valid(call_hash, self.settings.now()):
            approval: Any = True
        else:
            approval = yield Approve(call.name, pending.arguments, verdict.why, call_hash)
        if isinstance(approval, Suspend):
            expires_at = self.settings.now() + approval.ttl
            question = WaitingCall(
                call.id, call.name, pending.arguments, verdict.why, hash=call_hash, expires_at=expires_at
            )
            return suspended_result(call, question)
        if approval is True:
            later = None if policy is None else policy.check(pending)  # approval may take hours
            return _denied_result(pending, later) if isinstance(later, Deny) else None
        message = f"This call needs approval and was not approved: {verdict.why}. Nothing was run."
        return refusal(call, "needs_approval", message)

    def _authorize(
        self, pending: Pending, verdict: Deny | Ask | None
    ) -> Generator[Step, Any, Claim | ToolResult | None]:
        """Check approval, cache and store before the call. Return a refusal, an existing result, or the claim."""
        refusal_result = None if verdict is None else (yield from self._apply_verdict(pending, verdict))
        if refusal_result is not None:
            return refusal_result
        kept = self._cached_result(pending)
        if kept is not None:
            return self._annotate(pending, kept)
        claim = (yield from self._acquire_claim(pending)) if self.settings.has_store else None
        return self._finish(pending, claim) if isinstance(claim, ToolResult) else claim

    def _finish(self, pending: Pending, result: ToolResult) -> ToolResult:
        """Cache the result if the tool allows it, and add the notes."""
        if pending.tool.options.cache is not None and not result.is_error:
            self._cache_result(pending, result)
        return self._annotate(pending, result)

    def _annotate(self, pending: Pending, result: ToolResult) -> ToolResult:
        policy = self.settings.policy
        if pending.tainted and policy is not None and policy.taint == "warn" and pending.tool.tool.effect == "write":
            result = annotate(result, tainted=True)
        return annotate(result, repaired=list(pending.steps)) if pending.steps else result

    def _cached_result(self, pending: Pending) -> ToolResult | None:
        cache, settings = self._cache_for(pending.tool), self.settings
        if cache is None:
            return None
        found = cache.get(pending.tool.name, pending.arguments, settings.now(), settings.tenant)
        return None if found is None else annotate(msgspec.structs.replace(found, call_id=self.call.id), cached=True)

    def _cache_result(self, pending: Pending, result: ToolResult) -> None:
        cache, settings = self._cache_for(pending.tool), self.settings
        if cache is not None:
            end_time = settings.now() + (pending.tool.options.cache or 0)
            cache.put(pending.tool.name, pending.arguments, result, end_time, settings.tenant)

    def _cache_for(self, entry: Entry) -> ResultCache | None:
        """Return the cache for the results of this tool; None if they are not cached."""
        return self.settings.cache if entry.options.cache and entry.tool.effect in ("pure", "read") else None

    def _acquire_claim(self, pending: Pending) -> Generator[Step, Any, Claim | ToolResult | None]:
        """Claim the key. Return the claim or a refusal; None if the tool has no side effect and the call has no key."""
        has_effect = pending.tool.tool.effect in ("write", "idempotent")
        if not (has_effect or pending.key):
            return None
        claim = self._make_claim(pending)
        record = yield ClaimKey(claim)
        if isinstance(record, StoreError):
            if not has_effect:
                return None
            message = f"Not run: the store that prevents a second execution cannot be reached ({record.message})."
            return refusal(pending.call, "store_down", message)
        if record.token == claim.token:
            return claim
        return (yield from self._await_earlier_run(pending, claim, record)) or claim

    def _make_claim(self, pending: Pending) -> Claim:
        """Build the claim. Its key is the client's, else the tool's own, else derived from run, tool and arguments.

        Only a write is not reclaimed after its lease expires, because it may have taken effect.
        """
        settings, entry = self.settings, pending.tool
        key = pending.key
        if key is None and entry.options.key is not None:
            key = store_key(entry.options.key(pending.identity), settings.tenant)
        if key is None:
            key = derive_key(settings.run_id, entry.name, pending.identity, self._occurrence, settings.tenant)
        return Claim(
            key,
            entry.name,
            fingerprint(entry.name, pending.identity, settings.tenant),
            settings.token(),
            settings.lease,  # renewed while the function runs
            settings.ttl,
            reclaim=entry.tool.effect != "write",
            durable=entry.tool.effect == "write",
        )

    def _is_key_reusable(self, pending: Pending) -> bool:
        """Return True if the key of this call may be presented again."""
        return self.settings.keeps_keyless or pending.key is not None or pending.tool.options.key is not None

    def _await_earlier_run(
        self, pending: Pending, claim: Claim, record: Record
    ) -> Generator[Step, Any, ToolResult | None]:
        """Return the result of an earlier execution of the same call; None if the claim succeeds after all."""
        call, settings = pending.call, self.settings
        end_time = settings.now() + settings.wait_timeout
        while record.token != claim.token:
            if record.fingerprint != claim.fingerprint:
                message = "This idempotency key was used for a call with different arguments. Nothing was run."
                return refusal(call, "key_conflict", message)
            if record.state == "done":
                return from_record(record.result or "", call)
            if record.state == "unknown":
                return (yield from self._reconcile(pending, claim))
            if settings.while_running != "wait" or settings.now() >= end_time:
                return refusal(call, "in_progress", "The same call is still running. Its result is not known yet.")
            yield Wait(_POLL)
            found = yield ClaimKey(claim)
            if isinstance(found, StoreError):
                return refusal(call, "store_down", f"Not run: the store cannot be reached ({found.message}).")
            record = found
        return None

    def _reconcile(self, pending: Pending, claim: Claim) -> Generator[Step, Any, ToolResult]:
        """Ask the tool for the outcome of an earlier attempt; without an answer, refuse and let the model find out."""
        call, entry = pending.call, pending.tool
        if entry.options.reconcile is not None:
            outcome = yield Reconcile(entry, claim.key, pending.arguments)
            if isinstance(outcome, Returned) and outcome.value is not None:
                return annotate(value_result(call, outcome.value), reconciled=True)
        message = (
            "An earlier attempt of this call may or may not have taken effect; it is not retried automatically. "
            "Find out what happened before you make the call again."
        )
        return annotate(refusal(call, "outcome_unknown", message), key=claim.key)

    def _retry(self, pending: Pending, step: Invoke, outcome: Any) -> Generator[Step, Any, Any]:
        """Retry the function where a retry does no harm.

        The function may have changed its values, so they are converted and checked again.
        """
        for attempt in range(step.entry.options.retries):
            delay = self._retry_delay(outcome, step.entry, attempt)
            if delay is None:
                break
            yield Wait(delay)
            reconverted = self._convert_arguments(pending)
            if (
                isinstance(reconverted, Deny)
                or reconverted.arguments != pending.arguments
                or self._is_denied(reconverted)
            ):
                break
            values = function_signature(step.entry.function).add_context(reconverted.values or {}, step.context)
            outcome = yield msgspec.structs.replace(step, arguments=values)
        return outcome

    def _is_denied(self, pending: Pending) -> bool:
        policy = self.settings.policy
        return pending.conversion_error is not None or (policy is not None and isinstance(policy.check(pending), Deny))

    def _retry_delay(self, outcome: Any, entry: Entry, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none."""
        if not isinstance(outcome, Failed):
            return None
        advice = retry_advice(outcome.error, entry.tool.effect, entry.options.transient, self.settings.now)
        if advice is None:
            return None
        if advice.after is None:
            return min(self.settings.jitter(0.25 * 2**attempt), _MAX_WAIT)
        return advice.after if advice.after <= _MAX_WAIT else None

    def _record_result(
        self, claim: Claim, effect_state: EffectState, result: ToolResult
    ) -> Generator[Step, Any, ToolResult]:
        """Store the result, or release the claim if the call had no effect.

        A result that was not stored is still returned, with the note `recorded=False`.
        """
        if effect_state == "nothing":
            yield ReleaseClaim(claim.key, claim.token)
            return result
        try:
            record = to_record(result)
        except Exception as error:  # noqa: BLE001  # a ToolResult built by the tool may contain anything
            result = unserialisable_result(self.call, error)
            record = to_record(result)
        kept = yield CompleteClaim(claim.key, claim.token, record, self.settings.ttl, effect_state)
        return result if kept is True else annotate(result, recorded=False)


def _denied_result(pending: Pending, verdict: Deny) -> ToolResult:
    return refusal(pending.call, "denied", f"Not allowed: {verdict.why}. Nothing was run.")
