"""Record the calls of functions: the values that reach them, and how the calls end."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from msgspec.structs import replace

from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import JSON, Object
from ...ir.tools import Tool
from ...net.tools.isolation import TooManyItems, collect_async_items, collect_items
from ...run.calls.context import NotExecuted, ToolError, Transient, current_call
from ...run.calls.outcomes import find_transient
from ...run.calls.signature import copy_json, function_signature
from ...run.tools.toolbox import Entry
from ...run.values.results import error_text, value_result
from ...schema.validation.validator import Problem, Validator, validator
from .guard import DeniedOperation
from .settings import RaisedError
from .state import defaults_state

_MAX_SWITCHES = 400  # of a call: at most 0.4 s of waiting, so that a loop with many lines ends in time
_TRACE_LOCK = threading.Lock()
_MAX_TEXT = 2000  # characters of a message; a report shows half of them
_MAX_SET_DEPTH = 5  # sets in deeper values keep their order; results are rarely deeper
_MAX_CHAIN = 10  # causes of an exception
_ADAPTERS = 64  # cached pydantic adapters: a file rarely has more tools
_BARRIER_SECONDS = 1.0  # calls that the runtime did not make never arrive at the barrier


NO_VALUE = object()
"""The value of a call that has not returned."""


class MissingDependencies(Exception):
    """A tool used `context.deps`, and no dependencies were given."""


class FunctionCallRecord:
    """One call of a function. `error` is the exception that it raised."""

    def __init__(self, entry: Entry, values: Object) -> None:
        """Copy the mutable arguments and defaults, to find changes after the call."""
        self.entry = entry
        self.error: BaseException | None = None
        self.value: Any = NO_VALUE
        self.mutated: tuple[str, ...] = ()
        self.changed_defaults = False
        self._values = values
        self._before = {name: copy_json(value) for name, value in values.items() if isinstance(value, (list, dict))}
        self._defaults = defaults_state(entry.function)

    def finish(self) -> None:
        """Compare the arguments and the defaults with those before the call."""
        with suppress(Exception):  # values of a user-defined type may not be comparable
            self.mutated = tuple(name for name, before in self._before.items() if self._values[name] != before)
        self.changed_defaults = defaults_state(self.entry.function) != self._defaults

    @property
    def is_invalid(self) -> bool:
        """True if the function was called with values that the schema of its tool rejects."""
        hidden = function_signature(self.entry.function).context_names
        given = {name: self._before.get(name, value) for name, value in self._values.items() if name not in hidden}
        as_json = value_result(ToolCall("", self.entry.name), given).structured
        schema = self.entry.tool.input_schema or {"type": "object"}
        return isinstance(as_json, dict) and not validator(schema).accepts(as_json)


async def collect_value(value: Any) -> Any:
    """Return the value of a call: await it, or collect its items."""
    if inspect.isawaitable(value):
        return await value
    if inspect.isasyncgen(value):
        return await collect_async_items(value)
    return collect_items(value) if inspect.isgenerator(value) else value


class CallRecorder:
    """Replaces the functions of entries by functions that record. Records are kept by the id of the call."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.records: dict[str, FunctionCallRecord] = {}
        self.barrier: threading.Barrier | None = None  # concurrent calls of sync functions start together

    def wrap(self, entry: Entry) -> Entry:
        """Return the entry with a recording function, and without options that delay or repeat calls."""
        options = replace(entry.options, retries=0, timeout=None, rate=None, cache=None, isolation="thread", key=None)
        return replace(entry, function=self._wrap_function(entry), options=options)

    def _wrap_function(self, entry: Entry) -> Callable[..., Any]:
        """Return the function, async if it was, with its arguments, value and error recorded.

        Generators are collected.
        """
        function = entry.function
        if function_signature(function).is_async or inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def recorded_async(**values: Any) -> Any:
                with self._recording(entry, values) as record:
                    record.value = await collect_value(function(**values))
                    return record.value

            return recorded_async

        @functools.wraps(function)
        def recorded(**values: Any) -> Any:
            with self._recording(entry, values) as record, self._interleaving():
                value = function(**values)
                record.value = collect_items(value) if inspect.isgenerator(value) else value
                return record.value

        return recorded

    @contextmanager
    def _recording(self, entry: Entry, values: Object) -> Iterator[FunctionCallRecord]:
        """Record the current call, with the error if it raises."""
        record = self.records[current_call().call_id] = FunctionCallRecord(entry, values)
        try:
            yield record
        except BaseException as error:
            record.error = error
            raise
        finally:
            record.finish()

    @contextmanager
    def _interleaving(self) -> Iterator[None]:
        """While calls are concurrent, switch threads between the lines of the tool's file, so that races appear."""
        if self.barrier is None:
            yield
            return
        chance = random.Random(threading.get_ident())
        remaining = _MAX_SWITCHES

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal remaining
            if frame.f_code.co_filename != self._file or remaining <= 0:
                return None
            if event == "line":
                remaining -= 1
                time.sleep(chance.choice((0, 0, 0.0002, 0.001)))
            return trace

        with _TRACE_LOCK:  # Python refuses to install two trace functions at the same time
            sys.settrace(trace)
        try:
            with suppress(threading.BrokenBarrierError):
                self.barrier.wait(_BARRIER_SECONDS)
            yield
        finally:
            with _TRACE_LOCK:
                sys.settrace(None)


