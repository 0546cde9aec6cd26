"""What a tool's function may ask about the call that it runs for."""

from __future__ import annotations

from contextvars import ContextVar

from ..ir.value import Value

__all__ = ["CallContext", "current_call", "running"]


class CallContext(Value, frozen=True):
    """`idempotency_key` is for the backend: hand it on, and it can refuse to do the same thing twice."""

    call_id: str
    tool: str
    run_id: str = ""
    caller: str = ""
    idempotency_key: str | None = None


running: ContextVar[CallContext | None] = ContextVar("toolwire_call", default=None)


def current_call() -> CallContext | None:
    """The call that is being run, inside of a tool's function; None elsewhere."""
    return running.get()
