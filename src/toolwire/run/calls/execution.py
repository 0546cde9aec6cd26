"""Run one tool call from the model's request to its result, sans-IO.

    run = CallRun(call, settings)
    step = run.next()
    while not isinstance(step, Finished):
        step = run.next(<outcome of the step>)     # a driver performs the step: toolwire.net.tools.runner
    step.result

The order of the steps, each with the reason for its place:

    gates      First, because they have no effects; the last gate is the policy, which checks converted values.
    approval   After the gates: a person sees only calls that could run, with the values that they would get. A recorded
               result is looked up before: a repeated call needs no second approval.
    hold       A call after a suspended one is checked and approved, but does not run before it.
    claim      After the approval: a lease would expire while a person thinks. Before the function: at most one run.
    function   With its retries. The policy is applied again before each, because time has passed.
    record     From its start the call cannot be stopped: the outcome of a write must be stored.

Two rules hold after the claim. A write whose outcome is not known is recorded as unknown and never retried
automatically. A claim is released only if the call certainly had no effect.

Most calls need no approval and no claim, and pass their gates unchanged. Their steps would cost more than a short
function, so a driver may call the function at once: with the values of `ToolGates.take_values`, in `plain_context`, and
`value_result` builds the result. If the function waits or fails, the call goes on in `resume`, with the same retries and
records as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...schema.bounds import BoundedCache
from ..tools.offer import refuse_stronger_effect
from ..tools.toolbox import Entry
from ..values.keys import store_key
from ..values.outputs import cap_result
from ..values.records import Claim
from ..values.results import annotate, note_edit, refusal, result_code
from ..values.waiting import Approval, Suspend, WaitingCall, defer_approved, deferred_result, suspended_result
from .claims import acquire_claim, find_outcome, find_recorded, is_key_reusable, make_claim, needs_claim, record_result
from .context import CallContext
from .gates import find, pass_gates, policy
from .outcomes import EffectState, classify, retry_advice, returned_result
from .pending import Pending
from .plan import PlanVerdict, find_replay, plan_refusal, plan_result
from .settings import RunSettings, cache_key
from .signature import FunctionSignature, copy_json, function_signature
from .steps import (
    BEGUN,
    ApprovalReply,
    Approve,
    Approved,
    ArgumentMismatch,
    Denied,
    Failed,
    Finished,
    Invoke,
    ReleaseClaim,
    Returned,
    StartDecision,
    Step,
    Wait,
    approval_hash,
)

# Seconds of a retry's delay; the model waits meanwhile, and after a longer demand it had better do something else.
_MAX_WAIT = 30.0


class CallRun(Struct, eq=False):
    """One call as a sequence of steps. Pass the outcome of each step to `next`; the last step is Finished.

    `occurrence`: its number among identical calls; `key`: the client's idempotency key. `approval`: the decision about
    this call, if the run was suspended to ask for it.
    """

    call: ToolCall
    settings: RunSettings
    occurrence: int = 0
    key: str | None = None
    approval: Approval | None = None
    is_held: bool = False  # an earlier call of the turn is suspended: the call is checked, but does not run
    wake: Callable[[], None] | None = None  # set by the driver while it performs `Wait`
    _steps: Generator[Step, Any, ToolResult] | None = None
    _invoke: Invoke | None = None
    _gated: Pending | ToolResult | None = None
    _is_cancelled: bool = False

    def pass_gates(self) -> Pending | ToolResult:
        """Pass the gates. The first step does it, unless the driver has done it before, such as in a thread."""
        gated = self._gated = self._pass_gates(self.call)
        return gated

    def next(self, reply: Any = None) -> Step:
        """Return the next step. `reply` is the outcome of the previous step; None for the first.

        An ordinary call has two steps, Invoke and Finished.
        """
        if self._steps is None:
            step = self._invoke
            if step is not None and type(reply) is Returned:
                return Finished(value_result(self.call, step.entry, self.settings, step.context, reply.value))
            self._steps, reply = self._run(step, reply), None
        try:
            return self._steps.send(reply)
        except StopIteration as done:
            return Finished(done.value)

    def is_plain(self) -> bool:
        """Return False for a call that has a key or an approval, is held, or has passed its gates already."""
        return self.key is None and self.approval is None and not self.is_held and self._gated is None

    def resume(self, step: Invoke) -> None:
        """Go on after a step that the driver has begun by itself. Pass its outcome to `next`."""
        self._invoke = step

    def stop(self) -> bool:
        """Stop the call. Return False if its function has begun: the call then continues and must be awaited."""
        return self._invoke is None or self._invoke.start.stop()

    def mark_cancelled(self) -> None:
        """End the call after the current attempt.

        Also sets `cancelled` in the context of the call: a function that cannot be interrupted may check it.
        """
        self._is_cancelled = True
        if self._invoke is not None:
            self._invoke.context.cancelled = True
        if self.wake is not None:
            self.wake()

    def release_step(self) -> ReleaseClaim | None:
        """Return the step that releases the claim of an abandoned call; None if the call may have had an effect."""
        step = self._invoke
        if step is None or step.token is None:
            return None
        if step.entry.tool.effect not in ("pure", "read") and not step.start.stop():
            return None
        return ReleaseClaim(step.context.idempotency_key or "", step.token)

    def _run(self, step: Invoke | None = None, outcome: Any = None) -> Generator[Step, Any, ToolResult]:
        """Yield the steps of the call in the order of the module docstring, and return the result.

        `step` and `outcome`: the first attempt, if the function has been called already.
        """
        pending = self._gated or self._pass_gates(self.call)
        if self.settings.dry_run:
            return (yield from self._plan(pending))
        if type(pending) is Pending and (pending.verdict is not None or self.approval is not None):
            pending = yield from self._approve(pending)
        if isinstance(pending, ToolResult):
            return (yield from self._find_outcome(pending)) or pending
        if self.is_held:
            return deferred_result(self.call)
        claim: Claim | None = None
        if step is None:
            claimed = yield from self._claim(pending)
            if isinstance(claimed, ToolResult):
                return claimed
            claim = claimed
            signature = function_signature(pending.tool.function)
            step = self._make_invoke(pending.tool, signature, pending.values or {}, claim, pending.key)
            outcome = (yield step) if pending.conversion_error is None else ArgumentMismatch(pending.conversion_error)
        if type(outcome) is not Returned:
            outcome = yield from self._retry(pending, step, outcome)
        result, effect_state = self._classify(pending.call, step, outcome)
        if pending.model_arguments is not None:
            result = note_edit(result, pending.identity)  # also for a repeated call, which gets the recorded result
        if claim is not None:
            step.start.begin()  # from here on the call cannot be stopped: its outcome is recorded
            kept_state = effect_state if is_key_reusable(pending, self.settings) else "nothing"
            result = yield from record_result(self.call, claim, kept_state, result)
        return self._finish(pending, result)

    def _pass_gates(self, call: ToolCall, model_arguments: Object | None = None) -> Pending | ToolResult:
        """Pass a call through the gates of its tool; return the call, or the result that ends it.

        `model_arguments`: the model's own arguments, if a person replaced them.
        """
        settings = self.settings
        gates = settings.gates_for(call.name)
        if settings.session is not None:
            refused = refuse_stronger_effect(call, gates.entry, settings.session.state.max_effect)
            if refused is not None:
                return refused
        return pass_gates(self._make_pending(call, gates.entry, model_arguments), gates.gates)

    def _make_pending(self, call: ToolCall, entry: Entry | None, model_arguments: Object | None = None) -> Pending:
        settings, key = self.settings, self.key
        return Pending(
            call,
            settings.box,
            entry,
            {} if call.arguments is None else call.arguments,
            None if key is None else store_key(key, settings.tenant),
            settings.caller,
            settings.tenant,
            settings.tainted,
            settings.policy,
            model_arguments=model_arguments,
        )

    def _find_outcome(self, refused: ToolResult) -> Generator[Step, Any, ToolResult | None]:
        """Return the outcome of an earlier execution of a call whose tool is withdrawn now; None if there was none.

        The tool may be withdrawn because its server was lost during that execution, so "was not run" would be wrong.
        """
        settings = self.settings
        if not settings.has_store or result_code(refused) != "withdrawn":
            return None
        gates = replace(settings, session=None).gates_for(self.call.name)
        passed = pass_gates(
            self._make_pending(self.call, gates.entry), tuple(gate for gate in gates.gates if gate is not find)
        )
        if not isinstance(passed, Pending) or not needs_claim(passed):
            return None
        return (yield from find_outcome(passed, make_claim(passed, settings, self.occurrence)))

    def _make_invoke(
        self,
        entry: Entry,
        signature: FunctionSignature,
        values: Object,
        claim: Claim | None = None,
        key: str | None = None,
    ) -> Invoke:
        """Build and keep the step that calls the function, with a context if the function takes one.

        `key`: the caller's key, for a call without a claim.
        """
        settings = self.settings
        context = plain_context(self.call, entry, settings, key if claim is None else claim.key)
        if signature.context_names:
            values = signature.add_context(values, context)
        token = None if claim is None else claim.token
        # a call without effects may be cancelled at any time, so it shares a decision that has begun already
        start = BEGUN if token is None and entry.tool.effect in ("pure", "read") else StartDecision()
        step = self._invoke = Invoke(entry, values, context, token, settings.lease, start, signature)
        return step

    def _classify(self, call: ToolCall, step: Invoke, outcome: Any) -> tuple[ToolResult, EffectState]:
        """Return the result and the effect state of an outcome."""
        if type(outcome) is Returned:
            return value_result(call, step.entry, self.settings, step.context, outcome.value), "done"
        result, effect_state = classify(call, step.entry.tool.effect, outcome)
        return _finish_result(result, step.entry, self.settings, step.context), effect_state

    def _plan(self, pending: Pending | ToolResult) -> Generator[Step, Any, ToolResult]:
        """Return the plan of the call instead of running it; `pending` may be the result of a refused call.

        The store and the cache are only read, and only the preview of the tool is called.
        """
        entry = self.settings.box.find(self.call.name)
        if isinstance(pending, Pending) and pending.conversion_error is not None:
            mismatch = ArgumentMismatch(pending.conversion_error)
            pending = classify(pending.call, pending.tool.tool.effect, mismatch)[0]
        if isinstance(pending, ToolResult):
            return plan_refusal(self.call, entry, pending)
        replay = yield from find_replay(pending, self.settings, self.occurrence)
        if replay is None and pending.verdict is None and self._cached_result(pending) is not None:
            replay = ("replayed", "its cached result would be returned")
        if replay is not None:
            return self._annotate(pending, plan_result(pending, *replay, None, self.settings))
        preview = None
        if pending.tool.options.preview is not None:
            step = self._make_preview(pending, pending.tool.options.preview)
            preview = self._classify(pending.call, step, (yield step))[0]
        verdict: PlanVerdict = "would_run" if pending.verdict is None else "needs_approval"
        why = "" if pending.verdict is None else pending.verdict.why
        return self._annotate(pending, plan_result(pending, verdict, why, preview, self.settings))

    def _make_preview(self, pending: Pending, function: Callable[..., Any]) -> Invoke:
        """Build the step that calls the preview with the values of the call, as a pure tool without retries."""
        entry = pending.tool
        options = replace(entry.options, retries=0, cache=None, rate=None)
        preview = Entry(replace(entry.tool, effect="pure"), function, options)
        return self._make_invoke(preview, function_signature(function), pending.values or {})

    def _approve(self, pending: Pending) -> Generator[Step, Any, Pending | ToolResult]:
        """Ask a person to approve the call. Return the call that may run, a refusal, or an existing result.

        A call with a recorded result is not run again and needs no approval. The approval is valid for a copy of the
        arguments, so that a change of the originals has no effect on the call.
        """
        if self.settings.has_store and needs_claim(pending):
            # Only looked up: a claim would hold the key of a call that may be denied.
            claim = make_claim(pending, self.settings, self.occurrence)
            recorded = yield from find_recorded(pending, claim)
            if recorded is not None:
                return self._finish(pending, recorded)
        call, frozen = pending.call, _freeze(pending)
        bound_hash = approval_hash(pending.tool, frozen.arguments)
        reply: ApprovalReply | None = self._earlier_reply(frozen, bound_hash)
        if reply is None:
            question = self._question(frozen, bound_hash)
            if self.is_held and self.settings.session is None:
                return deferred_result(call)  # no run keeps the decision
            reply = yield question
            if self.is_held and (reply is True or isinstance(reply, Approved)):
                return self._keep_approval(question, reply.arguments if isinstance(reply, Approved) else None)
        if isinstance(reply, Approved) and reply.arguments is not None:
            return self._replace_arguments(frozen, reply.arguments)
        if reply is True or isinstance(reply, Approved):
            return self._check_again(frozen)
        question = self._question(frozen, bound_hash)
        if isinstance(reply, Suspend):
            return self._suspend(question, reply)
        if isinstance(reply, Denied):
            reason = f": {reply.reason}" if reply.reason else ""
            return refusal(call, "denied", f"This call was not approved{reason}. Nothing was run.")
        message = f"This call needs approval and was not approved: {question.why}. Nothing was run."
        return refusal(call, "needs_approval", message)

    def _suspend(self, question: Approve, reply: Suspend) -> ToolResult:
        """Build the result of a call whose approval is decided later."""
        return suspended_result(self.call, self._make_waiting(question, reply.ttl), reply.reference)

    def _keep_approval(self, question: Approve, edited: Object | None) -> ToolResult:
        """Build the result of a call that was approved, and runs after an earlier call of the turn."""
        waiting = self._make_waiting(question, Suspend().ttl)
        return defer_approved(self.call, replace(waiting, approved=True, edited_arguments=edited))

    def _make_waiting(self, question: Approve, ttl: float) -> WaitingCall:
        """Return the waiting call for a question that expires after `ttl` seconds."""
        return WaitingCall(
            question.call_id,
            question.tool,
            question.arguments,
            question.why,
            hash=question.hash,
            expires_at=self.settings.now() + ttl,
        )

    def _earlier_reply(self, pending: Pending, bound_hash: str) -> Approved | None:
        """Return the decision that was made while the run was suspended; None if a person must be asked.

        An approval that has expired, or is for another definition or other arguments, is refused. If the policy no
        longer asks, the call needs none, except for the arguments that a person edited.
        """
        given = self.approval
        if given is not None and given.is_valid(bound_hash, self.settings.now()):
            return Approved(given.arguments)
        is_needed = pending.verdict is not None or (given is not None and given.arguments is not None)
        return None if is_needed else Approved()

    def _question(self, pending: Pending, bound_hash: str) -> Approve:
        tool = pending.tool.tool
        why = "the approval of the edited call is no longer valid" if pending.verdict is None else pending.verdict.why
        return Approve(tool.name, copy_json(pending.arguments), why, bound_hash, pending.call.id, tool.effect)

    def _replace_arguments(self, pending: Pending, arguments: Object) -> Pending | ToolResult:
        """Pass the call with the arguments of the person who approves it through all gates. No second approval."""
        call = replace(self.call, arguments=copy_json(arguments), raw=None, state="complete")
        gated = self._pass_gates(call, pending.request)
        if isinstance(gated, ToolResult):
            return note_edit(gated, arguments)
        return replace(gated, key=pending.key or gated.key)

    def _check_again(self, pending: Pending) -> Pending | ToolResult:
        """Apply the policy again to a call that has passed it: time has passed, or an attempt has failed."""
        checked = policy(replace(pending, values=None, conversion_error=None))
        if isinstance(checked, Pending) and checked.arguments != pending.arguments:
            return refusal(pending.call, "denied", "Not allowed: the policy rewrites the arguments differently now.")
        return checked

    def _claim(self, pending: Pending) -> Generator[Step, Any, Claim | ToolResult | None]:
        """Return a cached or recorded result, or claim the key of a call that has to run.

        None if the call needs no claim.
        """
        settings = self.settings
        cached = self._cached_result(pending)
        if cached is not None:
            return self._annotate(pending, cached)
        if not (settings.has_store and needs_claim(pending)):
            return None
        claim = yield from acquire_claim(pending, make_claim(pending, settings, self.occurrence), settings)
        return self._finish(pending, claim) if isinstance(claim, ToolResult) else claim

    def _finish(self, pending: Pending, result: ToolResult) -> ToolResult:
        """Cache the result if the tool allows it, and add the notes."""
        if pending.tool.options.cache is not None and not result.is_error and pending.model_arguments is None:
            self._cache_result(pending, result)
        return self._annotate(pending, result)

    def _annotate(self, pending: Pending, result: ToolResult) -> ToolResult:
        rules = pending.policy
        if pending.tainted and rules is not None and rules.taint == "warn" and pending.tool.tool.effect == "write":
            result = annotate(result, tainted=True)
        if pending.model_arguments is not None:
            result = note_edit(result, pending.identity)
        return annotate(result, repaired=list(pending.steps)) if pending.steps else result

    def _cached_result(self, pending: Pending) -> ToolResult | None:
        cache, settings = self._cache_for(pending.tool), self.settings
        if cache is None:
            return None
        found = cache.use(self._cache_key(pending), settings.now())
        return None if found is None else annotate(replace(found, call_id=self.call.id), cached=True)

    def _cache_result(self, pending: Pending, result: ToolResult) -> None:
        cache, settings = self._cache_for(pending.tool), self.settings
        if cache is not None:
            cache.put(self._cache_key(pending), result, settings.now(), pending.tool.options.cache or 0)

    def _cache_key(self, pending: Pending) -> str:
        """Return the key of the call. The result may depend on the dependencies, so then only this run reuses it."""
        settings, entry = self.settings, pending.tool
        run_id = "" if settings.deps is None else settings.run_id
        return cache_key(entry.name, pending.arguments, entry.origin_id, settings.tenant, run_id)

    def _cache_for(self, entry: Entry) -> BoundedCache[str, ToolResult] | None:
        """Return the cache for the results of this tool; None if they are not cached."""
        settings = self.settings
        if settings.deps is not None and not settings.run_id:
            return None  # calls with other dependencies could not be distinguished
        return settings.cache if entry.options.cache and entry.tool.effect in ("pure", "read") else None

    def _retry(self, pending: Pending, step: Invoke, outcome: Any) -> Generator[Step, Any, Any]:
        """Retry the function after a delay, where a retry does no harm, and return the last outcome.

        The function may have changed its values, so they are converted and checked again.
        """
        for attempt in range(step.entry.options.retries):
            delay = self._retry_delay(outcome, step.entry, attempt)
            if delay is None:
                break
            yield Wait(delay)
            if self._is_cancelled:
                break
            step.context.cancelled = False  # set if the last attempt got no thread in time
            checked = self._check_again(pending)
            if isinstance(checked, ToolResult) or checked.conversion_error is not None:
                break
            values = function_signature(step.entry.function).add_context(checked.values or {}, step.context)
            outcome = yield replace(step, arguments=values)
        return outcome

    def _retry_delay(self, outcome: Any, entry: Entry, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt, or None if the call must not be repeated.

        A delay that the server requests beyond the limit ends the attempts.
        """
        if self._is_cancelled or not isinstance(outcome, Failed):
            return None
        advice = retry_advice(outcome.error, entry.tool.effect, entry.options.transient, self.settings.now)
        if advice is None:
            return None
        if advice.after is None:
            return min(self.settings.jitter(0.25 * 2**attempt), _MAX_WAIT)
        return advice.after if advice.after <= _MAX_WAIT else None


