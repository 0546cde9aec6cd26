"""The settings of a test run, and the outcome of one call."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.tools import Effect
from ...ir.value import Value


class ToolTestSettings(Value, frozen=True):
    """Settings of a test run.

    `cases`: calls per tool. `timeout`: seconds for one call. `time_limit`: seconds for the generated calls of one tool.
    `max_output`: characters of a result. `memory`: megabytes that a call may allocate. `tools`: patterns of names.
    `files`: copied into the temporary working folder. `deps`: name of a function in the file that returns the
    dependencies of the tools (`CallContext.deps`). `arguments`: test only these, instead of generated ones.
    `unprotected`: allow `include_writes` where the system cannot confine the tools to a temporary folder.
    """

    # The defaults fit tools that answer in milliseconds and CI jobs of a few minutes; none is measured.
    seed: int = 0
    cases: int = 60  # the bounds, the paths and the first texts of a tool with three parameters
    timeout: float = 5.0
    time_limit: float = 20.0  # a third of a second for each of the 60 calls
    max_output: int = 1_000_000  # about 250,000 tokens, more than the context of most models
    memory: int = 1024
    concurrency: int = 8
    include_writes: bool = False
    unprotected: bool = False
    tools: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    deps: str | None = None
    arguments: Object | None = None

    def __post_init__(self) -> None:
        for name in ("cases", "timeout", "time_limit", "max_output", "memory", "concurrency"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be positive, got {value}")

    def selects(self, name: str) -> bool:
        """Return True for a tool that is to be tested, by its name."""
        return not self.tools or any(fnmatchcase(name, pattern) for pattern in self.tools)

    def may_run(self, effect: Effect) -> bool:
        """Return True if calls of a tool with this effect are made."""
        return self.include_writes or effect in ("pure", "read")


AuditKind: TypeAlias = Literal["write", "network", "process", "escape"]


class AuditEvent(Value, frozen=True):
    """An operation that the audit hook has recorded: `target` is a path, an address, or a description."""

    kind: AuditKind
    target: str


class RaisedError(Value, frozen=True):
    """An exception of a tool."""

    type: str
    message: str = ""
    location: str = ""


class CallOutcome(Value, frozen=True):
    """The outcome of one call.

    `refused`: the runtime did not call the function. `denied`: the function failed because of an operation that the
    audit hook denies. `too_large`: no memory, or too many items. `unavailable`: the tool needs dependencies.
    `rpc_error` and `gone`: a server answered with a JSON-RPC error, or broke the connection. `digest` identifies the
    whole result; `text` is its beginning. `reached`: the function was called; `reached_invalid`: with values that the
    schema rejects. `changed_folder`: the process has another working folder.
    """

    status: Literal[
        "returned",
        "tool_error",
        "raised",
        "refused",
        "denied",
        "too_large",
        "died",
        "timeout",
        "unavailable",
        "rpc_error",
        "gone",
    ]
    text: str = ""
    digest: str = ""
    size: int = 0
    error: RaisedError | None = None
    events: tuple[AuditEvent, ...] = ()
    reached: bool = False
    reached_invalid: bool = False
    mutated: tuple[str, ...] = ()
    changed_defaults: bool = False
    changed_folder: bool = False
    schema_problem: str = ""
    has_canary: bool = False
    seconds: float = 0.0

    @property
    def is_settled(self) -> bool:
        """True if the tool itself ended the call with a result or an error message."""
        return self.status in ("returned", "tool_error")


class TestedTool(Value, frozen=True):
    """The declaration of a tool, and `words`: texts that its code compares or looks up."""

    __test__ = False  # not a test class of pytest

    name: str
    effect: Effect
    input_schema: Object
    examples: tuple[Object, ...] = ()
    is_async: bool = False
    max_parallel: int | None = None
    words: tuple[str, ...] = ()


class LoadedFile(Value, frozen=True):
    """The tools of a file, and the operations that its import performed. `error`: why it could not be imported."""

    tools: tuple[TestedTool, ...] = ()
    events: tuple[AuditEvent, ...] = ()
    error: str = ""
