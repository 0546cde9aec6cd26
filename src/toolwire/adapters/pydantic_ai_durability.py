"""Agents of PydanticAI that continue after a crash, with their steps in a store of toolwire.

    durability = StoreDurability(open_store("runs.db"))
    agent = Agent(model, name="orders", toolsets=[FunctionToolset([pay], id="shop")], capabilities=[durability])
    with durability.run("order-17"):        # the same id after a crash continues the run
        result = await agent.run("Pay order 17.")

PydanticAI executes each model request, tool call and event handler as a durable step and gives its body to a backend.
Ours claims the step in the store, runs the body, and stores its result under the claim's fencing token:

    absent ──claim──▶ running ──complete──▶ done: a repeated run reads the result, and the body does not run
                        └──process killed, lease over──▶ read: claimed again      write: unknown, and the run stops

A step is identified by the run, its name (agent, toolset and tool) and its number among the steps of that name. Tools
run one after the other inside of a durable run, so these numbers are equal in every repetition. A step that is repeated
with another prompt, or with other arguments of its tool, is refused: the stored result belongs to the earlier ones.

A run may be repeated for `ttl` seconds after its first step. Its steps are kept twice as long, so none of them expires
while such a repetition reads them. A record of the run's begin is kept for a year, and until then a later repetition is
refused: its steps would run again.

The store gives the guarantee (`run.values.records`): no write runs twice. A tool call is a write unless its
metadata has another effect: `{"toolwire": {"effect": "read"}}`. A write that raises may have had its effect, so it is
unknown, too; a tool that knows better raises `ToolFailed` or `ModelRetry`, which are results.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, get_args

import msgspec

from ..ir.errors import ConfigError, StoreError
from ..ir.tools import Effect
from ..run.values.records import WEEK, Claim, Record, Store
from .framework_runner import framework_imports

with framework_imports("pydantic-ai-slim"):
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        DurabilityEngineSpec,
        DurableOperationId,
        JournalCallableOperationBackend,
        RoleBasedOperationConfig,
        ToolsetCallToolId,
        conversation_id_from_run_id,
    )
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.tools import RunContext
    from pydantic_ai.toolsets import ToolsetTool
    from pydantic_core import to_json

_YEAR = (
    365 * 24 * 60 * 60.0
)  # seconds that the begin of a run is kept: a short record, and ids of runs are seldom used again
_POLL = 0.2  # seconds between two looks at a step of another process; a step takes about as long at least


class UnknownStep(StoreError):
    """A process ended in the middle of a write, so it may or may not have had its effect. `key` is its record."""

    default_status = 409

    def __init__(self, message: str, *, key: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.key = key


class ChangedRun(StoreError):
    """A run was repeated with another prompt or other arguments, or too late. Its stored steps cannot be used."""

    default_status = 409


class _DurableRun:
    """The id of the current run, and the number of its steps by name."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.is_checked = False  # its begin is stored, and not too long ago
        self._counts: Counter[str] = Counter()

    def next_key(self, name: str) -> str:
        """Return the key of the next step of this name."""
        self._counts[name] += 1
        return f"pydantic_ai:{self.run_id}:{name}:{self._counts[name]}"


_current: ContextVar[_DurableRun | None] = ContextVar("toolwire_durable_run", default=None)


