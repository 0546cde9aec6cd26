"""What went wrong here, as a provider would say it: for the client, in its own dialect."""

from __future__ import annotations

from msgspec.structs import replace

from ..ir.errors import StoredStateError, ToolwireError, UpstreamError
from ..ir.response import Fault, FaultKind

__all__ = ["RateLimited", "Refused", "fault_from", "is_ours_to_settle", "settled"]

_KINDS: dict[int, FaultKind] = {
    401: "authentication",
    403: "permission",
    404: "not_found",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
}
_OURS = frozenset({"authentication", "permission", "billing"})


class Refused(ToolwireError):
    """A client that may not do this."""

    default_status = 403


class RateLimited(ToolwireError):
    """Too much at once; `retry_after` seconds later there is room again."""

    default_status = 429

    def __init__(self, message: str, *, retry_after: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


def fault_from(error: ToolwireError) -> Fault:
    """An error of ours."""
    if isinstance(error, UpstreamError):
        return error.fault
    kind = _KINDS.get(error.status) or ("invalid_request" if error.status < 500 else "server")
    wait = error.retry_after if isinstance(error, RateLimited) else None
    code = error.code if isinstance(error, StoredStateError) else None
    return Fault(kind, str(error), error.status, code, param=error.pointer or None, retry_after=wait)


def is_ours_to_settle(fault: Fault) -> bool:
    """Whether an upstream has it against the gateway, and not against its client: whatever it calls it."""
    return fault.kind in _OURS or fault.status in (401, 402)


def settled(fault: Fault, upstream: str) -> Fault:
    """The upstream does not take our key: the client, whose own key is right, cannot do anything about it. That there is no
    money it is told as such: it is no failure that passes.

    Nor is a failure of the upstream one of ours: a 500 from here is always the gateway's own.
    """
    if is_ours_to_settle(fault):
        message = f"the upstream {upstream} refuses the gateway: {fault.message}"
        if fault.kind == "billing":
            return Fault("billing", message, 402, fault.code, retryable=False)
        return Fault("server", message, 502, fault.code, retryable=False)
    return replace(fault, status=502) if fault.status == 500 else fault