def classify_error(error: BaseException) -> str:
    """Return the status of a call that ended with an exception; a denied operation anywhere in its chain decides first."""
    chain = list(_error_chain(error))
    if any(isinstance(one, DeniedOperation) for one in chain):
        return "denied"
    if any(isinstance(one, MissingDependencies) for one in chain):
        return "unavailable"
    if isinstance(error, (MemoryError, TooManyItems)):
        return "too_large"
    if isinstance(error, (ToolError, NotExecuted, Transient)) or (
        isinstance(error, Exception) and find_transient(error, time.time) is not None
    ):
        return "tool_error"
    return "raised"


def _error_chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_MAX_CHAIN):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def describe_error(error: BaseException, file: str) -> RaisedError:
    """Describe an exception with the last line of the tool's own file in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or frames[-1:]
    location = f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""
    return RaisedError(type(error).__name__, error_text(error, name=False)[:_MAX_TEXT], location)


def digest_result(result: ToolResult) -> tuple[str, str, int]:
    """Return the text of a result, a digest of all of it, and its size in characters."""
    text = result.text
    structured = "" if result.structured is None else _json_text(result.structured)
    media = "".join(repr(part) for part in result.parts if not hasattr(part, "text"))
    whole = f"{result.is_error}\x00{text}\x00{structured}\x00{media}"
    return (
        text,
        hashlib.sha256(whole.encode(errors="replace")).hexdigest(),
        max(len(text), len(structured)) + len(media),
    )


def without_set_order(value: Any, depth: int = 0) -> Any:
    """Return a value with sorted lists instead of sets, whose order depends on the hash seed."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if depth < _MAX_SET_DEPTH and type(value) in (list, tuple):
        return [without_set_order(item, depth + 1) for item in value]
    if depth < _MAX_SET_DEPTH and type(value) is dict:
        return {key: without_set_order(item, depth + 1) for key, item in value.items()}
    return value


def _json_text(value: JSON) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def output_problem(tool: Tool, function: Callable[..., Any], result: ToolResult, value: Any) -> str:
    """Return how a return value contradicts the output schema or the annotation; "" if it does not.

    The JSON forms of the runtime and of pydantic are both checked, because one of them may lack a type, such as a
    large integer.
    """
    if isinstance(value, ToolResult) or hasattr(type(value), "__toolwire_result__"):
        return ""
    as_json = result.structured if result.structured is not None else (value if value is None else result.text)
    adapter = _return_adapter(function)
    schema = adapter[1] if adapter is not None else tool.output_schema
    if schema is None:
        return ""
    check = validator(schema)
    problems = _shape_problems(check, as_json)
    if not problems or (adapter is not None and _serialises(adapter[0], value, check)):
        return ""
    return f"{problems[0]}"


def _shape_problems(check: Validator, value: JSON) -> list[Problem]:
    """Return the problems, except of formats: pydantic declares `date-time` for times without a zone, too."""
    return [problem for problem in check.problems(value) if problem.keyword != "format"]


@functools.lru_cache(_ADAPTERS)
def _return_adapter(function: Callable[..., Any]) -> tuple[Any, Object] | None:
    """Return a pydantic adapter for the return annotation and its JSON schema; None if there is none to check."""
    from pydantic import TypeAdapter

    try:
        returned = inspect.signature(function, eval_str=True).return_annotation
        if returned in (inspect.Signature.empty, Any, object):
            return None
        if returned is None:
            returned = type(None)
        adapter = TypeAdapter(returned)
        return adapter, adapter.json_schema(mode="serialization")
    except Exception:  # noqa: BLE001  # an annotation that has no schema is not checked
        return None


def _serialises(adapter: Any, value: Any, check: Validator) -> bool:
    """Return True if pydantic's own JSON form of the value matches the schema."""
    try:
        return not _shape_problems(check, adapter.dump_python(value, mode="json", warnings="none"))
    except Exception:  # noqa: BLE001  # user-defined serialisers may raise anything
        return False