class StoreDurability(BaseDurabilityCapability[Any]):
    """A capability of an agent of PydanticAI: its steps are stored, and a repeated run continues after the last one.

    `lease` is the time after which a step of a process that was killed may be taken over; it is renewed while the step
    runs. A run may be repeated for `ttl` seconds after its first step. Function tools need a toolset with an `id`. The agent, its tools and its
    prompt must be the same when a run is repeated.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="toolwire",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        sequential_tools_in_durable_context=True,
        tool_config_key="toolwire",
    )

    def __init__(
        self,
        store: Store,
        *,
        lease: float = 60.0,  # as of other claims: a crash is noticed within a minute
        ttl: float = WEEK,
        models: Mapping[str, Model] | None = None,
        name: str | None = None,
    ) -> None:
        """Raise ConfigError if `lease` or `ttl` is not positive."""
        super().__init__(models=models, name=name)
        if not (lease > 0 and ttl > 0):
            raise ConfigError(f"lease and ttl must be positive, got {lease} and {ttl}", hint="give them in seconds")
        self._journal = _StepJournal(store, lease, ttl)

    @contextmanager
    def run(self, run_id: str) -> Iterator[None]:
        """Store the steps of agents that run in this block under `run_id`, and read those that are stored already."""
        if not run_id:
            raise ConfigError("a durable run needs an id", hint="use one of your own, such as the number of an order")
        token = _current.set(_DurableRun(run_id))
        try:
            yield
        finally:
            _current.reset(token)

    @property
    def in_durable_context(self) -> bool:
        return _current.get() is not None

    def get_default_run_id(self) -> str | None:
        current = _current.get()
        return None if current is None else current.next_key(f"{self.name}__run")

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_durable_operation_backend(self) -> _StoreBackend:
        return _StoreBackend(self._journal, self.name, self.default_model_id)


class _StoreBackend(JournalCallableOperationBackend[Effect]):
    """Runs the steps of one agent."""

    def __init__(self, journal: _StepJournal, agent_name: str, default_model_id: str | None) -> None:
        config = RoleBasedOperationConfig[Effect](
            model="read", event="write", capability="write", tool="write", resolve_tool=_tool_effect
        )
        super().__init__(agent_name=agent_name, default_model_id=default_model_id, config=config)
        self._journal = journal

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Effect,
    ) -> object:
        current = _current.get()
        if current is None:
            return await body()
        key, inputs = current.next_key(name), _fingerprint(name, cache_key)  # before an await: another step may begin
        await self._journal.check_begin(current)
        return await self._journal.run_step(key, name, inputs, body, may_repeat=config != "write")


def _fingerprint(name: str, inputs: tuple[object, ...]) -> str:
    """Return a hash of a step's name, the prompt of its run, and the arguments that the model gave its tool.

    Other inputs may differ in a repetition: messages have times, and system prompts may contain the date.
    """
    context = next((value for value in inputs if isinstance(value, RunContext)), None)
    prompt, arguments = None, None
    if context is not None:
        prompt = context.prompt
        calls = [call for part in context.messages if isinstance(part, ModelResponse) for call in part.tool_calls]
        arguments = [call.args for call in calls if call.tool_call_id == context.tool_call_id]
    content = to_json([name, prompt, arguments], bytes_mode="base64", fallback=lambda value: type(value).__name__)
    return hashlib.sha256(content).hexdigest()


def _tool_effect(operation_id: DurableOperationId, tool: object | None, name: str) -> Effect:
    """Return the effect in the metadata of a tool. Listing tools and checking arguments are reads.

    Raise ConfigError for an unknown effect.
    """
    if not isinstance(operation_id, ToolsetCallToolId):
        return "read"
    metadata = (tool.tool_def.metadata or {}) if isinstance(tool, ToolsetTool) else {}
    settings = metadata.get("toolwire") or {}
    effect = settings.get("effect", "write") if isinstance(settings, Mapping) else settings
    if effect not in get_args(Effect):
        raise ConfigError(
            f"the tool {name!r} has the unknown effect {effect!r}", hint=f"use {', '.join(get_args(Effect))}"
        )
    return effect  # type: ignore[no-any-return]  # checked above


class _StepJournal:
    """Runs steps at most once, with their claims and results in a store."""

    def __init__(self, store: Store, lease: float, ttl: float) -> None:
        self._store = store
        self._lease = lease
        self._ttl = ttl

    async def check_begin(self, run: _DurableRun) -> None:
        """Store the begin of a run. Raise ChangedRun for a repetition after the time to live, whose steps may be absent."""
        if run.is_checked:
            return

        async def read_clock() -> float:
            return time.time()

        key, name = f"pydantic_ai_begin:{run.run_id}", "begin"
        begin = await self.run_step(key, name, "", read_clock, may_repeat=True, ttl=max(_YEAR, 4 * self._ttl))
        if time.time() - float(str(begin)) > self._ttl:
            raise ChangedRun(
                f"the run {run.run_id!r} began more than {self._ttl:g} seconds ago, so its steps may have expired",
                hint="give a new run another id, or give StoreDurability a larger ttl",
            )
        run.is_checked = True

    async def run_step(
        self,
        key: str,
        name: str,
        fingerprint: str,
        body: Callable[[], Awaitable[object]],
        *,
        may_repeat: bool,
        ttl: float | None = None,
    ) -> object:
        """Return the stored result of a step, or run it and store its result for `ttl` seconds."""
        ttl = ttl or 2 * self._ttl
        claim = Claim(key, name, fingerprint, secrets.token_hex(16), self._lease, ttl, reclaim=may_repeat)
        record = await self._wait_for_claim(claim)
        if record.state == "done":
            return msgspec.json.decode(record.result or "null")
        try:
            async with self._renewed(record):
                payload = await body()
                result = msgspec.json.encode(payload).decode()
        except BaseException:
            # without a thread: in a task that is being cancelled, nothing more can be awaited
            if may_repeat:
                self._store.release(key, record.token)
            else:
                self._store.complete(key, record.token, "", ttl, "unknown")
            raise
        if await asyncio.to_thread(self._store.complete, key, record.token, result, ttl):
            return payload
        # the lease was lost, and another process has taken the step over
        if may_repeat:
            return await self.run_step(key, name, fingerprint, body, may_repeat=True, ttl=ttl)
        raise _unknown(key, name)

    async def _wait_for_claim(self, claim: Claim) -> Record:
        """Claim a step, after another process that runs it has ended.

        Raise ChangedRun for other inputs, and UnknownStep for a write without an outcome.
        """
        while True:
            record = await self._claim(claim)
            if record.fingerprint != claim.fingerprint:
                raise ChangedRun(
                    f"the step {claim.tool} was run with another prompt or other arguments",
                    hint="repeat a run with the same prompt and tools, or give it another id",
                )
            if record.state == "unknown":
                raise _unknown(claim.key, claim.tool)
            if record.state == "done" or record.token == claim.token:
                return record
            await asyncio.sleep(_POLL)

    async def _claim(self, claim: Claim) -> Record:
        """Claim on a thread. If this task is cancelled meanwhile, the claim is released once it is made."""
        made = Future[Record]()

        def work() -> None:
            try:
                made.set_result(self._store.claim(claim))
            except BaseException as error:  # noqa: BLE001  # raised by `result`
                made.set_exception(error)

        try:
            await asyncio.to_thread(work)
        except asyncio.CancelledError:
            made.add_done_callback(partial(self._release, claim))
            raise
        return made.result()

    def _release(self, claim: Claim, made: Future[Record]) -> None:
        """Release a claim whose step will not run."""
        if made.exception() is None and made.result().state == "running":
            self._store.release(claim.key, claim.token)  # of another token, it does nothing

    @asynccontextmanager
    async def _renewed(self, record: Record) -> AsyncIterator[None]:
        """Renew the lease of a step while the block runs."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._lease / 3)
                try:
                    await asyncio.to_thread(self._store.renew, record.key, record.token, self._lease)
                except StoreError:
                    continue  # the next attempt may reach the store before the lease ends

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            task.cancel()


def _unknown(key: str, name: str) -> UnknownStep:
    hint = f"check whether it happened; store.resolve({key!r}, None) lets the repeated run execute it again"
    return UnknownStep(
        f"the outcome of the step {name} is unknown: its process ended in the middle", key=key, hint=hint
    )
