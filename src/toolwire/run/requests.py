"""What a call asks of the world while it runs. A driver performs each, and gives back what came of it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ..ir.parts import ToolResult
from ..ir.pointer import Object
from ..ir.value import Value
from .context import CallContext
from .records import Claim, RecordState
from .start import Start
from .toolbox import Entry

__all__ = [
    "Approve",
    "ClaimIt",
    "CompleteIt",
    "Failed",
    "Finished",
    "Invoke",
    "Reconcile",
    "ReleaseIt",
    "Returned",
    "Step",
    "TimedOut",
    "Unfit",
    "Wait",
]


class Approve(Value, frozen=True):
    """May this call be run? → bool. `hash` is what the answer is bound to."""

    tool: str
    arguments: Object
    why: str
    hash: str


class ClaimIt(Value, frozen=True):
    """→ Record, or StoreError as a value."""

    claim: Claim


class CompleteIt(Value, frozen=True):
    """→ bool, or StoreError as a value."""

    key: str
    token: str
    result: str
    ttl: float
    state: RecordState = "done"


class ReleaseIt(Value, frozen=True):
    """→ bool, or StoreError as a value."""

    key: str
    token: str


class Wait(Value, frozen=True):
    """→ None, after so many seconds."""

    seconds: float


class Invoke(Value, frozen=True, gc=False):
    """→ Returned | Failed | TimedOut | Unfit. The lease of `key` is kept alive meanwhile; `start` is asked before the function is
    called, however long it had to wait for its turn.

    `arguments` are the values to call the function with, converted to its types. They have been checked: convert them no further.
    The collector of garbage need not look at it: nothing that it holds leads back to it.
    """

    entry: Entry
    arguments: Object
    context: CallContext
    token: str | None = None
    lease: float = 60.0
    start: Start = msgspec.field(default_factory=Start)


class Reconcile(Value, frozen=True):
    """What became of the call with this key? → Returned (None: still unknown) | Failed."""

    entry: Entry
    key: str
    arguments: Object


class Finished(Value, frozen=True):
    """The end."""

    result: ToolResult


class Returned(Value, frozen=True):
    value: object


class Failed(Value, frozen=True):
    error: BaseException


class Unfit(Value, frozen=True):
    """The function cannot take these arguments; it was not called."""

    words: str


class TimedOut(Value, frozen=True):
    """`stopped`: the function is surely not running any more."""

    seconds: float
    stopped: bool = False


Step: TypeAlias = Approve | ClaimIt | CompleteIt | ReleaseIt | Wait | Invoke | Reconcile | Finished
