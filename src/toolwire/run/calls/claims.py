"""The claim of a call in the store: its key, the result of an earlier execution, and the record of the result.

The functions are generators of steps, like `CallRun`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ...ir.errors import StoreError
from ...ir.parts import ToolCall, ToolResult
from ..values.keys import derive_key, fingerprint, store_key
from ..values.records import Claim, Record
from ..values.results import annotate, from_record, refusal, to_record, unserialisable_result, value_result
from .outcomes import EffectState
from .pending import Pending
from .settings import RunSettings
from .steps import ClaimKey, CompleteClaim, GetRecord, Reconcile, ReleaseClaim, Returned, Step, Wait

# Seconds between two looks at a claim of another process; a call takes longer than that, and a store answers in
# milliseconds.
_POLL = 0.2

RESUMABLE = "__toolwire_resumable__"
"""The mark of a function that continues its earlier attempt, such as a subagent whose run is stored: it may be called again."""


def needs_claim(pending: Pending) -> bool:
    """Return False for a call without side effect and without a key, which may run any number of times."""
    return pending.key is not None or pending.tool.tool.effect in ("write", "idempotent")


def make_claim(pending: Pending, settings: RunSettings, occurrence: int) -> Claim:
    """Build the claim. Its key is the client's, else the tool's own, else derived from run, tool and arguments.

    A key of the tool identifies the effect, the other keys identify the request: they differ if a person replaced the
    arguments. Only a write is not reclaimed after its lease expires, because it may have taken effect, unless its function
    continues the earlier attempt.
    """
    entry, key, identity = pending.tool, pending.key, pending.request
    if key is None and entry.options.key is not None:
        identity = pending.identity
        key = store_key(entry.options.key(identity), settings.tenant)
    if key is None:
        key = derive_key(settings.run_id, entry.name, identity, occurrence, settings.tenant)
    return Claim(
        key,
        entry.name,
        fingerprint(entry.name, identity, settings.tenant),
        settings.token(),
        settings.lease,  # renewed while the function runs
        entry.options.ttl or settings.ttl,
        reclaim=entry.tool.effect != "write" or getattr(entry.function, RESUMABLE, False),
        durable=entry.tool.effect == "write",
    )


def is_key_reusable(pending: Pending, settings: RunSettings) -> bool:
    """Return True if the key of this call may be presented again."""
    return settings.keeps_keyless or pending.key is not None or pending.tool.options.key is not None


def find_recorded(pending: Pending, claim: Claim) -> Generator[Step, Any, ToolResult | None]:
    """Return the recorded result of the same call without claiming its key; None if it has to run."""
    record = yield GetRecord(claim.key)
    if not isinstance(record, Record):  # absent, or the store cannot be reached: the claim reports it
        return None
    if record.fingerprint != claim.fingerprint:
        return _conflict(pending.call)
    return from_record(record.result or "", pending.call) if record.state == "done" else None


def find_outcome(pending: Pending, claim: Claim) -> Generator[Step, Any, ToolResult | None]:
    """Return the outcome of an earlier execution of a call that cannot run now; None if there was none."""
    record = yield GetRecord(claim.key)
    if not isinstance(record, Record) or record.fingerprint != claim.fingerprint:
        return None
    if record.state == "done":
        return from_record(record.result or "", pending.call)
    return _in_progress(pending.call) if record.state == "running" else _unknown(pending.call, claim.key)


def acquire_claim(
    pending: Pending, claim: Claim, settings: RunSettings
) -> Generator[Step, Any, Claim | ToolResult | None]:
    """Claim the key of a call. Return the claim, or a result if the call must not run.

    The result is a recorded one or a refusal. Return None to run a call without effects although the store failed.
    """
    record = yield ClaimKey(claim)
    if isinstance(record, StoreError):
        if pending.tool.tool.effect in ("pure", "read"):
            return None
        message = f"Not run: the store that prevents a second execution cannot be reached ({record.message})."
        return refusal(pending.call, "store_down", message)
    if record.token == claim.token:
        return claim
    return (yield from _await_earlier_run(pending, claim, record, settings)) or claim


def record_result(
    call: ToolCall, claim: Claim, effect_state: EffectState, result: ToolResult
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
        result = unserialisable_result(call, error)
        record = to_record(result)
    kept = yield CompleteClaim(claim.key, claim.token, record, claim.ttl, effect_state)
    return result if kept is True else annotate(result, recorded=False)


def _await_earlier_run(
    pending: Pending, claim: Claim, record: Record, settings: RunSettings
) -> Generator[Step, Any, ToolResult | None]:
    """Return the result of an earlier execution of the same call; None if the claim succeeds after all.

    Wait for an execution that is still running, or refuse the call, as `while_running` and the timeout decide.
    """
    call = pending.call
    end_time = settings.now() + settings.wait_timeout
    while record.token != claim.token:
        if record.fingerprint != claim.fingerprint:
            return _conflict(call)
        if record.state == "done":
            return from_record(record.result or "", call)
        if record.state == "unknown":
            return (yield from _reconcile(pending, claim))
        if settings.while_running != "wait" or settings.now() >= end_time:
            return _in_progress(call)
        yield Wait(_POLL)
        claimed = yield ClaimKey(claim)
        if isinstance(claimed, StoreError):
            return refusal(call, "store_down", f"Not run: the store cannot be reached ({claimed.message}).")
        record = claimed
    return None


def _reconcile(pending: Pending, claim: Claim) -> Generator[Step, Any, ToolResult]:
    """Ask the tool for the outcome of an earlier attempt; without an answer, refuse the call and report the unknown outcome."""
    call, entry = pending.call, pending.tool
    if entry.options.reconcile is not None:
        outcome = yield Reconcile(entry, claim.key, pending.arguments)
        if isinstance(outcome, Returned) and outcome.value is not None:
            return annotate(value_result(call, outcome.value), reconciled=True)
    return _unknown(call, claim.key)


def _in_progress(call: ToolCall) -> ToolResult:
    return refusal(call, "in_progress", "The same call is still running. Its result is not known yet.")


def _unknown(call: ToolCall, key: str) -> ToolResult:
    message = (
        "An earlier attempt of this call may or may not have taken effect; it is not retried automatically. "
        "Check whether it took effect before you make the call again."
    )
    return annotate(refusal(call, "outcome_unknown", message), key=key)


def _conflict(call: ToolCall) -> ToolResult:
    message = "This idempotency key was used for a call with different arguments. Nothing was run."
    return refusal(call, "key_conflict", message)
