"""Run the calls of a turn: perform the steps of each `CallRun`, as many calls in parallel as the schedule allows.

    runner = Runner(Toolbox(get_weather, book_flight), store=open_store("runs.db"))
    results = await runner.run(calls)                # or runner.run_sync(calls)

Results have the order of the calls, in whatever order the calls end. A call that fails does not affect the others.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall, ToolResult
from ...ir.tools import Tool
from ...ir.value import Value
from ...run.calls.context import ProgressSink
from ...run.calls.execution import CallRun, plain_context, value_result
from ...run.calls.gates import GATES, Gate
from ...run.calls.observe import (
    ApprovalOperation,
    Observation,
    Observer,
    OperationOutcome,
    ToolOperation,
    active_observers,
    combine_sinks,
    progress_sink,
)
from ...run.calls.policy import Policy
from ...run.calls.runtime_tools import add_search_tool, output_entries
from ...run.calls.schedule import Schedule
from ...run.calls.settings import RunSettings
from ...run.calls.steps import (
    BEGUN,
    ApprovalReply,
    Approve,
    Approved,
    Denied,
    Finished,
    Invoke,
    Reconcile,
    Returned,
    Step,
    Wait,
)
from ...run.session.loop import Session
from ...run.tools.toolbox import Source, Toolbox
from ...run.values.outputs import StoredOutputs
from ...run.values.records import DAY, MAX_LEASE, Store
from ...run.values.results import is_untrusted
from ...run.values.waiting import Suspend
from ...schema.bounds import BoundedCache
from ..threads import ThreadPool, run_blocking
from ..time_limit import call_limited
from .arguments import check_approver, check_store
from .dispatch import Dispatch, failed_result, is_large
from .steps import Approver, ApproverThread, InvokeOutcome, Invoker, StoreSteps

_MAX_RESULTS = 1024  # cached results of pure and read tools, of at most 64 KiB of text each by default
_MAX_TAINTED_RUNS = 4096  # ids of runs that the caller drives itself: far more than are in progress at a time
_CHECK_THREADS = 4  # few, because each of them delays the event loop by one switch interval


class Runner:
    """Runs the calls of a toolbox.

    `max_parallel`: calls that run at the same time; the others wait. `max_per_turn`: calls that one `run`, which is one turn
    of a model, accepts. Those beyond are refused one by one with the code `over_budget`, because a model may repeat a call
    without end; raise it for batches of your own. `threads`: threads for functions that are not async.

    `approve` is called if the policy requires approval; without it, no call is approved. `"suspend"`: the call waits, and
    a person decides later. `keeps_keyless`: the store also keeps calls without a key, for a process that continues their
    run. `ttl`: seconds that the store keeps the result of a call, unless its tool has a `ttl` of its own. `dry_run`: no
    function is called and no key is claimed; the result of a call is its plan (`toolwire.run.plan_of`). `keeps_outputs`:
    the full texts of shortened results are kept for `read_output`; False for a loop that cannot offer this tool.
    """

    def __init__(
        self,
        *sources: Source,
        store: Store | None = None,
        policy: Policy | None = None,
        gates: tuple[Gate, ...] = GATES,
        approve: Approver | Literal["suspend"] | None = None,
        observers: Sequence[Observer] = (),
        # Enough for the calls of a turn, and few enough for the rate limits of an API; not measured.
        max_parallel: int = 16,
        max_per_turn: int = 256,  # real turns have a few calls; a model that repeats itself emits thousands
        threads: int = 64,  # four times `max_parallel`: calls that are stuck keep their threads
        caller: str = "",
        tenant: str = "",
        while_running: str = "wait",
        lease: float = 60.0,  # seconds, as `Claim.lease`
        ttl: float = DAY,
        keeps_keyless: bool = True,
        dry_run: bool = False,
        keeps_outputs: bool = True,
    ) -> None:
        """Collect the tools of the sources. Raise ConfigError for an invalid `ttl`, or if two tools have one name."""
        if not 0 < ttl < float("inf"):
            raise ConfigError(f"ttl must be positive and finite, got {ttl}", hint="give it in seconds")
        if not 0 < lease <= MAX_LEASE:
            raise ConfigError(
                f"lease must be positive and at most {MAX_LEASE:.0f}, got {lease}", hint="give it in seconds"
            )
        _require_counts(max_parallel=max_parallel, max_per_turn=max_per_turn, threads=threads)
        check_store(store)
        check_approver(approve)
        self.box = Toolbox(*sources)
        self._outputs = StoredOutputs()
        self._output_tools = self._add_output_tools() if keeps_outputs else ()
        self.store = store
        self._approver = ApproverThread(approve)
        self._observers = tuple(observers)
        self._max_parallel = max_parallel
        self._max_per_turn = max_per_turn
        self._invoker = Invoker(threads)
        self._store_steps = StoreSteps(store)
        self._check_threads = ThreadPool(_CHECK_THREADS)
        self._settings = RunSettings(
            self.box,
            time.time,
            lambda: secrets.token_hex(16),
            jitter=lambda base: base * (0.5 + random.random()),  # spreads retries; not for security
            caller=caller,
            tenant=tenant,
            policy=policy,
            gates=gates,
            has_store=store is not None,
            keeps_keyless=keeps_keyless,
            cache=BoundedCache(_MAX_RESULTS),
            outputs=self._outputs if self._output_tools else None,
            while_running=while_running,
            lease=lease,
            ttl=ttl,
            on_progress=progress_sink(observers),
            dry_run=dry_run,
        )
        self._latest = self._settings  # the settings of the latest run
        self._untrusted: frozenset[str] = frozenset()
        self._read_only: frozenset[str] = frozenset()
        self._classify_tools()
        self._tainted: OrderedDict[str, None] = OrderedDict()  # ids of runs with untrusted output

    def with_tools(self, *sources: Source, approve: Approver | None = None) -> Runner:
        """Return a runner for other tools with the same policy, gates and limits, without store and observers."""
        settings = self._settings
        return Runner(
            *sources,
            policy=settings.policy,
            gates=settings.gates,
            approve=approve,
            max_parallel=self._max_parallel,
            max_per_turn=self._max_per_turn,
            caller=settings.caller,
            tenant=settings.tenant,
            dry_run=settings.dry_run,
        )

    @property
    def tenant(self) -> str:
        return self._settings.tenant

    @property
    def lease(self) -> float:
        """Seconds after which the calls and the stored runs of a process that died can be taken over."""
        return self._settings.lease

    @property
    def record_ttl(self) -> float:
        """The shortest time for which the store keeps the result of a call."""
        own = [entry.options.ttl for entry in self.box if entry.options.ttl is not None]
        return min([self._settings.ttl, *own])

    async def aclose(self) -> None:
        """Close like `close`, and wait for the operations of the store that have begun."""
        self.close()  # first: a cancelled wait must not leave its threads
        await self._store_steps.aclose()

    def close(self) -> None:
        self._invoker.close()
        self._store_steps.close()
        self._check_threads.close()
        self._approver.close()

    def _classify_tools(self) -> None:
        self._untrusted = frozenset(entry.name for entry in self.box if entry.options.untrusted)
        self._read_only = frozenset(entry.name for entry in self.box if entry.tool.effect in ("pure", "read"))

    @property
    def untrusted(self) -> frozenset[str]:
        """The names of the tools whose output may contain third-party instructions."""
        return self._untrusted

    def tools_for_run(self, run_id: str, *, can_search: bool = False) -> tuple[Tool, ...]:
        """Return the tools to offer in the next turn of a run, which are available now.

        Call it once before each turn: changes of live sources take effect here. If a result of the run was shortened,
        `read_output` and `search_output` are added, and with `can_search` the tool `search_tools`.
        """
        if self.box.refresh():
            self._classify_tools()
        available = self.box.filter_available(self.box.tools)
        if can_search:
            available = (*available, add_search_tool(self.box))
        return (*available, *self._output_tools) if self._outputs.has_any(run_id) else available

    def store_output(self, run_id: str, text: str) -> str | None:
        """Store a text that the model of a run can read with the tool `read_output`, and return its id."""
        return self._outputs.store(run_id, text) if self._output_tools else None

    def _add_output_tools(self) -> tuple[Tool, ...]:
        """Add and return the tools that read stored outputs, or none if the toolbox has tools with their names."""
        entries = output_entries(self._outputs)
        if any(self.box.find(entry.name) is not None for entry in entries):
            return ()
        for entry in entries:
            self.box.add_unlisted(entry)
        return tuple(entry.tool for entry in entries)

    async def run(
        self,
        calls: Sequence[ToolCall],
        *,
        run_id: str = "",
        earlier: Sequence[ToolCall] = (),
        keys: Mapping[str, str] | None = None,
        tainted: bool = False,
        deps: object = None,
        on_progress: ProgressSink | None = None,
        session: Session | None = None,
        dry_run: bool = False,
    ) -> list[ToolResult]:
        """Run `calls` and return their results in the same order.

        `earlier`: the previous calls of the run; they distinguish a deliberate second identical call from a retry.
        `keys`: idempotency keys of the caller, by call id. `deps`: the value of `CallContext.deps`. `on_progress`
        receives the progress that the functions report; it may be called from their threads. `session`: the run of
        the agent that makes the calls. `dry_run`: as for `Runner`, for these calls. Raise ConfigError for a single call.
        """
        if type(calls) is not list and isinstance(calls, ToolCall):
            raise ConfigError("run takes a list of calls, got a single call", hint="use run([call])")
        if len(calls) == 1 and not keys and calls[0].name in self._read_only:
            # no schedule: the call may be cancelled at any time
            settings = self._settings_for(run_id, tainted, deps, on_progress, session, dry_run)
            started = self.start(CallRun(calls[0], settings))
            result = started if isinstance(started, ToolResult) else await started
            if result.extra or calls[0].name in self._untrusted:
                self.record_taint(calls[0], result, run_id)
            return [result]
        dispatch = self.dispatch(
            run_id=run_id,
            earlier=earlier,
            keys=keys,
            tainted=tainted,
            deps=deps,
            on_progress=on_progress,
            session=session,
            dry_run=dry_run,
        )
        for call in calls:
            dispatch.enqueue(call)
        return await dispatch.results()

    def run_sync(self, calls: Sequence[ToolCall], **options: Any) -> list[ToolResult]:
        """Like `run`, for synchronous code; also in a notebook."""
        return run_blocking(self.run(calls, **options))

    def _settings_for(
        self,
        run_id: str,
        tainted: bool,
        deps: object,
        on_progress: ProgressSink | None,
        session: Session | None,
        dry_run: bool,
    ) -> RunSettings:
        """Return the settings of a run. The latest ones are cached: most calls belong to the same run as the previous.

        A run with untrusted output is tainted, whatever the caller passes.
        """
        tainted = tainted or run_id in self._tainted
        if dry_run and not self._settings.dry_run:
            settings = self._settings_for(run_id, tainted, deps, on_progress, session, dry_run=False)
            return replace(settings, dry_run=True)
        # These are not cached: the runner would keep the objects of the caller alive.
        if deps is not None or on_progress is not None or session is not None:
            sink = combine_sinks(on_progress, progress_sink(active_observers(self._observers)))
            has_fixed_tools = session is not None and session.state.has_fixed_tools
            return replace(
                self._settings,
                run_id=run_id,
                tainted=tainted,
                deps=deps,
                on_progress=sink,
                session=session,
                outputs=None if has_fixed_tools else self._settings.outputs,
            )
        latest = self._latest
        if latest.run_id != run_id or latest.tainted != tainted:
            latest = self._latest = replace(self._settings, run_id=run_id, tainted=tainted)
        return latest

    def dispatch(
        self,
        *,
        run_id: str = "",
        earlier: Sequence[ToolCall] = (),
        keys: Mapping[str, str] | None = None,
        tainted: bool = False,
        deps: object = None,
        on_progress: ProgressSink | None = None,
        session: Session | None = None,
        dry_run: bool = False,
    ) -> Dispatch:
        """Return a Dispatch for calls that arrive one by one while the model is generating.

        Pure and read calls start at once. Other calls start when `results` is awaited: by then the response is
        complete and has been accepted.
        """
        is_tainted = tainted or run_id in self._tainted
        settings = self._settings_for(run_id or secrets.token_hex(8), is_tainted, deps, on_progress, session, dry_run)
        if not run_id and settings.outputs is not None:
            settings = replace(settings, outputs=None)  # no later call belongs to the run
        schedule = Schedule(self.box, max_running=self._max_parallel)  # of this turn only: runs do not wait for others
        return Dispatch(self, settings, schedule, earlier, keys or {}, self._max_per_turn, taint_id=run_id)

    def start(self, run: CallRun, *, speculative: bool = False) -> ToolResult | Coroutine[Any, Any, ToolResult]:
        """Start one call in the current task, observed if there are observers.

        Return its result if it did not wait, else a coroutine for the rest, which the same task has to await.
        """
        return self._perform_observed(run, speculative) if active_observers(self._observers) else self._start_call(run)

    async def _perform_observed(self, run: CallRun, speculative: bool) -> ToolResult:
        """Run one call to its end in an observation. `speculative`: it starts before its arguments are complete."""
        entry = self.box.find(run.call.name)
        effect = None if entry is None else entry.tool.effect
        with Observation(
            self._observers, ToolOperation(run.call, effect, run.settings.run_id, speculative)
        ) as observation:
            started = self._start_call(run)
            result = started if isinstance(started, ToolResult) else await started
            observation.outcome = OperationOutcome(result=result)
        return result

    def _start_call(self, run: CallRun) -> ToolResult | Coroutine[Any, Any, ToolResult]:
        """Run a call until it waits. A plain call (see `run.calls.execution`) runs without steps until then."""
        call, settings = run.call, run.settings
        if is_large(call):
            return self._perform_call(run)
        try:
            gates = settings.gates_for(call.name)
            entry, signature = gates.entry, gates.signature
            values = gates.take_values(call) if gates.take_values is not None and run.is_plain() else None
            if values is None or entry is None or signature is None:
                return self._perform_call(run)
            context = plain_context(call, entry, settings)
            if signature.context_names:
                values = signature.add_context(values, context)
            outcome: InvokeOutcome | Awaitable[InvokeOutcome] | None = None
            if gates.runs_at_once:
                outcome = call_limited(entry.function, values, context, entry.options.timeout)
                if type(outcome) is Returned:
                    return value_result(call, entry, settings, context, outcome.value)
            step = Invoke(entry, values, context, None, settings.lease, BEGUN, signature)
            run.resume(step)
            return self._perform_call(run, self._invoker.begin(step) if outcome is None else outcome)
        except Exception as error:  # noqa: BLE001
            return failed_result(call, error)

    async def _perform_call(
        self, run: CallRun, outcome: InvokeOutcome | Awaitable[InvokeOutcome] | None = None
    ) -> ToolResult:
        """Run one call to its end, and return its result, also if a user-defined gate or check raises.

        `outcome`: of its function, or an awaitable for it, if the call has been started. On cancellation, its claim is
        released. Large arguments, and an unknown name among many, pass the gates in a thread, so that the event loop
        serves other calls meanwhile.
        """
        try:
            if outcome is not None:
                step = run.next(outcome if isinstance(outcome, Value) else await outcome)
            else:
                if self._is_slow_to_check(run.call):
                    await asyncio.wrap_future(self._check_threads.submit(partial(copy_context().run, run.pass_gates)))
                step = run.next()
            while type(step) is not Finished:
                if type(step) is Invoke:
                    outcome = self._invoker.begin(step)
                    if type(outcome) is not Returned and not isinstance(outcome, Value):
                        outcome = await (outcome if step.token is None else self._store_steps.await_call(step, outcome))
                else:
                    outcome = await self._perform_step(run, step)
                step = run.next(outcome)
        except asyncio.CancelledError:
            self._release_abandoned(run)
            raise
        except Exception as error:  # noqa: BLE001
            return failed_result(run.call, error)
        return step.result

    def _is_slow_to_check(self, call: ToolCall) -> bool:
        return is_large(call) or (call.name not in self._read_only and self.box.needs_index(call.name))

    def _release_abandoned(self, run: CallRun) -> None:
        claim_release = run.release_step()
        if claim_release is not None:
            self._store_steps.release(claim_release.key, claim_release.token)

    async def _perform_step(self, run: CallRun, step: Step) -> Any:
        """Perform a step that is not `Invoke`: wait, ask for approval, reconcile, or use the store."""
        if isinstance(step, Wait):
            return await _wait(run, step.seconds)
        if isinstance(step, Approve):
            return await self._ask_approval(step)
        if isinstance(step, Reconcile):
            return await self._invoker.reconcile(step)
        return await self._store_steps.perform(step)

    async def _ask_approval(self, step: Approve) -> ApprovalReply:
        """Ask for approval in an observation, and return the reply. Without an approver, no call is approved."""
        if not self._approver.is_set:
            return False
        with Observation(self._observers, ApprovalOperation(step.tool, step.arguments, step.why)) as observation:
            reply = await self._approver.ask(step)
            observation.outcome = _approval_outcome(reply)
        return reply

    async def use_store(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Run an operation of the store on one of the threads that are reserved for it."""
        return await self._store_steps.use(work, *arguments, **options)

    def _taint(self, run_id: str) -> None:
        """Mark a run as tainted by untrusted output. The number of runs kept is bounded, except for "", which stays."""
        self._tainted[run_id] = None
        self._tainted.move_to_end(run_id)
        while len(self._tainted) > _MAX_TAINTED_RUNS:
            oldest, _ = self._tainted.popitem(last=False)
            if not oldest:
                self._tainted[oldest] = None

    def record_taint(self, call: ToolCall, result: ToolResult, run_id: str) -> None:
        """Mark the run as tainted if the result of a finished call is untrusted output.

        Calls without a run id may belong to one conversation: after untrusted output, all of them are tainted.
        """
        if call.name in self._untrusted or (result.extra and is_untrusted(result)):
            self._taint(run_id)


def _require_counts(**limits: object) -> None:
    """Raise ConfigError for a limit with which no call could ever run."""
    for name, value in limits.items():
        if type(value) is not int:
            raise ConfigError(f"{name} must be an integer, got {value!r}")
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")


def _approval_outcome(reply: ApprovalReply) -> OperationOutcome:
    if isinstance(reply, Suspend):
        return OperationOutcome(decision="suspended")
    if isinstance(reply, Approved):
        return OperationOutcome(decision="approved", arguments=reply.arguments)
    if isinstance(reply, Denied):
        return OperationOutcome(decision="denied", reason=reply.reason)
    return OperationOutcome(decision="approved" if reply is True else "denied")


async def _wait(run: CallRun, seconds: float) -> None:
    """Wait before the next attempt of a call. A cancelled call does not wait any longer."""
    woken = asyncio.Event()
    run.wake = woken.set
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass
    finally:
        run.wake = None
