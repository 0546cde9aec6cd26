"""Calls that wait for a person or for an outside result, and the turn that contains them.

A call waits in two cases: its approval is decided later (`Suspend`, the reply of an approver), or its tool returned
`Suspended` and the result arrives later. The result of such a call has the code `suspended` and carries a
`WaitingCall`. A `Turn` keeps the results of the calls that did run, so that they never run again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...ir.value import Value
from ...schema.validation.validator import validator
from .keys import KEY_ARGUMENT
from .records import DAY
from .results import annotate, refusal, result_note, value_result

_OPEN_KEYWORDS = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "$ref"}
)
"""A schema with one of these may have parameters that are not in `properties`, or refuses them itself."""


class ApprovalExpired(ConfigError):
    """The request for approval is too old. The run asks again when it is continued."""


class Suspend(Value, frozen=True):
    """The reply of an approver that decides later. The question expires after `ttl` seconds.

    `reference`: the id under which the question is stored, for the text of the result.
    """

    ttl: float = DAY
    reference: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.ttl < math.inf:
            hint = "an expired question is asked again; use a long time for one that should not expire"
            raise ConfigError(f"ttl must be a positive, finite number of seconds, got {self.ttl}", hint=hint)


class Suspended(Value, frozen=True):
    """Return this from a tool or a gate if the result of the call arrives later, by `Session.supply`.

    `state` is kept with the run and shown to the person or program that supplies the result. `calls` are the calls of
    a nested run that wait for approval; they are shown, too.
    """

    state: JSON = None
    calls: tuple[WaitingCall, ...] = ()
    why: str = ""


class WaitingCall(Value, frozen=True):
    """A call that waits. An approval is valid for `hash` only: for the definition of the tool and these arguments."""

    call_id: str
    tool: str
    arguments: Object = {}
    why: str = ""
    needs: Literal["approval", "result"] = "approval"
    hash: str = ""
    expires_at: float = 0.0  # 0: does not expire
    state: JSON = None
    calls: tuple[WaitingCall, ...] = ()
    approved: bool = False
    started: bool = False  # a process continues the run, and the call may have run
    edited_arguments: Object | None = None

    def is_expired(self, now: float) -> bool:
        return 0 < self.expires_at <= now


class Approval(Value, frozen=True):
    """A decision for one call: it may run, with `arguments` if a person edited them, before `expires_at`."""

    hash: str
    expires_at: float
    arguments: Object | None = None

    def is_valid(self, call_hash: str, now: float) -> bool:
        return self.hash == call_hash and now < self.expires_at


def suspended_result(call: ToolCall, waiting: WaitingCall, reference: str = "") -> ToolResult:
    """Build the result of a call that waits. A client without stored runs reads its text."""
    reason = f": {waiting.why}" if waiting.why else ""
    text = "approval" if waiting.needs == "approval" else "a result that arrives later"
    again = f" Its id is {reference}. Repeat the call after the approval." if reference else ""
    result = refusal(call, "suspended", f"This call waits for {text}{reason}. It is not finished.{again}")
    return annotate(result, waiting=msgspec.to_builtins(waiting))


def suspend_call(call: ToolCall, arguments: Object, suspended: Suspended) -> ToolResult:
    """Build the result of a call that a tool or a gate suspended."""
    waiting = WaitingCall(
        call.id,
        call.name,
        arguments,
        suspended.why,
        needs="result",
        state=suspended.state,
        calls=suspended.calls,
    )
    return suspended_result(call, waiting)


def deferred_result(call: ToolCall) -> ToolResult:
    """Build the result of a call that must not run before an earlier call of its turn, which waits."""
    message = "This call was not run, because an earlier call of the turn waits. Repeat it after that call."
    return annotate(refusal(call, "suspended", message), deferred=True)


def defer_approved(call: ToolCall, waiting: WaitingCall) -> ToolResult:
    """Build the result of a deferred call that was approved: it is not asked about again."""
    return annotate(deferred_result(call), waiting=msgspec.to_builtins(waiting))


def _is_deferred(result: ToolResult | None) -> bool:
    return result is not None and result_note(result, "deferred") is True


def waiting_call(result: ToolResult) -> WaitingCall | None:
    """Return the call that waits, if this is the result of a suspended call."""
    note = result_note(result, "waiting")
    return None if note is None else replace(msgspec.convert(note, WaitingCall), call_id=result.call_id)


class Turn(Value, frozen=True):
    """The calls of one response. `results` and `waiting` are empty until the calls have run, then one item per call.

    A result is None if its call has to run. A call that waits has the result of a suspended call, and its decision in
    `waiting`. A call that must run after one that waits is deferred: it is tried again after each decision.
    """

    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult | None, ...] = ()
    waiting: tuple[WaitingCall | None, ...] = ()

    def add_results(self, results: Sequence[ToolResult], now: float) -> Turn:
        """Return the turn with the results of all calls, in their order. Open questions are kept.

        A later round fills in only the calls without a result. ConfigError if the results do not match the calls.
        """
        if [result.call_id for result in results] != [call.id for call in self.calls]:
            raise ConfigError("the results do not match the calls", hint="pass one result per call, in the same order")
        if not self.results:
            return replace(self, results=tuple(results), waiting=tuple(map(waiting_call, results)))
        waiting, merged = list(self.waiting), list(self.results)
        for index, known in enumerate(self.release(now).results):
            if known is None:
                merged[index] = results[index]
                kept = waiting[index] if _is_deferred(results[index]) else None  # it may be approved already
                kept = kept and replace(kept, started=False)
                waiting[index] = waiting_call(results[index]) or kept
        return replace(self, results=tuple(merged), waiting=tuple(waiting))

    def release(self, now: float) -> Turn:
        """Return the turn in which approved calls have to run, and expired questions have to be asked again."""
        results = tuple(
            None if waiting is not None and _may_run(waiting, result, now) else result
            for result, waiting in zip(self.results, self.waiting, strict=True)
        )
        if None in results or not self.undecided(now):
            results = _without_deferred(results)
        return self if results == self.results else replace(self, results=results)

    def start(self, now: float) -> Turn:
        """Return the turn in which the calls that have to run are marked: they cannot be denied any more."""
        waiting = tuple(
            replace(call, started=True) if call is not None and call.approved and result is None else call
            for call, result in zip(self.waiting, self.release(now).results, strict=True)
        )
        return self if waiting == self.waiting else replace(self, waiting=waiting)

    def undecided(self, now: float) -> tuple[WaitingCall, ...]:
        """Return the calls that wait, without expired questions."""
        return tuple(
            waiting
            for waiting in self.waiting
            if waiting is not None and not waiting.approved and not waiting.is_expired(now)
        )

    @property
    def questions(self) -> tuple[WaitingCall, ...]:
        """The calls that wait, with expired questions."""
        return tuple(waiting for waiting in self.waiting if waiting is not None and not waiting.approved)

    def approvals(self, now: float) -> tuple[Approval | None, ...]:
        """Return one approval per call, None where there is none."""
        return tuple(
            Approval(waiting.hash, waiting.expires_at, waiting.edited_arguments)
            if waiting is not None and waiting.approved and not waiting.is_expired(now)
            else None
            for waiting in self.waiting
        )

    def approve(self, call_id: str, arguments: Object | None, now: float, tools: Sequence[Tool] = ()) -> Turn:
        """Approve a call, with other arguments if they are given. They pass all gates before the call runs.

        `tools`: the tools of the run. Arguments that do not match the schema raise ConfigError, and the call still waits.
        """
        index, waiting = self._find(call_id, "approval", now)
        if arguments is not None:
            _check_arguments(arguments, waiting, next((tool for tool in tools if tool.name == waiting.tool), None))
        return self._decide(index, replace(waiting, approved=True, edited_arguments=arguments))

    def deny(self, call_id: str, reason: str, now: float) -> Turn:
        """Deny a call, also one that was approved and has not run. The model reads the reason."""
        index, _ = self._find(call_id, "approval", now, or_approved=True)
        because = f": {reason}" if reason else ""
        result = refusal(self.calls[index], "denied", f"This call was not approved{because}. Nothing was run.")
        return self._decide(index, None, annotate(result, reason=reason))

    def supply(self, call_id: str, value: Any, now: float) -> Turn:
        """Set the result of a call whose tool suspended itself: a value that a tool may return, or a ToolResult."""
        index, _ = self._find(call_id, "result", now)
        result, known = value_result(self.calls[index], value), self.results[index]
        if known is not None and result_note(known, "untrusted"):  # set when the tool suspended itself
            result = annotate(result, untrusted=True)
        return self._decide(index, None, result)

    def update_waiting(self, call_id: str, calls: tuple[WaitingCall, ...], now: float) -> Turn:
        """Set the nested calls that a call waits for. This is no decision."""
        index, found = self._find(call_id, "result", now)
        updated = replace(found, calls=calls)
        waiting = tuple(updated if number == index else call for number, call in enumerate(self.waiting))
        return replace(self, waiting=waiting)

    def _find(self, call_id: str, needs: str, now: float, *, or_approved: bool = False) -> tuple[int, WaitingCall]:
        """Return the undecided call with this id and its index.

        ConfigError if it does not wait, has started, or waits for something else than `needs`; ApprovalExpired if its
        question is too old. `or_approved`: a call that is approved already counts, too.
        """
        found = [
            (index, waiting)
            for index, waiting in enumerate(self.waiting)
            if waiting is not None and self.calls[index].id == call_id and (or_approved or not waiting.approved)
        ]
        if not found and any(waiting.call_id == call_id for waiting in self.waiting if waiting is not None):
            raise ConfigError(f"call {call_id!r} was already approved", hint="continue the run, or deny the call")
        if not found:
            waiting_ids = ", ".join(waiting.call_id for waiting in self.undecided(now)) or "none"
            raise ConfigError(f"no call {call_id!r} is waiting for a decision", hint=f"waiting calls: {waiting_ids}")
        index, waiting = found[0]
        if waiting.started:
            raise ConfigError(
                f"call {call_id!r} has started", hint="continue the run, which reports the result of the call"
            )
        if waiting.needs != needs:
            method = "approve or deny" if waiting.needs == "approval" else "supply"
            raise ConfigError(f"call {call_id!r} does not wait for {_article(needs)} {needs}", hint=f"use {method}")
        if waiting.is_expired(now):
            raise ApprovalExpired(
                f"the question about call {call_id!r} has expired", hint="continue the run, which asks again"
            )
        return index, waiting

    def _decide(self, index: int, waiting: WaitingCall | None, result: ToolResult | None = None) -> Turn:
        waiting_calls, results = list(self.waiting), list(self.results)
        waiting_calls[index] = waiting
        results[index] = result or results[index]
        return replace(self, waiting=tuple(waiting_calls), results=_without_deferred(results))


def _may_run(waiting: WaitingCall, result: ToolResult | None, now: float) -> bool:
    return waiting.is_expired(now) or (waiting.approved and not _is_deferred(result))


def _without_deferred(results: Sequence[ToolResult | None]) -> tuple[ToolResult | None, ...]:
    return tuple(None if _is_deferred(result) else result for result in results)


def _check_arguments(arguments: Object, waiting: WaitingCall, tool: Tool | None) -> None:
    """Raise ConfigError for edited arguments that the tool does not accept. An idempotency key is not one of them."""
    if not isinstance(arguments, dict):
        raise ConfigError(f"arguments must be an object, got {type(arguments).__name__}")
    schema = None if tool is None else tool.input_schema
    if tool is None or schema is None:
        return
    properties = schema.get("properties", {})
    checked = {name: value for name, value in arguments.items() if name != KEY_ARGUMENT or name in properties}
    problems = [*map(str, validator(schema).problems(checked))]
    if properties and schema.keys().isdisjoint(_OPEN_KEYWORDS):
        unknown = checked.keys() - properties.keys() - waiting.arguments.keys()
        problems += [f"/{name}: the tool has no such parameter" for name in sorted(unknown)]
    if problems:
        raise ConfigError(
            f"the arguments do not match the schema of {tool.name}: {'; '.join(problems)}",
            hint="approve the call with other arguments; it still waits",
        )


def _article(noun: str) -> str:
    return "an" if noun.startswith("a") else "a"
