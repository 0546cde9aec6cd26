"""Record agent runs in trace files (`toolwire.run.traces.format`).

    agent = Agent("openai/gpt-5.6", [get_weather], observers=[TraceObserver(folder="runs")])

Keys, values under names such as `password`, and secrets of the environment are removed before anything is written.

Sanitising a result of 50 kB takes milliseconds, so events are sanitised, encoded and written in a thread, in their
order. Operations are immutable values: the thread sees them as they were. `Agent.run` awaits `flush` at its end, so
that the file is complete when the run returns.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import count
from operator import is_
from pathlib import Path
from typing import Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.losses import Loss
from ...ir.pointer import Object
from ...ir.request import Message, Request
from ...run.calls.observe import (
    AgentOperation,
    EndOperation,
    ModelOperation,
    ObservedOperation,
    OperationOutcome,
    ToolOperation,
)
from ...run.traces.format import (
    VERSION,
    ApprovalAsked,
    ApprovalDecided,
    CallStarted,
    LossReported,
    OperationFailed,
    RequestSent,
    ResponseReceived,
    ResultReturned,
    RunEnded,
    RunStarted,
    TraceEvent,
    TraceHeader,
)
from ...run.traces.redact import Redactor, environment_secrets
from ...run.traces.sanitise import Sanitiser
from ...run.values.results import result_code
from ..threads import ThreadPool
from .file import SUFFIX, TraceRetention, TraceWriter, make_pruner

_log = logging.getLogger("toolwire.trace")
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]", re.ASCII)
_MAX_NAME = 64  # characters of a run id in the name of a file
_PART_DEPTH = 4  # levels of a request around a part: messages, message, parts
_MAX_WAITING = 1000  # events that are not written yet; they refer to values that the run keeps anyway


class TraceObserver:
    """An observer that writes each run to a trace: to `file`, or to a file of its own in `folder`.

    Operations inside a run, such as the runs of subagents, are in the same file. A run replaces the file of an earlier
    process; a second run of the same observer gets a number. `secrets`: more texts to remove. `keep`: the recordings
    that the folder keeps; all by default.
    """

    def __init__(
        self,
        file: str | Path | None = None,
        *,
        folder: str | Path | None = None,
        secrets: Iterable[str] = (),
        keep: TraceRetention | None = None,
    ) -> None:
        """Check that the file or the folder can be written. Raise ConfigError if not, or for a wrong combination."""
        if (file is None) == (folder is None):
            raise ConfigError("TraceObserver takes either a file or a folder", hint='use TraceObserver("run.jsonl")')
        if keep is not None and folder is None:
            raise ConfigError("keep is for a folder", hint='use TraceObserver(folder="runs", keep=…)')
        self._folder = None if folder is None else Path(folder)
        self._prune = None if self._folder is None or keep is None else make_pruner(self._folder, keep)
        self._thread = ThreadPool(1)
        self._process, self._waiting = os.getpid(), deque[Future[Any]]()
        self._file = None if file is None else Path(file)
        self._numbers = count(1)
        self._sanitiser = Sanitiser(Redactor([*environment_secrets(os.environ), *secrets]))
        self._current: ContextVar[_TraceSpan | None] = ContextVar("toolwire_trace", default=None)
        _check_writable(self._file, self._folder)

    def start(self, operation: ObservedOperation, /) -> EndOperation | None:
        """Record the start of an operation below the current one, and return the function that records its end.

        An operation without an outer one opens a file, and its end closes it.
        """
        outer = self._current.get()
        recording = self._open_recording(operation) if outer is None else outer.recording
        span = _TraceSpan(recording, next(recording.numbers), 0 if outer is None else outer.number, outer)
        self._current.set(span)
        where = span.position()
        if isinstance(operation, AgentOperation):
            span.latest_request = span.number, operation.request
        base = self._base_request(operation, span) if isinstance(operation, ModelOperation) else (0, None)
        self._submit(lambda: recording.write(self._start_event(operation, span, where, base)))

        def end(outcome: OperationOutcome) -> None:
            """Record the outcome, and make the outer operation the current one."""
            if self._current.get() is span:
                self._current.set(outer)
            where: dict[str, Any] = {"ms": recording.ms(), "span": span.number}
            self._submit(lambda: recording.write_all(self._end_events(operation, outcome, where, recording.clean_part)))
            if outer is None:
                closed = self._submit(recording.writer.close)
                if not isinstance(operation, AgentOperation):
                    closed.result()  # only an agent awaits `flush`

        return end

    async def flush(self) -> None:
        """Wait until everything that was recorded so far is written."""
        await asyncio.wrap_future(self._submit(lambda: None))

    def _submit(self, work: Callable[[], None]) -> Future[Any]:
        """Do work in the thread, after all work before, and log its errors. Wait if the queue is too long."""

        def run() -> None:
            try:
                work()
            except Exception:  # noqa: BLE001  # a failing recording must not fail the operation
                _log.exception("cannot record an operation")

        if self._process != os.getpid():  # after a fork, the queue is the parent's, which never ends here
            self._process, self._waiting = os.getpid(), deque()
        future = self._thread.submit(run)
        self._waiting.append(future)
        with suppress(IndexError):  # another thread may take the last one
            while self._waiting[0].done() or len(self._waiting) > _MAX_WAITING:
                self._waiting.popleft().result()
        return future

    def _open_recording(self, operation: ObservedOperation) -> _RunRecording:
        started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        run_id = getattr(operation, "run_id", "")
        header = TraceHeader(VERSION, self._sanitiser.sanitise_text(run_id), "run", started)
        writer = TraceWriter.create(self._next_path(header), header)
        if self._prune is not None:
            self._submit(self._prune)  # in the thread: a folder may have many files
        return _RunRecording(writer, self._sanitiser)

    def _next_path(self, header: TraceHeader) -> Path:
        if self._folder is not None:
            when = header.recorded.replace(":", "").replace(".", "-")
            name = _NOT_IN_FILE_NAMES.sub("_", header.id)[:_MAX_NAME] or next(self._numbers)
            return self._folder / f"{when}-run-{name}{SUFFIX}"
        assert self._file is not None
        number = next(self._numbers)
        return self._file if number == 1 else self._file.with_stem(f"{self._file.stem}-{number}")

    def _start_event(
        self, operation: ObservedOperation, span: _TraceSpan, where: dict[str, Any], base: tuple[int, Request | None]
    ) -> TraceEvent:
        """Return the event of an operation's start, without secrets. `base` is the request that a request continues."""
        if isinstance(operation, AgentOperation):
            request = self._clean_request(msgspec.to_builtins(operation.request))
            agent, call = operation.agent, operation.parent
            return RunStarted(**where, run_id=operation.run_id, agent=agent, call=call, request=request)
        if isinstance(operation, ModelOperation):
            return self._request_event(operation, span.recording, where, base)
        if isinstance(operation, ToolOperation):
            return CallStarted(**where, call=self._clean(operation.call), effect=operation.effect)
        arguments = self._clean(operation.arguments)
        return ApprovalAsked(**where, tool=operation.tool, arguments=arguments, reason=operation.reason)

    def _request_event(
        self,
        operation: ModelOperation,
        recording: _RunRecording,
        where: dict[str, Any],
        base: tuple[int, Request | None],
    ) -> RequestSent:
        """Return the event of a request, without messages and tools of the request that it continues (`base`)."""
        request = operation.request
        number, earlier = base
        kept = 0 if earlier is None else _shared_messages(earlier, request)
        body = msgspec.to_builtins(msgspec.structs.replace(request, messages=()))
        if earlier is not None:
            if earlier.tools == request.tools:
                body.pop("tools", None)
            else:
                body.setdefault("tools", [])
        messages = [recording.clean_message(message) for message in request.messages[kept:]]
        return RequestSent(
            **where,
            model=operation.model or request.model,
            body=self._clean_request(body) | ({"messages": messages} if messages else {}),
            base=number,
            kept=kept,
            stream=operation.stream,
            purpose=operation.purpose,
        )

    def _base_request(self, operation: ModelOperation, span: _TraceSpan) -> tuple[int, Request | None]:
        """Return the request that this one continues, and remember this one for the next."""
        holder = span.outer
        if operation.purpose or holder is None:
            return 0, None
        base = holder.latest_request
        holder.latest_request = span.number, operation.request
        return base

    def _end_events(
        self,
        operation: ObservedOperation,
        outcome: OperationOutcome,
        where: dict[str, Any],
        clean_part: Callable[[Any], Any],
    ) -> Iterable[TraceEvent]:
        """Yield the losses of an operation, and its error or its outcome, without secrets."""
        for loss in outcome.losses:
            yield LossReported(**where, loss=msgspec.convert(self._clean(loss), Loss))
        if outcome.error is not None:
            yield OperationFailed(**where, type=type(outcome.error).__qualname__, message=str(outcome.error))
        elif isinstance(operation, AgentOperation):
            yield RunEnded(**where, reason=outcome.reason, usage=outcome.usage, cost=outcome.cost)
        elif isinstance(operation, ModelOperation):
            first = outcome.first_event_seconds
            yield ResponseReceived(
                **where,
                body=None if outcome.response is None else self._clean(outcome.response),
                first_ms=None if first is None else round(first * 1000, 3),
                cost=outcome.cost,
            )
        elif isinstance(operation, ToolOperation):
            result = outcome.result
            code = "ok" if result is None else result_code(result)
            yield ResultReturned(**where, result=None if result is None else clean_part(result), code=code)
        else:
            arguments = None if outcome.arguments is None else self._clean(outcome.arguments)
            yield ApprovalDecided(**where, decision=outcome.decision, reason=outcome.reason, arguments=arguments)

    def _clean(self, value: Any) -> Any:
        return self._sanitiser.sanitise_document(msgspec.to_builtins(value))

    def _clean_request(self, document: Object) -> Any:
        return self._sanitiser.sanitise_request(document)


