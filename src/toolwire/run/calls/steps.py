"""The steps that a call yields while it runs, and the replies of an approver.

A driver performs each step and returns its outcome. An approval is bound to a hash of the tool's definition and the
arguments.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from ...ir.parts import ToolResult
from ...ir.pointer import Object
from ...ir.tools import Effect
from ...ir.value import Value
from ..tools.toolbox import Entry
from ..values.keys import canonical_json, definition_hash
from ..values.records import Claim, RecordState
from ..values.waiting import Suspend
from .context import CallContext
from .signature import FunctionSignature


class Approve(Value, frozen=True):
    """Ask for approval → bool | Approved | Denied.

    The approval is valid for `hash` only: for this definition of the tool and these arguments.
    """

    tool: str
    arguments: Object
    why: str
    hash: str
    call_id: str = ""
    effect: Effect = "write"


class GetRecord(Value, frozen=True):
    """Read the record of a key → Record, None, or StoreError as a value."""

    key: str


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


class StartDecision(dict[str, bool]):
    """A one-time decision between begin and stop: the first call wins.

    One thread may stop a call while another one is about to run it. A dict, because `setdefault` is atomic between
    threads.
    """

    __slots__ = ()

    def begin(self) -> bool:
        """Begin. Return False if the call was stopped: the function must not run then."""
        return self.setdefault("begins", True)

    def stop(self) -> bool:
        """Stop. Return False if the function has begun: it must be awaited then."""
        return not self.setdefault("begins", False)


BEGUN = StartDecision(begins=True)  # a call that may be cancelled at any time needs no decision, so all share it


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
    lease: float = 60.0  # seconds, as `Claim.lease`
    start: StartDecision = msgspec.field(default_factory=StartDecision)
    signature: FunctionSignature | None = None  # of the function, if the caller has looked it up


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


Step: TypeAlias = Approve | GetRecord | ClaimKey | CompleteClaim | ReleaseClaim | Wait | Invoke | Reconcile | Finished


# The approval of a call by a person: the possible replies, and the hash to which an approval is bound.


class Approved(Value, frozen=True):
    """The call may run. With `arguments`, it runs with these instead, if they pass all gates."""

    arguments: Object | None = None


class Denied(Value, frozen=True):
    """The call must not run. The model reads the reason."""

    reason: str = ""


ApprovalReply: TypeAlias = bool | Approved | Denied | Suspend


def approval_hash(entry: Entry, arguments: Object) -> str:
    """Hash the definition of the tool, its origin and the arguments. An approval is valid for this hash only.

    The origin is the function, the server or the API: another one with the same definition needs its own approval.
    """
    parts = (definition_hash(entry.tool).encode(), entry.origin_id.encode(), canonical_json(arguments))
    return sha256(b"\x00".join(parts)).hexdigest()
