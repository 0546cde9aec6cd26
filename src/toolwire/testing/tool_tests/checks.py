"""The checks of `toolwire test`, and the findings that they report."""

from __future__ import annotations

from difflib import get_close_matches

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.value import Value

__all__ = ["TOOL_CHECKS", "FaultCheck", "ToolFinding", "require_checks"]


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
            hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
            raise ConfigError(f"there is no check {name!r}", hint=hint)
