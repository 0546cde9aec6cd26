"""Judge the outcome of one call, and collect the findings of a tool: one for each fault, with the smallest arguments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...ir.pointer import Object
from ...ir.tools import Effect
from .checks import ToolFinding
from .settings import CallOutcome, ToolTestSettings

__all__ = ["CallFault", "FindingList", "judge_invalid", "judge_outcome", "reproduction_command"]

_MAX_ARGUMENTS = 600  # characters of arguments in a reproduction
_EVENT_CHECKS = {"write": "write", "network": "network", "process": "process", "escape": "path-escape"}
_EVENT_TEXTS = {
    "write": "it writes {}",
    "network": "it connects to {}",
    "process": "it {}",
    "escape": "it opens {}, outside the working folder",
}


class CallFault(NamedTuple):
    """A fault of one call. Faults with equal `check` and `key` are one finding."""

    check: str
    key: str
    message: str
    location: str = ""


def judge_outcome(outcome: CallOutcome, effect: Effect, settings: ToolTestSettings) -> Iterator[CallFault]:
    """Yield the faults that the outcome of a valid call shows, each kind of fault once."""
    seen: set[tuple[str, str]] = set()
    for fault in _all_faults(outcome, effect, settings):
        if (fault.check, fault.key) not in seen:
            seen.add((fault.check, fault.key))
            yield fault


def _all_faults(outcome: CallOutcome, effect: Effect, settings: ToolTestSettings) -> Iterator[CallFault]:
    yield from _judge_end(outcome, settings)
    if outcome.schema_problem:
        yield CallFault("output-schema", "", f"the result does not match its schema: {outcome.schema_problem}")
    if outcome.has_canary:
        yield CallFault("path-escape", "", "the result contains a file outside the working folder")
    for event in outcome.events:
        yield CallFault(_EVENT_CHECKS[event.kind], "", _EVENT_TEXTS[event.kind].format(event.target))
    if outcome.mutated and effect == "pure":
        yield CallFault("mutated-arguments", "", f"it changes its argument {', '.join(outcome.mutated)}")
    if outcome.changed_defaults:
        yield CallFault("shared-state", "defaults", "a call changes a default value, which later calls receive")
    if outcome.changed_folder:
        yield CallFault("shared-state", "folder", "a call changes the working folder of the process")


def _judge_end(outcome: CallOutcome, settings: ToolTestSettings) -> Iterator[CallFault]:
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
        """Add a fault, or count it if it is known. Ignored checks are left out."""
        if fault.check in self._settings.ignore:
            return False
        known = self._found.get((fault.check, fault.key))
        if known is not None:
            self._found[fault.check, fault.key] = replace(known, count=known.count + 1)
            return False
        message = self._shorten(fault.message)[:1000]
        location = self._shorten(fault.location)
        self._found[fault.check, fault.key] = ToolFinding(self._tool, fault.check, message, arguments, location)
        return True

    def set_arguments(self, fault: CallFault, arguments: Object) -> None:
        """Replace the arguments of a finding by smaller ones."""
        key = (fault.check, fault.key)
        self._found[key] = replace(
            self._found[key],
            arguments=arguments,
            message=self._shorten(fault.message)[:1000],
            location=self._shorten(fault.location),
        )

    def finish(self, reproduce: Callable[[ToolFinding], str]) -> tuple[ToolFinding, ...]:
        return tuple(replace(finding, reproduction=reproduce(finding)) for finding in self._found.values())


def reproduction_command(source: Sequence[str], finding: ToolFinding, settings: ToolTestSettings) -> str:
    """Return a command line that shows a finding again. Long arguments are generated again from the seed."""
    command = ["toolwire", "test", *source, "--tool", finding.tool]
    if settings.include_writes:
        command.append("--include-writes")
    if settings.unprotected:
        command.append("--unprotected")
    for option, values in (
        ("--files", settings.files),
        ("--pass-env", settings.pass_env),
        ("--allow-net", settings.allow_hosts),
        ("--deps", () if settings.deps is None else (settings.deps,)),
    ):
        command += [word for value in values for word in (option, value)]
    text = "" if finding.arguments is None else json.dumps(finding.arguments, ensure_ascii=False)
    if text and not text.isprintable():
        text = json.dumps(finding.arguments)
    if text and len(text) <= _MAX_ARGUMENTS:
        command += ["--arguments", text]
    else:
        command += ["--seed", str(settings.seed), "--cases", str(settings.cases)]
    return shlex.join(command)