def plain_context(call: ToolCall, entry: Entry, settings: RunSettings, key: str | None = None) -> CallContext[Any]:
    """Return the context of a call. `key`: the idempotency key, if it has one."""
    return CallContext(
        call.id,
        entry.tool.name,
        settings.run_id,
        settings.caller,
        key,
        settings.deps,
        settings.session,
        False,
        settings.on_progress,
        settings.tainted,
    )


def value_result(
    call: ToolCall, entry: Entry, settings: RunSettings, context: CallContext[Any], value: Any
) -> ToolResult:
    """Return the result of a call whose function returned `value`."""
    result, size = returned_result(call, value)
    if context.untrusted or size is None or size > (entry.options.output_limit or settings.output_limit):
        return _finish_result(result, entry, settings, context)
    return result


def _finish_result(result: ToolResult, entry: Entry, settings: RunSettings, context: CallContext[Any]) -> ToolResult:
    """Mark a result if the function set its context to untrusted, and shorten it if it is too long.

    The full text is kept in `settings.outputs` if it is set.
    """
    if context.untrusted:
        result = annotate(result, untrusted=True)
    limit = entry.options.output_limit or settings.output_limit
    return cap_result(result, limit, settings.outputs, settings.run_id)


def _freeze(pending: Pending) -> Pending:
    """Return the call with its own copy of the arguments."""
    original, model = pending.original_arguments, pending.model_arguments
    return replace(
        pending,
        arguments=copy_json(pending.arguments),
        original_arguments=None if original is None else copy_json(original),
        model_arguments=None if model is None else copy_json(model),
    )
