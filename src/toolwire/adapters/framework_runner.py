"""Run the calls of another framework's loop through a `Runner`: validation, policy, approval, idempotency, limits.

The framework asks for approval with its own mechanism. A call that needs approval is therefore suspended first; the
adapter asks, and runs the call again with the reply.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, Literal, TypedDict

from ..ir.errors import ConfigError
from ..ir.parts import Media, ToolCall, ToolResult
from ..ir.pointer import JSON, Object
from ..ir.tools import Tool
from ..ir.value import Value
from ..net.stores.memory import MemoryStore
from ..net.threads import run_blocking
from ..net.tools.runner import Runner
from ..net.tools.steps import Approver
from ..run.calls.gates import Gate
from ..run.calls.observe import Observer
from ..run.calls.plan import plan_of
from ..run.calls.policy import Policy
from ..run.calls.steps import ApprovalReply, Approve
from ..run.tools.toolbox import Entry, Source, Toolbox
from ..run.values.keys import KEY_ARGUMENT, canonical_json
from ..run.values.records import Store
from ..run.values.waiting import Suspend, WaitingCall, waiting_call
from .call_order import CallOrder

__all__ = [
    "AdapterOptions",
    "CallScope",
    "FrameworkRunner",
    "input_schema",
    "open_question",
    "result_media",
    "result_value",
    "tool_metadata",
]


class AdapterOptions(TypedDict, total=False):
    """The options of the `Runner` that runs the calls. The default store keeps results in the memory of the process.

    With `approve`, this function is asked for approval, and the framework is not.
    """

    store: Store
    policy: Policy | None
    gates: tuple[Gate, ...]
    approve: Approver | Literal["suspend"] | None
    observers: Sequence[Observer]
    max_parallel: int
    threads: int
    caller: str
    tenant: str
    ttl: float


class CallScope(Value, frozen=True):
    """The run of the framework that makes a call.

    `run_id` separates conversations. `key_scope` is part of the idempotency key: the same call id in the same scope is
    the same call. Without a scope, a call is never a repeated one. `deps` is the value of `CallContext.deps`.
    """

    run_id: str = ""
    key_scope: str = ""
    deps: Any = None


_reply: ContextVar[ApprovalReply] = ContextVar("toolwire_framework_reply")


async def _framework_reply(_: Approve) -> ApprovalReply:
    return _reply.get()


_NO_SCOPE = CallScope()


class FrameworkRunner:
    """Runs single calls of a framework. `box` contains the tools, `source` is the toolbox that was passed, if one was."""

    def __init__(self, tools: Source | Runner, options: AdapterOptions, *, keeps_outputs: bool = False) -> None:
        if isinstance(tools, Runner):
            hint = "pass its tools, and policy, store and approve as arguments"
            raise ConfigError("a framework cannot use a Runner: it asks for approval by itself", hint=hint)
        sources: Any = tools if isinstance(tools, (list, tuple)) else (tools,)
        defaults: AdapterOptions = {"approve": _framework_reply}
        if "store" not in options:
            defaults["store"] = MemoryStore()
        merged: AdapterOptions = {**defaults, **options}
        self.runner = Runner(*sources, **merged, keeps_outputs=keeps_outputs)
        self.source = tools if isinstance(tools, Toolbox) else None
        self._asks_framework = "approve" not in options
        self._has_rules = bool(options.get("policy") or options.get("gates"))
        self._order = CallOrder()
        for entry in self.box:
            if entry.tool.kind != "function":
                raise ConfigError(f"{entry.name} is a {entry.tool.kind} tool; a framework takes functions only")

    @property
    def box(self) -> Toolbox:
        return self.runner.box

    @property
    def toolbox(self) -> Toolbox:
        """The toolbox of the caller, or one of the same entries: an adapter back returns it."""
        return self.box if self.source is None else self.source

    async def run(
        self,
        call: ToolCall,
        scope: CallScope = _NO_SCOPE,
        *,
        reply: ApprovalReply | None = None,
        ask: Callable[[], ApprovalReply] | None = None,
    ) -> ToolResult:
        """Run a call. Without a `reply`, a call that needs approval is suspended; see `open_question`.

        `ask` returns the reply when the earlier writes of the run have ended, so it may stop the loop of the framework.
        """
        if not call.id:  # without an id, a repeated call cannot be recognised
            call = ToolCall(f"call_{secrets.token_hex(12)}", call.name, call.arguments, call.raw, call.state)
        entry = self.box.find(call.name)
        token = _reply.set(Suspend() if reply is None else reply)
        try:
            async with self._order.wait_turn(scope.run_id, entry, call.arguments or {}):
                if ask is not None:
                    _reply.set(ask())
                keys = _call_keys(call, entry, scope)
                results = await self.runner.run([call], run_id=scope.run_id, deps=scope.deps, keys=keys)
        finally:
            _reply.reset(token)
        return results[0]

    def run_sync(
        self, call: ToolCall, scope: CallScope = _NO_SCOPE, *, reply: ApprovalReply | None = None
    ) -> ToolResult:
        return run_blocking(self.run(call, scope, reply=reply))

    def may_need_approval(self, entry: Entry) -> bool:
        """Return False for a tool whose calls never need the approval of the framework."""
        return self._asks_framework and (self._has_rules or bool(entry.options.approve))

    async def approval_reason(self, call: ToolCall, scope: CallScope) -> str | None:
        """Return the reason why a call needs approval; None if it needs none, or would be refused anyway."""
        keys = _call_keys(call, self.box.find(call.name), scope)
        results = await self.runner.run([call], run_id=scope.run_id, deps=scope.deps, keys=keys, dry_run=True)
        plan = plan_of(results[0])
        return plan.why or f"{call.name} requires approval" if plan and plan.verdict == "needs_approval" else None


def _call_keys(call: ToolCall, entry: Entry | None, scope: CallScope) -> dict[str, str] | None:
    """Return the idempotency key of a call with effects, unless the tool or the call has a key of its own.

    Some models use the same call ids in every conversation. An id is therefore that of one call only in a scope, and
    arguments are part of the key.
    """
    if entry is None or entry.tool.effect in ("pure", "read") or entry.options.key is not None:
        return None
    arguments = call.arguments or {}
    if KEY_ARGUMENT in arguments and KEY_ARGUMENT not in (entry.tool.input_schema or {}).get("properties", {}):
        return None
    key_scope = scope.key_scope or secrets.token_hex(12)
    parts = (key_scope.encode(), call.id.encode(), call.name.encode(), canonical_json(arguments))
    return {call.id: "call-" + sha256(b"\x00".join(parts)).hexdigest()}


def open_question(result: ToolResult) -> WaitingCall | None:
    """Return the question for approval, if the call waits for one."""
    waiting = waiting_call(result)
    return waiting if waiting is not None and waiting.needs == "approval" else None


def result_value(result: ToolResult) -> JSON:
    """Return the result as one JSON value; media are left out."""
    return result.text if result.structured is None or result.parts else result.structured


def result_media(result: ToolResult) -> list[Media]:
    """Return the media of a result that have inline data or a URL."""
    return [part for part in result.parts if isinstance(part, Media) and (part.data or part.url)]


def input_schema(tool: Tool) -> Object:
    """Return the schema of the parameters; a tool without one has no parameters."""
    return {"type": "object", "properties": {}} if tool.input_schema is None else tool.input_schema


def tool_metadata(entry: Entry) -> Object:
    """Return the metadata of a tool for frameworks that have a field for it: the effect, and the hints of MCP."""
    effect = entry.tool.effect
    needs_approval = bool(entry.options.approve)
    hints = {"readOnlyHint": effect in ("pure", "read"), "idempotentHint": effect != "write"}
    return {"toolwire": {"effect": effect, "approve": needs_approval}, "annotations": hints}
