"""The interface of the runtime for a tool's function: the context of its call, and exceptions that report a failure.

    @toolwire.tool(effect="read")
    async def find_orders(customer: str, context: CallContext[Database]) -> list[str]:
        await context.progress("searching", 0.5)
        return await context.deps.orders(customer)

The parameter is recognised by its annotation and is not part of the schema. `current_call()` returns the same object.
A tool raises an exception of this module to report how it failed. After any other exception the effect is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..session.loop import Session

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")

_MAX_MESSAGE = 1000  # characters of a progress message, which is shown on a line


class CallContext(Struct, Generic[Deps]):
    """The call that a function runs for. Pass `idempotency_key` to the backend, so that it can reject duplicates.

    `deps` is the object given to `Agent.run(…, deps=…)` or `Runner.run(…, deps=…)`. `cancelled` becomes True when the
    call has timed out or its run was aborted; a function in a thread cannot be interrupted and should check it.
    `session` is the run of the agent that makes the call: an agent that runs inside the function shares its budget.
    `tainted`: the run contains untrusted output, which may have caused the call. Set `untrusted` to True if the result
    of this call contains third-party text; an agent that runs inside the function sets it after untrusted output.
    """

    __toolwire_context__: ClassVar[bool] = True  # see schema/inference/signatures.py

    call_id: str
    tool: str
    run_id: str = ""
    caller: str = ""
    idempotency_key: str | None = None
    deps: Deps = None  # type: ignore[assignment]
    session: Session | None = None
    cancelled: bool = False
    _sink: ProgressSink | None = None
    tainted: bool = False
    untrusted: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Headers for an HTTP request that the tool makes."""
        return {} if self.idempotency_key is None else {"Idempotency-Key": self.idempotency_key}

    def report_progress(self, message: str, fraction: float | None = None) -> None:
        """Report progress, from any thread. `fraction` is between 0 and 1; a message is cut at 1,000 characters."""
        if self._sink is None:
            return
        if fraction is not None:
            fraction = min(max(fraction, 0.0), 1.0) if isfinite(fraction) else None
        self._sink(self, message[:_MAX_MESSAGE], fraction)

    async def progress(self, message: str, fraction: float | None = None) -> None:
        """Report progress like `report_progress`, in an async function."""
        self.report_progress(message, fraction)


ProgressSink: TypeAlias = Callable[[CallContext[Any], str, float | None], None]
"""Receives the context of a call, a message, and the fraction of the work that is done, if it is known."""

running: ContextVar[CallContext[Any] | None] = ContextVar("toolwire_call", default=None)


def current_call() -> CallContext[Any]:
    """Return the current call inside a tool's function; elsewhere a context with an empty `call_id` and no key."""
    return running.get() or CallContext("", "")


class ToolError(Exception):
    """The tool ran and refuses the request. The model reads the message and can try something else."""


class NotExecuted(Exception):
    """The call had no effect and will have none: it is safe to retry it. `retryable`: a retry may succeed."""

    def __init__(self, message: str = "", *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class Transient(Exception):
    """A temporary failure. `before_effect`: the call had no effect yet, so even a write may be retried."""

    def __init__(self, message: str = "", *, retry_after: float | None = None, before_effect: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.before_effect = before_effect
