"""The context of a call, for the tool's function that runs it."""

from __future__ import annotations

from contextvars import ContextVar

from ..ir.value import Value

__all__ = ["CallContext", "current_call", "running"]


class CallContext(Value, frozen=True):
    """The call that a function runs for. Pass `idempotency_key` to the backend, so that it can reject duplicates."""

    call_id: str
    tool: str
    run_id: str = ""
    caller: str = ""
    idempotency_key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers for an HTTP request that the tool makes."""
        return {} if self.idempotency_key is None else {"Idempotency-Key": self.idempotency_key}


running: ContextVar[CallContext | None] = ContextVar("toolwire_call", default=None)


_NO_CALL = CallContext("", "")


def current_call() -> CallContext:
    """Return the current call inside a tool's function; elsewhere a context with an empty `call_id` and no key."""
    return running.get() or _NO_CALL
