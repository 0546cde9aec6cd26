"""The checks of `toolwire test`: judge the outcome of a call, and collect the findings of a tool."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.tools import Effect
from ...ir.value import Value
from .settings import CallOutcome, ToolTestSettings


class FaultCheck(Value, frozen=True):
    """One check: `about` states the fault that it reports."""

    id: str
    about: str


TOOL_CHECKS = (
    FaultCheck("crash", "an exception other than ToolError for arguments that the schema accepts"),
    FaultCheck("hang", "no result within --timeout, nor within three times --timeout; then it is killed"),
    FaultCheck("output-size", "a result above --max-output, an endless generator, or no memory left"),
    FaultCheck("output-schema", "a result that does not match the output schema or the return annotation"),
    FaultCheck("nondeterministic", "a pure tool that returns different results for the same arguments"),
    FaultCheck("shared-state", "a result that depends on earlier calls; a changed default or working folder"),
    FaultCheck("race", "concurrent calls with other results than the same calls one after the other"),
    FaultCheck("mutated-arguments", "a pure tool that changes the lists or objects of its arguments"),
    FaultCheck("write", "a pure or read tool that writes files, or a write outside the temporary folder"),
    FaultCheck("network", "a connection to a host that --allow-net does not name"),
    FaultCheck("process", "a tool that starts or signals a process, or loads a native library"),
    FaultCheck("path-escape", "a file outside the working folder is opened through an argument"),
    FaultCheck("double-effect", "a second call with the same idempotency key has a second effect"),
    FaultCheck("cancellation", "an async tool that does not end when it is cancelled"),
    FaultCheck("invalid-accepted", "arguments that the schema rejects reach the tool, or get no error"),
    FaultCheck("import-effect", "importing the file writes outside the temporary folder, connects or starts a process"),
    FaultCheck("protocol-error", "an MCP server that answers a valid call with a JSON-RPC error"),
    FaultCheck("server-exit", "an MCP server that exits or breaks the connection during a call"),
)


class ToolFinding(Value, frozen=True):
    """A fault of a tool.

    `arguments`: the smallest arguments found that show it; None if it does not depend on them. `location`: file, line
    and function of an exception. `reproduction`: a command that shows the fault again. `count`: the number of calls
    with the same fault.
    """

    tool: str
    check: str
    message: str
    arguments: Object | None = None
    location: str = ""
    reproduction: str = ""
    count: int = 1


def require_checks(names: tuple[str, ...]) -> None:
    """Raise ConfigError for an unknown check, because a misspelled `--ignore` would have no effect."""
    known = [check.id for check in TOOL_CHECKS]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
            raise ConfigError(f"there is no check {name!r}", hint=hint)


_MAX_ARGUMENTS = 600  # characters of arguments in a reproduction, which is copied from a terminal
_MAX_MESSAGE = 1000  # characters; an exception may contain the whole input
_EVENT_TEXTS = {
    "write": ("write", "it writes {}"),
    "network": ("network", "it connects to {}"),
    "process": ("process", "it {}"),
    "escape": ("path-escape", "it opens {}, outside the working folder"),
}


class CallFault(NamedTuple):
    """A fault of one call. Faults with equal `check` and `key` are one finding."""

    check: str
    key: str
    message: str
    location: str = ""


def judge_outcome(outcome: CallOutcome, effect: Effect, settings: ToolTestSettings) -> Iterable[CallFault]:
    """Return the faults that the outcome of a valid call shows, each kind of fault once."""
    found: dict[tuple[str, str], CallFault] = {}
    for fault in _all_faults(outcome, effect, settings):
        found.setdefault((fault.check, fault.key), fault)
    return found.values()


def _all_faults(outcome: CallOutcome, effect: Effect, settings: ToolTestSettings) -> Iterator[CallFault]:
    """Yield the faults of a call: its end, its result, and its side effects."""
    yield from _judge_end(outcome, settings)
    if outcome.schema_problem:
        yield CallFault("output-schema", "", f"the result does not match its schema: {outcome.schema_problem}")
    if outcome.has_canary:
        yield CallFault("path-escape", "", "the result contains a file outside the working folder")
    for event in outcome.events:
        check, text = _EVENT_TEXTS[event.kind]
        yield CallFault(check, "", text.format(event.target))
    if outcome.mutated and effect == "pure":
        yield CallFault("mutated-arguments", "", f"it changes its argument {', '.join(outcome.mutated)}")
    if outcome.changed_defaults:
        yield CallFault("shared-state", "defaults", "a call changes a default value, which later calls receive")
    if outcome.changed_folder:
        yield CallFault("shared-state", "folder", "a call changes the working folder of the process")


def _judge_end(outcome: CallOutcome, settings: ToolTestSettings) -> Iterator[CallFault]:
    """Yield a fault if the call did not end with a result of permitted size."""
    error = outcome.error
    if outcome.status == "raised" and error is not None:
        message = f"{error.type}: {error.message}" if error.message else error.type
        if "can't start new thread" in message:
            message += "; --memory limits the stacks of threads, too"
        yield CallFault("crash", f"{error.type} {error.location}", message, error.location)
    elif outcome.status == "died":
        yield CallFault("crash", "died", f"the process ended: {outcome.text}")
    elif outcome.status == "gone":
        yield CallFault("server-exit", "", outcome.text)
    elif outcome.status == "rpc_error" and error is not None:
        yield CallFault("protocol-error", error.type, f"the server answers with {error.type}: {error.message}")
    elif outcome.status == "timeout":
        yield CallFault("hang", "", f"no result within {outcome.seconds:g} seconds")
    elif outcome.status == "too_large":
        reason = "" if error is None else f" ({error.type}{f': {error.message}' if error.message else ''})"
        yield CallFault("output-size", "", f"the result is unbounded{reason}", "" if error is None else error.location)
    elif outcome.size > settings.max_output:
        yield CallFault(
            "output-size", "", f"the result has {outcome.size:,} characters, more than {settings.max_output:,}"
        )


def judge_invalid(outcome: CallOutcome) -> Iterator[CallFault]:
    """Yield the faults of a call whose arguments the schema rejects."""
    if outcome.reached_invalid:
        yield CallFault("invalid-accepted", "reached", "arguments that the schema rejects are accepted")
    elif outcome.status == "gone":
        yield CallFault("server-exit", "", outcome.text)
    elif outcome.status == "refused" and not outcome.text.strip():
        yield CallFault("invalid-accepted", "silent", "the call is refused without a message")


class FindingList:
    """The findings of one tool. `add` returns True for a fault that is new."""

    def __init__(
        self, tool: str, settings: ToolTestSettings, shorten: Callable[[str], str] = lambda text: text
    ) -> None:
        self._tool = tool
        self._settings = settings
        self._shorten = shorten
        self._found: dict[tuple[str, str], ToolFinding] = {}

    def __contains__(self, check: object) -> bool:
        return any(known == check for known, _ in self._found)

    def add(self, fault: CallFault, arguments: Object | None) -> bool:
        """Add a fault, or count it if it is known; return whether it is new. Ignored checks are left out."""
        if fault.check in self._settings.ignore:
            return False
        known = self._found.get((fault.check, fault.key))
        if known is not None:
            self._found[fault.check, fault.key] = replace(known, count=known.count + 1)
            return False
        self.set_arguments(fault, arguments)
        return True

    def set_arguments(self, fault: CallFault, arguments: Object | None) -> None:
        """Set the arguments of a finding, or replace them by smaller ones."""
        message, location = self._shorten(fault.message)[:_MAX_MESSAGE], self._shorten(fault.location)
        known = self._found.get((fault.check, fault.key))
        self._found[fault.check, fault.key] = ToolFinding(
            self._tool, fault.check, message, arguments, location, count=1 if known is None else known.count
        )

    def finish(self, reproduce: Callable[[ToolFinding], str]) -> tuple[ToolFinding, ...]:
        return tuple(replace(finding, reproduction=reproduce(finding)) for finding in self._found.values())


def reproduction_command(source: Sequence[str], finding: ToolFinding, settings: ToolTestSettings) -> str:
    """Return a command line that shows a finding again. Long arguments are generated again from the seed."""
    command = ["toolwire", "test", *source, "--tool", finding.tool]
    command += ["--include-writes"] * settings.include_writes + ["--unprotected"] * settings.unprotected
    for option, values in (
        ("--files", settings.files),
        ("--pass-env", settings.pass_env),
        ("--allow-net", settings.allow_hosts),
        ("--deps", () if settings.deps is None else (settings.deps,)),
    ):
        command += [word for value in values for word in (option, value)]
    text = json.dumps(finding.arguments, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(finding.arguments)
    if finding.arguments is not None and len(text) <= _MAX_ARGUMENTS:
        command += ["--arguments", text]
    else:
        command += ["--seed", str(settings.seed), "--cases", str(settings.cases)]
    return shlex.join(command)
