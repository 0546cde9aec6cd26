"""The steps that a call yields while it runs. A driver performs each step and returns its outcome."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..ir.parts import ToolResult
from ..ir.pointer import Object
from ..ir.value import Value
from .context import CallContext
from .records import Claim, RecordState
from .toolbox import Entry

__all__ = [
    "Approve",
    "ArgumentMismatch",
    "ClaimKey",
    "CompleteClaim",
    "Failed",
    "Finished",
    "Invoke",
    "Reconcile",
    "ReleaseClaim",
    "Returned",
    "StartDecision",
    "Step",
    "TimedOut",
    "Wait",
]


class Approve(Value, frozen=True):
    """Ask for approval → bool. The approval is valid for `hash` only."""

    tool: str
    arguments: Object
    why: str
    hash: str


class ClaimKey(Value, frozen=True):
    """Claim a key → Record, or StoreError as a value."""

    claim: Claim


class CompleteClaim(Value, frozen=True):
    """Store a result → bool, or StoreError as a value."""

    key: str
    token: str
    result: str
    ttl: float
    state: RecordState = "done"


class ReleaseClaim(Value, frozen=True):
    """Release a claim → bool, or StoreError as a value."""

    key: str
    token: str


class Wait(Value, frozen=True):
    """Wait for `seconds` → None."""

    seconds: float


class StartDecision:
    """A one-time decision between begin and stop: the first call wins.

    One thread may stop a call while another one is about to run it.
    """

    __slots__ = ("_decision",)

    def __init__(self) -> None:
        self._decision: dict[str, bool] = {}

    def begin(self) -> bool:
        """Begin. Return False if the call was stopped: the function must not run then."""
        return self._decision.setdefault("begins", True)  # setdefault is atomic between threads

    def stop(self) -> bool:
        """Stop. Return False if the function has begun: it must be awaited then."""
        return not self._decision.setdefault("begins", False)


class Invoke(Value, frozen=True, gc=False):
    """Call the function → Returned | Failed | TimedOut | ArgumentMismatch.

    The driver renews the lease of the key meanwhile. It calls `start.begin()` before the function, however long the
    call waited for its turn. `arguments` are the values to call the function with, converted to its types. They have
    been checked and must not be converted again. `gc=False` is safe: nothing that the step holds refers back to it.
    """

    entry: Entry
    arguments: Object
    context: CallContext[Any]
    token: str | None = None
    lease: float = 60.0
    start: StartDecision = msgspec.field(default_factory=StartDecision)


class Reconcile(Value, frozen=True):
    """Ask the tool for the outcome of the call with this key → Returned (None: still unknown) | Failed."""

    entry: Entry
    key: str
    arguments: Object


class Finished(Value, frozen=True):
    """The last step, with the result of the call."""

    result: ToolResult


class Returned(Value, frozen=True):
    """The function returned `value`."""

    value: object


class Failed(Value, frozen=True):
    """The function raised `error`."""

    error: BaseException


class ArgumentMismatch(Value, frozen=True):
    """The function does not accept these arguments and was not called."""

    message: str


class TimedOut(Value, frozen=True):
    """The function exceeded its timeout. `stopped`: it is certainly not running any more."""

    seconds: float
    stopped: bool = False


Step: TypeAlias = Approve | ClaimKey | CompleteClaim | ReleaseClaim | Wait | Invoke | Reconcile | Finished
