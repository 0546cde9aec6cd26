"""What went wrong here, as a provider would say it: for the client, in its own dialect."""

from __future__ import annotations

from ..ir.errors import ToolwireError, UpstreamError
from ..ir.response import Fault, FaultKind

__all__ = ["OURS_TO_SETTLE", "RateLimited", "Refused", "fault_from", "settled"]

_KINDS: dict[int, FaultKind] = {
    401: "authentication",
    403: "permission",
    404: "not_found",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
}
OURS_TO_SETTLE = frozenset({"authentication", "permission", "billing"})
"""What an upstream has against the gateway, and not against its client."""


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
    return Fault(kind, str(error), error.status, param=error.pointer or None, retry_after=wait)


def settled(fault: Fault, upstream: str) -> Fault:
    """The upstream does not take our key: the client, whose own key is right, cannot do anything about it."""
    if fault.kind not in OURS_TO_SETTLE:
        return fault
    message = f"the upstream {upstream} refuses the gateway: {fault.message}"
    return Fault("server", message, 502, fault.code, retryable=False)
