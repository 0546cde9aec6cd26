"""Toolboxes in another framework's loop: run its calls through a `Runner`, keep their order, and read its tools as entries."""

from __future__ import annotations

import asyncio
import base64
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from ..ir.errors import ConfigError, MissingExtra
from ..ir.parts import Media, MediaKind, Text, ToolCall, ToolResult
from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..ir.tools import Effect, Tool
from ..ir.value import Value
from ..net.stores.memory import MemoryStore
from ..net.threads import run_blocking
from ..net.tools.runner import Runner
from ..net.tools.steps import Approver
from ..run.calls.gates import Gate
from ..run.calls.observe import Observer
from ..run.calls.plan import plan_of
from ..run.calls.policy import Policy
from ..run.calls.schedule import resource_of
from ..run.calls.steps import ApprovalReply, Approve
from ..run.tools.function_tool import ApprovalRule, Options
from ..run.tools.suggestions import NameIndex, suggest_names
from ..run.tools.toolbox import Entry, Source, Toolbox
from ..run.values.keys import KEY_ARGUMENT, canonical_json
from ..run.values.records import Store
from ..run.values.waiting import Suspend, WaitingCall, waiting_call

# Keep the order of calls that a framework starts at once: a call waits for the earlier writes of its run.
#
# The rule is as in `run.calls.schedule`, for calls that arrive one by one and from several threads or event loops.


class _StartedCall:
    """A call that has arrived and has not ended. `resource` None: any resource."""

    __slots__ = ("done", "is_write", "resource")

    def __init__(self, entry: Entry, arguments: Object) -> None:
        self.is_write = entry.tool.effect in ("idempotent", "write")
        self.resource = resource_of(entry, arguments)
        self.done: Future[None] = Future()

    def waits_for(self, earlier: _StartedCall) -> bool:
        is_same = self.resource == earlier.resource
        if earlier.is_write:
            return is_same or self.resource is None or earlier.resource is None
        return self.is_write and is_same and self.resource is not None


class CallOrder:
    """The calls of each run that have not ended, in the order of their arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[str, list[_StartedCall]] = {}

    @asynccontextmanager
    async def wait_turn(self, run_id: str, entry: Entry | None, arguments: Object) -> AsyncIterator[None]:
        """Wait for the earlier calls of the run that must end first, and let later calls wait for this call.

        Pure calls and calls without a run id have no order.
        """
        if entry is None or not run_id or entry.tool.effect == "pure":
            yield
            return
        call = _StartedCall(entry, arguments)
        with self._lock:
            started = self._started.setdefault(run_id, [])
            earlier = [other.done for other in started if call.waits_for(other)]
            started.append(call)
        try:
            for done in earlier:
                await asyncio.shield(asyncio.wrap_future(done))  # a cancelled call must not cancel the earlier one
            yield
        finally:
            self._end(run_id, call)

    def _end(self, run_id: str, call: _StartedCall) -> None:
        with self._lock:
            started = self._started[run_id]
            started.remove(call)
            if not started:
                del self._started[run_id]
        call.done.set_result(None)


Effects: TypeAlias = Mapping[str, Effect]
"""The effects of tools by name. A tool that is not listed has the effect of its metadata, else `write`."""


@contextmanager
def framework_imports(package: str) -> Iterator[None]:
    """Raise MissingExtra with the install command if the framework cannot be imported inside the block."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"this adapter needs {package}: {error}", hint=f"pip install {package}") from error


def choose_effect(name: str, effects: Effects | None, *metadata: object) -> Effect:
    """Return the effect of a tool: from `effects`, from its own metadata, or `write`, the most cautious one.

    Metadata come from `tool_metadata`, or the annotations of MCP (`readOnlyHint`, `idempotentHint`), also inside a
    field `annotations`. Raise ConfigError for an unknown effect.
    """
    chosen = None if effects is None else effects.get(name)
    if chosen is not None and chosen not in get_args(Effect):
        raise ConfigError(f"unknown effect {chosen!r} of {name}", hint=f"use one of {', '.join(get_args(Effect))}")
    found = [chosen, *map(_metadata_effect, metadata)]
    return next((effect for effect in found if effect is not None), "write")


def _metadata_effect(metadata: object) -> Effect | None:
    """Return the effect in a framework's metadata (toolwire's own, or MCP's hints), or None if it has none."""
    if not isinstance(metadata, Mapping):
        return None
    own = metadata.get("toolwire")
    effect: Effect | None = own.get("effect") if isinstance(own, Mapping) else None
    if effect in get_args(Effect):
        return effect
    if metadata.get("readOnlyHint") is True:
        return "read"
    if metadata.get("idempotentHint") is True:
        return "idempotent"
    return _metadata_effect(metadata.get("annotations"))


def framework_entry(
    tool: Tool,
    function: Callable[..., Any],
    origin: str,
    *,
    approve: ApprovalRule = False,
    timeout: float | None = None,
) -> Entry:
    """Return the entry of a framework's tool. Without a `timeout` of its own, it has the default timeout."""
    options = Options(approve=approve) if timeout is None else Options(approve=approve, timeout=timeout)
    return Entry(tool, function, options, f"{origin}:{tool.name}")


def collect_entries(
    tools: object, effects: Effects | None, tool_entry: Callable[[Any, Effects | None], Entry]
) -> Toolbox:
    """Return a toolbox of a framework's tools. ConfigError for a name in `effects` that no tool has."""
    entries = [tool_entry(tool, effects) for tool in (tools if isinstance(tools, (list, tuple)) else (tools,))]
    require_known_names(effects, [entry.name for entry in entries])
    return Toolbox(*entries)


def require_known_names(effects: Effects | None, names: Iterable[str]) -> None:
    """Raise ConfigError, with similar names, if `effects` names a tool that is not given."""
    known = list(names)
    for name in effects or ():
        if name not in known:
            similar = suggest_names(NameIndex(known).similar(name)).strip()
            raise ConfigError(
                f"effects names the unknown tool {name!r}", hint=similar or "use the name of a given tool"
            )


def text_part(value: Any) -> Text:
    return Text(value if isinstance(value, str) else dumps(value))


def media_part(media_type: str | None, *, data: bytes | str | None = None, url: str | None = None) -> Media:
    """Return a media part; `data` are bytes, or text in base64."""
    kind = (media_type or "").partition("/")[0]
    kinds: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}
    encoded = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return Media(kinds.get(kind, "file"), media_type, encoded, url)


# Run the calls of another framework's loop through a `Runner`: validation, policy, approval, idempotency, limits.
#
# The framework asks for approval with its own mechanism. A call that needs approval is therefore suspended first; the
# adapter asks, and runs the call again with the reply.


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
        """Create a runner that leaves approvals to the framework unless `options` have `approve`.

        Raises `ConfigError` for a `Runner` as source, and for tools that are not functions.
        """
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
    """Return the idempotency key of a call with effects, or None if the tool or the call has a key of its own.

    Some models use the same call ids in every conversation. An id therefore names one call only in a scope, and
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