def _check_writable(file: Path | None, folder: Path | None) -> None:
    """Raise ConfigError for a target that cannot be written: later, an error is only logged."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if file is not None:
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    except IsADirectoryError as error:
        hint = f'name a file in it, or use TraceObserver(folder="{file}")'
        raise ConfigError(f"cannot write {file}: {error.strerror}", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"cannot write {folder or file}: {error.strerror}") from None


class _RunRecording:
    """A trace that is being written. The texts of all events are sanitised here, their documents before."""

    def __init__(self, writer: TraceWriter, sanitiser: Sanitiser) -> None:
        self.writer = writer
        self._sanitiser = sanitiser
        self.numbers = count(1)
        self._parts: dict[int, tuple[object, Any]] = {}  # sanitised results by identity; the objects are kept for it
        self._started_at = time.perf_counter()

    def ms(self) -> float:
        return round((time.perf_counter() - self._started_at) * 1000, 3)

    def clean_message(self, message: Message) -> Any:
        """Sanitise a message. A result in it was sanitised when it was returned, and is not sanitised again."""
        document = msgspec.to_builtins(msgspec.structs.replace(message, parts=()))
        parts = [self.clean_part(part) for part in message.parts]
        self._parts.clear()  # the next messages have other results
        return self._sanitiser.sanitise_document(document) | ({"parts": parts} if parts else {})

    def clean_part(self, part: Any) -> Any:
        """Sanitise a part, and remember it for the message that contains it."""
        known = self._parts.get(id(part))
        if known is None:
            known = self._parts[id(part)] = (
                part,
                self._sanitiser.sanitise_document(msgspec.to_builtins(part), _PART_DEPTH),
            )
        return known[1]

    def write_all(self, events: Iterable[TraceEvent]) -> None:
        for event in events:
            self.write(event)

    def write(self, event: TraceEvent) -> None:
        self.writer.write(self._sanitiser.sanitise_texts(event))


class _TraceSpan:
    """An operation in progress. `latest_request` is the latest model request inside it, with its span."""

    __slots__ = ("latest_request", "number", "outer", "parent", "recording")

    def __init__(self, recording: _RunRecording, number: int, parent: int, outer: _TraceSpan | None) -> None:
        self.recording = recording
        self.number = number
        self.parent = parent
        self.outer = outer
        self.latest_request: tuple[int, Request | None] = (0, None)

    def position(self) -> dict[str, Any]:
        return {"ms": self.recording.ms(), "span": self.number, "parent": self.parent}


def _shared_messages(earlier: Request, request: Request) -> int:
    """Return the number of leading messages that two requests share. They are usually the same objects."""
    known, messages = earlier.messages, request.messages
    if len(known) <= len(messages) and all(map(is_, known, messages)):
        return len(known)
    pairs = enumerate(zip(known, messages, strict=False))
    shorter = min(len(known), len(messages))
    return next((index for index, (old, new) in pairs if old is not new and old != new), shorter)
