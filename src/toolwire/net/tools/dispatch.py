"""Dispatch the calls of a turn as they arrive, and return the results in call order.

A call starts when the schedule allows it, also while the model is still generating the rest of its response. Calls with
large arguments are recognised, because checking and repairing them would delay the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Protocol

from msgspec.structs import replace

from ...ir.events import ArgumentEnd, CallEnd, CallStart, Event
from ...ir.folding import Folder
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON
from ...run.calls.execution import CallRun
from ...run.calls.schedule import Schedule
from ...run.calls.settings import RunSettings
from ...run.session.history import CallHistory, EarlierCalls
from ...run.session.loop import Session
from ...run.values.keys import call_identity
from ...run.values.results import exception_result, refusal, result_code, result_note
from ...run.values.waiting import Approval
from ...stream.scanner import ArgumentWatch
from ..time_limit import ContinuedCoroutine

# Recognise calls with arguments so large that checking and repairing them would delay the event loop.


# Values; checking and converting as many delays the event loop by about 2 ms; more are checked in a thread.
_MAX_VALUES = 1000
_FEW = 8  # arguments; most calls have no more
_NUMBERS = frozenset({int, float, bool, type(None)})
_MAX_CHARACTERS = 32 * 1024  # of all strings, or of arguments that could not be parsed; as `asgi.offload.LARGE`


def is_large(call: ToolCall) -> bool:
    """Return whether the arguments have many values or much text. The cost is bounded, whatever they are."""
    raw = call.raw
    if raw is not None and len(raw) <= _MAX_VALUES:
        return False  # a text of 1,000 characters has fewer than 1,000 values
    if call.arguments is None:
        return len(raw or "") > _MAX_CHARACTERS
    if len(call.arguments) <= _FEW and _NUMBERS.issuperset(map(type, call.arguments.values())):
        return sum(map(len, call.arguments)) > _MAX_CHARACTERS
    values, characters = 0, 0
    containers: list[JSON] = [call.arguments]
    while containers:
        container = containers.pop()
        values += len(container)
        if values > _MAX_VALUES:
            return True
        if isinstance(container, dict):
            characters += sum(map(len, container))
            container = container.values()
        for value in container:
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, (dict, list)):
                containers.append(value)
    return characters > _MAX_CHARACTERS


_log = logging.getLogger("toolwire.runs")


class CallPerformer(Protocol):
    """Runs single calls; implemented by `Runner`."""

    def start(self, run: CallRun, *, speculative: bool = False) -> ToolResult | Coroutine[Any, Any, ToolResult]: ...
    def record_taint(self, call: ToolCall, result: ToolResult, run_id: str) -> None: ...


class Dispatch:
    """The calls of one turn, added as they arrive."""

    def __init__(
        self,
        performer: CallPerformer,
        settings: RunSettings,
        schedule: Schedule,
        earlier: Sequence[ToolCall],
        keys: Mapping[str, str],
        max_calls: int,
        *,
        taint_id: str = "",
    ) -> None:
        """Create the dispatch of a turn.

        `earlier` are the previous calls of the run. `keys` are idempotency keys of the caller, by call id. `taint_id`:
        the run that untrusted output taints; "" for all calls without a run id.
        """
        self._taint_id = taint_id
        self._performer = performer
        self._settings = settings
        self._schedule = schedule
        self._keys = keys
        self._max_calls = max_calls
        self._earlier = (
            earlier if isinstance(earlier, EarlierCalls) else EarlierCalls(CallHistory(earlier), len(earlier))
        )
        self._call_counts: Counter[tuple[str, bytes]] = Counter()  # of this turn
        self._runs: list[CallRun] = []  # in call order; a number is an index of this list
        self._results: dict[int, ToolResult] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()  # a call has ended
        self._allow_writes = False
        self._held: deque[int] = deque()  # calls after a suspended one, which have not been checked
        self._speculative: dict[str, tuple[ToolCall, asyncio.Task[ToolResult]]] = {}  # early starts, by call id

    @property
    def may_speculate(self) -> bool:
        """True if any tool may start on its first argument."""
        return any(entry.options.first_argument for entry in self._settings.box)

    def speculate(self, call: ToolCall) -> None:
        """Start a call on its first argument if its tool allows it and no earlier write must end first. The work is discarded if more arguments arrive."""
        entry = self._settings.box.find(call.name)
        if (
            self._settings.dry_run
            or entry is None
            or not entry.options.first_argument
            or entry.tool.effect not in ("pure", "read")
        ):
            return
        if call.id not in self._speculative and not self._schedule.would_wait(call):
            work = asyncio.create_task(self._complete(CallRun(call, self._settings), speculative=True))
            self._speculative[call.id] = (call, work)

    def add(self, call: ToolCall, *, result: ToolResult | None = None, approval: Approval | None = None) -> None:
        """Add a call, and start it if it may start now. A call beyond the maximum of the turn is refused and logged.

        `result`: its result from an earlier attempt at this turn; the call does not run then. `approval`: the decision
        about the call, if it was asked about before.
        """
        self.enqueue(call, result=result, approval=approval)
        self._start_ready()

    def enqueue(self, call: ToolCall, *, result: ToolResult | None = None, approval: Approval | None = None) -> None:
        """Add a call like `add`, but do not start it before the next `add`, or `results`."""
        occurrence = self._occurrence(call) if self._settings.has_store else 0
        run = CallRun(call, self._settings, occurrence, self._keys.get(call.id) if self._keys else None, approval)
        number = self._schedule.add(call)
        self._runs.append(run)
        if result is not None:
            self._results[number] = result
        elif number >= self._max_calls:
            if number == self._max_calls:  # the result is for the model; this is for the developer, once per turn
                _log.warning(
                    "more than %d calls at once: the others are refused; raise it with Runner(max_per_turn=…)", number
                )
            message = (
                f"More than {self._max_calls} calls in one turn. This call was not run; repeat it in a later turn."
            )
            self._results[number] = refusal(call, "over_budget", message)
        if self._schedule.is_suspended(number):
            self._hold([number])

    def _occurrence(self, call: ToolCall) -> int:
        """Count the call, and return the number of identical earlier calls of the run; only a claim needs it."""
        identity = call_identity(call)
        self._call_counts[identity] += 1
        return self._earlier.count_identical(call) + self._call_counts[identity] - 1

    async def results(self) -> list[ToolResult]:
        """Allow writes to start, and return the results when all calls are done.

        On cancellation, await the writes that have begun and start no other calls.
        """
        # Only now: a response that breaks off, or exceeds a limit, must not have run a write. Reads may start before.
        self._allow_writes = True
        try:
            while len(self._results) < len(self._runs):
                self._changed.clear()
                self._start_ready()
                await self._changed.wait()
        except asyncio.CancelledError:
            await self.abort()
            raise
        return [self._results[number] for number in range(len(self._runs))]

    async def abort(self) -> list[ToolResult]:
        """Start no more calls, await and record the writes that have begun, cancel the rest, and return all results.

        Speculative calls are reads that were started before their arguments were complete. `stop()` returns True if the
        function of the call has not been started.
        """
        # Waiting calls first: a task that ends below would start them.
        self._held.clear()
        for number in self._schedule.cancel_waiting():
            self._results.setdefault(number, self._cancelled_result(number))
        for _, speculative in self._speculative.values():
            speculative.cancel()
        for number, task in list(self._tasks.items()):
            if not self._must_finish(number) or self._runs[number].stop():
                task.cancel()
            else:
                self._runs[number].mark_cancelled()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        for number in range(len(self._runs)):
            self._results.setdefault(number, self._cancelled_result(number))
        return [self._results[number] for number in range(len(self._runs))]

    def _cancelled_result(self, number: int) -> ToolResult:
        return refusal(self._runs[number].call, "cancelled", "The run was cancelled before this call was made.")

    def _must_finish(self, number: int) -> bool:
        """Return True if the call may have side effects and its function does not handle cancellation."""
        entry = self._settings.box.find(self._runs[number].call.name)
        if entry is None or entry.options.cancellable:
            return False
        return entry.tool.effect in ("write", "idempotent")

    def _start_ready(self) -> None:
        """Start the calls that the schedule allows, in one task until one of them waits.

        A call that was refused already has its result, and is only marked as finished.
        """
        if not (self._schedule.has_ready or self._held):
            return
        started: deque[int] = deque()
        for number in self._schedule.take_ready(writes=self._allow_writes):
            if number in self._results:
                self._end(number)
                self._changed.set()
            else:
                started.append(number)
        if self._held and self._allow_writes:
            started.extend(self._held)
            self._held.clear()
        if started:
            task = asyncio.create_task(self._perform_batch(started))
            for number in started:
                self._tasks[number] = task

    async def _perform_batch(self, numbers: deque[int]) -> None:
        """Run calls one after the other, each in its own context, until one of them waits: the others then get tasks.

        A task costs as much as a short call. A call begins in the task in which it ends, because functions refer to
        their task: `asyncio.timeout` cancels it.
        """
        while len(numbers) > 1:
            work, context = self._perform(numbers.popleft(), starts_others=False), copy_context()
            try:
                awaited = context.run(work.send, None)
            except StopIteration:
                continue
            for other in numbers:
                self._tasks[other] = asyncio.create_task(self._perform(other))
            await ContinuedCoroutine(work, awaited, context.run)
            self._start_ready()
            return
        await self._perform(numbers[0])

    def _end(self, number: int) -> None:
        """Let the calls that waited for this one start. If it is suspended, they are only checked and asked about."""
        if self._runs[number].is_held:
            return
        result = self._results.get(number)
        if result is None or not result.extra or result_note(result, "waiting") is None:
            self._schedule.mark_finished(number)
        else:
            self._hold(self._schedule.mark_suspended(number))

    def _hold(self, numbers: Sequence[int]) -> None:
        """Ask for the approval of these calls, if they need it, but do not run them."""
        for number in numbers:
            self._runs[number].is_held = True
            if number not in self._results:
                self._held.append(number)

    async def _perform(self, number: int, *, starts_others: bool = True) -> None:
        """Run one call, keep its result and its taint, and start the calls that waited for it.

        A call that is cancelled gets a result, too.
        """
        run = self._runs[number]
        try:
            guess = self._speculative.pop(run.call.id, None) if self._speculative else None
            if guess is None:
                started = self._performer.start(run)
                result = started if isinstance(started, ToolResult) else await started
            else:
                result = await self._use_speculative(run, *guess)
            self._results[number] = result
            if not result.extra or result_code(result) != "suspended":
                self._performer.record_taint(run.call, result, self._taint_id)
        except asyncio.CancelledError:
            self._results[number] = self._cancelled_result(number)
        finally:
            del self._tasks[number]
            self._end(number)
            if starts_others:
                self._start_ready()
            self._changed.set()

    async def _use_speculative(self, run: CallRun, guess: ToolCall, work: asyncio.Task[ToolResult]) -> ToolResult:
        """Return the result of the early start if the complete call has the same arguments; else run the call."""
        call = run.call
        if guess.name == call.name and guess.arguments == call.arguments and call.state == "complete":
            return await work
        work.cancel()
        return await self._complete(run)

    async def _complete(self, run: CallRun, *, speculative: bool = False) -> ToolResult:
        """Run one call to its end, in the current task from its first step."""
        started = self._performer.start(run, speculative=speculative)
        return started if isinstance(started, ToolResult) else await started


def failed_result(call: ToolCall, error: Exception) -> ToolResult:
    """Build the result of a call that was not run because a user-defined gate or check raised."""
    return exception_result(call, "failed", f"{call.name} could not be run", error)


class StreamCollector:
    """The stream received so far. Passes each call to `dispatch` as soon as it and all earlier calls are complete.

    The order of the calls is the order in which they began, also on wires that interleave them: a read must not start
    before a write that precedes it. A call that exceeds the budget is not passed to `dispatch`: the session refuses its
    response once it is complete.
    """

    def __init__(self, dispatch: Dispatch, session: Session) -> None:
        self.folder = Folder()
        self._output = session.output
        self._open_dispatch = dispatch
        self._watch = ArgumentWatch() if dispatch.may_speculate else None
        self._ids = session.call_ids()
        self._unique_ids: dict[int, str] = {}  # by key
        self._open: dict[int, CallStart] = {}  # calls of the first choice that have not been passed on, by key
        self._ended: set[int] = set()
        self._limits = session.call_limits()
        self._count = 0  # calls that have been passed on

    def feed(self, event: Event) -> Sequence[ToolCall]:
        """Add an event, and return the calls that were passed on. The first open call may start on its first argument.

        Only calls of the first choice are run; the other choices are alternatives to it.
        """
        self.folder.feed(event)
        if isinstance(event, CallStart) and event.choice == 0:
            self._unique_ids[event.key] = self._ids.make_unique(event.id)
            if not self._is_final_answer(event):
                self._open[event.key] = event
        if self._watch is not None:
            for watched in self._watch.feed(event):
                if isinstance(watched, ArgumentEnd) and watched.key == next(iter(self._open), None):
                    self._speculate(watched)
        if isinstance(event, CallEnd) and event.key in self._open:
            self._ended.add(event.key)
            return self._pass_on()
        return ()

    def call_id(self, key: int) -> str:
        """Return the id of a call that has begun, as it is passed on."""
        return self._unique_ids[key]

    def _speculate(self, argument: ArgumentEnd) -> None:
        call_id, name = self._unique_ids[argument.key], self._open[argument.key].name
        call = ToolCall(call_id, name, {argument.name: argument.value})
        if self._limits.may_start(call, self._count):
            self._open_dispatch.speculate(call)

    def _pass_on(self) -> list[ToolCall]:
        """Pass on the calls that have ended, up to the first one that has not, and return them with unique ids.

        Calls beyond the budget are returned, but not given to the dispatch.
        """
        calls: list[ToolCall] = []
        for key in list(self._open):
            if key not in self._ended:
                break
            del self._open[key]
            call = self.folder.part(key)
            if isinstance(call, ToolCall):
                if call.id != self._unique_ids[key]:
                    call = replace(call, id=self._unique_ids[key])
                if self._limits.may_start(call, self._count):
                    self._open_dispatch.add(call)
                self._count += 1
                calls.append(call)
        return calls

    def _is_final_answer(self, event: CallStart) -> bool:
        return self._output is not None and self._output.is_final_call(event.name)
