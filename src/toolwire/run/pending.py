"""A call on its way through the gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from ..ir.parts import ToolCall
from ..ir.pointer import Object
from ..ir.value import Value
from ..schema.lowering.lowered import Lowered
from ..schema.repair.arguments import RepairPolicy
from .toolbox import Entry, Toolbox
from .verdicts import Ask, Deny

__all__ = ["CallRules", "Pending", "PolicyCheck", "Taint"]

Taint: TypeAlias = Literal["off", "warn", "enforce"]


class CallRules(Protocol):
    """The interface of `Policy` for the gate that applies it."""

    @property
    def taint(self) -> Taint: ...
    def rewrite(self, pending: Pending) -> Pending | Deny: ...
    def check(self, pending: Pending) -> Deny | Ask | None: ...


class Pending(Value, frozen=True, gc=False):
    """A call that the gates and the policy inspect. `gc=False` is safe: nothing that it holds refers back to it."""

    call: ToolCall
    box: Toolbox
    entry: Entry | None = None
    arguments: Object = {}
    key: str | None = None
    caller: str = ""
    tenant: str = ""
    tainted: bool = False
    policy: CallRules | None = None
    repair: RepairPolicy | None = None
    steps: tuple[str, ...] = ()
    validated_arguments: Object | None = None  # the arguments object that has been validated
    lowerings: Mapping[str, Lowered] | None = None
    values: Object | None = None  # `arguments` converted to the types of the function, which is called with them
    conversion_error: str | None = None  # the reason why they cannot be converted; the function is not called then
    original_arguments: Object | None = None  # `arguments` before a policy rewrote them
    model_arguments: Object | None = None  # the arguments of the model, if a person replaced them on approval
    verdict: Ask | None = None  # set by the policy gate if the call needs approval

    @property
    def tool(self) -> Entry:
        assert self.entry is not None, "the first gate sets the entry"
        return self.entry

    @property
    def identity(self) -> Object:
        """The arguments before a policy rewrote them."""
        return self.arguments if self.original_arguments is None else self.original_arguments

    @property
    def request(self) -> Object:
        """The arguments as the model gave them. They identify the call, so that a repeated call has the same key."""
        return self.identity if self.model_arguments is None else self.model_arguments


PolicyCheck: TypeAlias = Callable[[Pending], Deny | Ask | None]
