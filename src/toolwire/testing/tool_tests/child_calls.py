"""Make calls in the child process: one, several in a row, several at once, cancelled, and twice with the same key."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

from msgspec.structs import replace

from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.value import Value
from ...net.tools.runner import Runner
from ...run.calls.context import CallContext, running
from ...run.calls.signature import function_signature
from ...run.tools.toolbox import Entry, Toolbox
from ...run.values.results import result_code, value_result
from .guard import AuditGuard
from .recorder import (
    NO_VALUE,
    CallRecorder,
    MissingDependencies,
    classify_error,
    collect_value,
    describe_error,
    digest_result,
    output_problem,
    without_set_order,
)
from .settings import AuditEvent, CallOutcome
from .state import files_state, module_state, walk_files

_MAX_TEXT = 2000  # characters of a result in a reply: enough to show it; the digest covers all of it
_MAX_CHANGES = 5  # changed files in a reply; a finding names the first
_SWITCH_INTERVAL = 1e-5  # seconds between switches of threads, instead of Python's 0.005, so that races appear
_VOLATILE = (".log", "-wal", "-shm", "-journal")


class CallBatch(Value, frozen=True):
    """The outcomes of several calls, and a fingerprint of the state after them."""

    outcomes: tuple[CallOutcome, ...] = ()
    state: str = ""


class CancelOutcome(Value, frozen=True):
    """The end of a cancelled call. `finished`: before it was cancelled; `swallowed`: with a result."""

    status: Literal["finished", "cancelled", "swallowed", "running", "raised"]
    detail: str = ""


class RepeatedCall(Value, frozen=True):
    """Two direct calls with the same key: fingerprints of the state before, between and after them.

    `uses_key`: the function read `context.idempotency_key`. `unstable_key`: the tool's own `key` function returns
    different keys for the same arguments.
    """

    states: tuple[str, str, str] = ("", "", "")
    failed: bool = False
    uses_key: bool = False
    unstable_key: bool = False


class _NoDependencies:
    """The dependencies of tools if none were given: any use ends the call, and the tool is skipped."""

    def __getattr__(self, name: str) -> Any:
        raise MissingDependencies(f"the tool uses context.deps.{name}; give --deps")


class _KeyedContext(CallContext[Any]):
    """A context that notes whether the function reads its idempotency key."""

    key_reads: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("idempotency_key", "headers"):
            self.key_reads += 1
        return super().__getattribute__(name)


class ChildCalls:
    """The tools of a module, called through the runtime with recording functions, or directly."""

    def __init__(self, module: ModuleType, box: Toolbox, guard: AuditGuard, setup: Object, deps: object) -> None:
        """Wrap the tools so that their calls are recorded, in a runner that approves everything.

        `setup` is the message of the parent process.
        """
        self._module, self._box, self._guard = module, box, guard
        self._file: str = setup["file"]
        self._secret: str = setup["secret"]
        self._folders: list[str] = setup["folders"]
        self._work = Path(self._folders[0])
        self._temp: str = setup["temp"]
        self._reports_changes: bool = not setup["allow_writes"]
        self._deps = _NoDependencies() if deps is None else deps
        self._recorder = CallRecorder(self._file)
        self._runner = Runner([self._recorder.wrap(entry) for entry in box], approve=lambda _: True)
        self._numbers = itertools.count(1)

    async def call(self, tool: str, arguments: Object) -> CallOutcome:
        """Make one call through the gates of the runtime, and return its outcome with the events of the hook.

        An exception after a denied operation has the status `denied`. Changed files without an event count as written.
        """
        before, denials = self._file_times(), self._guard.denials
        (outcome,) = await self._call_turn(tool, [arguments])
        if outcome.status == "raised" and self._guard.denials > denials:
            outcome = replace(outcome, status="denied")  # the exception may be a consequence
        if self.restore_folder():
            outcome = replace(outcome, changed_folder=True)
        events = self._guard.take_events()
        if self._reports_changes and not any(event.kind == "write" for event in events):
            after = self._file_times()
            changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
            events += tuple(AuditEvent("write", path) for path in changed[:_MAX_CHANGES])
        return replace(outcome, events=events) if events else outcome

    def restore_folder(self) -> bool:
        """Return to the working folder. Return True if a call has left it, or has removed it."""
        with _hook_off(self._guard):
            try:
                if Path.cwd() == self._work:
                    return False
            except OSError:
                self._work.mkdir(parents=True, exist_ok=True)
            os.chdir(self._work)
            return True

    async def call_serially(self, tool: str, calls: list[Object]) -> CallBatch:
        outcomes = [outcome for arguments in calls for outcome in await self._call_turn(tool, [arguments])]
        return CallBatch(tuple(outcomes), self._state())

    async def call_concurrently(self, tool: str, calls: list[Object]) -> CallBatch:
        """Make all calls at once: sync functions start together, and their threads switch between lines."""
        entry = self._entry(tool)
        if not function_signature(entry.function).is_async and entry.options.max_parallel is None:
            self._recorder.barrier = threading.Barrier(len(calls))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL)
        try:
            # the runtime limits the calls of one turn
            turns = [[arguments] for arguments in calls] if entry.options.max_parallel is None else [calls]
            finished = await asyncio.gather(*(self._call_turn(tool, turn) for turn in turns))
        finally:
            sys.setswitchinterval(interval)
            self._recorder.barrier = None
        self._guard.take_events()
        return CallBatch(tuple(itertools.chain.from_iterable(finished)), self._state())

    async def cancel(self, tool: str, arguments: Object, delay: float, limit: float) -> CancelOutcome:
        """Cancel a direct call after `delay` seconds, and wait for its end up to `limit` seconds."""
        task = asyncio.ensure_future(self._call_directly(self._entry(tool), arguments, None))
        await asyncio.sleep(0)
        await asyncio.sleep(delay)
        if task.done():
            with suppress(BaseException):
                task.result()
            return CancelOutcome("finished")
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=limit)
        if not done:
            return CancelOutcome("running")
        if task.cancelled():
            return CancelOutcome("cancelled")
        error = task.exception()
        if error is None:
            return CancelOutcome("swallowed")
        denied = classify_error(error) in ("denied", "unavailable")
        return CancelOutcome("finished" if denied else "raised", type(error).__name__)

    async def call_twice(self, tool: str, arguments: Object, key: str) -> RepeatedCall:
        """Call the function directly twice, with the same arguments and the same idempotency key."""
        entry = self._entry(tool)
        context = _KeyedContext(f"test-{next(self._numbers)}", tool, idempotency_key=key, deps=self._deps)
        context.key_reads = 0
        states = [self._state()]
        failed = False
        for _ in range(2):
            try:
                await self._call_directly(entry, arguments, context)
            except BaseException:  # noqa: BLE001  # crashes are found by other calls
                failed = True
            states.append(self._state())
        make_key = entry.options.key
        unstable = make_key is not None and make_key(arguments) != make_key(arguments)
        return RepeatedCall((states[0], states[1], states[2]), failed, context.key_reads > 0, unstable)

    def _entry(self, tool: str) -> Entry:
        entry = self._box.find(tool)
        assert entry is not None
        return entry

    def _state(self) -> str:
        functions = [entry.function for entry in self._box]
        with _hook_off(self._guard):
            return f"{module_state(self._module, functions)} {sorted(files_state(self._folders).items())}"

    def _file_times(self) -> dict[str, tuple[int, int]]:
        """Return size and time of every file, to notice changes that raise no audit event.

        Log files that are open since the import, and the side files of databases, may change while a tool reads.
        """
        found: dict[str, tuple[int, int]] = {}
        # temporary files are no effect
        for path in walk_files(folder for folder in self._folders if folder != self._temp):
            with suppress(OSError):
                if not path.name.endswith(_VOLATILE):
                    status = path.lstat()
                    found[str(path)] = status.st_size, status.st_mtime_ns
        return found

    async def _call_turn(self, tool: str, calls: list[Object]) -> list[CallOutcome]:
        made = [ToolCall(f"test-{next(self._numbers)}", tool, arguments) for arguments in calls]
        started_at = time.monotonic()
        results = await self._runner.run(made, run_id=made[0].id, deps=self._deps)
        seconds = time.monotonic() - started_at
        return [self._outcome(call, result, seconds) for call, result in zip(made, results, strict=True)]

    def _outcome(self, call: ToolCall, result: ToolResult, seconds: float) -> CallOutcome:
        """Describe a finished call by its record, which has the whole return value, and by the result."""
        record = self._recorder.records.pop(call.id, None)
        if record is None:
            return CallOutcome("refused", result.text[:_MAX_TEXT], seconds=seconds)
        status: str = "returned"
        error, problem = None, ""
        if record.error is not None:
            self._guard.note_error(record.error)
            status = classify_error(record.error)
            error = describe_error(record.error, self._file)
        elif record.value is not NO_VALUE:
            try:
                result = value_result(call, without_set_order(record.value))
            except MemoryError:
                return CallOutcome("too_large", reached=True, seconds=seconds)
            except Exception as failure:  # noqa: BLE001  # encoding a user-defined value may raise anything
                status, error = "raised", describe_error(failure, self._file)
            if result.is_error:
                status = "tool_error"
            elif status == "returned":
                entry = self._entry(call.name)
                problem = output_problem(entry.tool, entry.function, result, record.value)
        elif result_code(result) != "ok":
            status = "tool_error"
        text, digest, size = digest_result(result)
        return CallOutcome(
            cast("Any", status),
            text[:_MAX_TEXT],
            digest,
            size,
            error,
            reached=True,
            reached_invalid=record.is_invalid,
            mutated=record.mutated,
            changed_defaults=record.changed_defaults,
            schema_problem=problem,
            has_canary=self._secret in text or self._secret in str(result.structured),
            seconds=seconds,
        )

    async def _call_directly(self, entry: Entry, arguments: Object, context: CallContext[Any] | None) -> Any:
        """Call a function without the runtime's gates, with a context of its own if none is given."""
        if context is None:
            context = CallContext(f"test-{next(self._numbers)}", entry.name, deps=self._deps)
        signature = function_signature(entry.function)
        values = signature.add_context(signature.bind_arguments(arguments), context)
        token = running.set(context)
        try:
            return await collect_value(entry.function(**values))
        finally:
            running.reset(token)


@contextmanager
def _hook_off(guard: AuditGuard) -> Iterator[None]:
    """Switch the hook off for our own reading of files."""
    phase = guard.phase
    guard.phase = "off"
    try:
        yield
    finally:
        guard.phase = phase
