"""The gateway's errors as provider faults, for the client in its own protocol."""

from __future__ import annotations

from logging import getLogger
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..ir.errors import ToolwireError
from ..ir.response import Fault
from ..net.http.transport import PoolExhausted
from ..net.model.key_command import KeyCommandError
from ..wire.faults import CONTEXT_LENGTH
from ..wire.loopback import is_loopback

_log = getLogger("toolwire.gateway")

INTERNAL_FAULT = Fault("server", "the gateway failed; its log has the cause, under the id in x-request-id", 500)
IDLE_FAULT = Fault("timeout", "the upstream was silent for too long", 504, "timeout", retryable=True)
SHUTDOWN_FAULT = Fault("overloaded", "the gateway is shutting down", 503, "stopping", retryable=True)
UPSTREAM_BUSY = "upstream_busy"
"""The code of a request that waited too long for a connection to the upstream."""
_RETRY_AFTER = 1.0  # seconds; an overload of the gateway itself ends as soon as some clients wait
_GATEWAY_KINDS = frozenset({"authentication", "permission", "billing"})


class RateLimited(ToolwireError):
    """A limit is exceeded; there is room again after `retry_after` seconds."""

    default_status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Overloaded(RateLimited):
    """The gateway has too many requests in flight, or too little CPU. Nothing was sent to an upstream."""

    default_status = 503
    code = "gateway_overloaded"

    def __init__(self) -> None:
        super().__init__("the gateway is overloaded", retry_after=_RETRY_AFTER, hint="retry later")


def network_fault_of(error: TimeoutError | ConnectionError, upstream: str, origin: str = "") -> Fault:
    """Log a network error, with an address of this machine, and convert it to a fault.

    The fault goes to clients, which may be on other machines, so it has no address.
    """
    is_here = is_loopback(urlsplit(origin).hostname or "")
    _log.warning("upstream %s: %s", upstream, f"{origin}: {error}" if is_here else error)
    if isinstance(error, PoolExhausted):  # the upstream did not fail, so this is no reason for a 502 or 504
        message = f"too many requests to the upstream {upstream} are in flight"
        return Fault("overloaded", message, 503, UPSTREAM_BUSY, retry_after=_RETRY_AFTER)
    if isinstance(error, TimeoutError):
        return Fault("timeout", f"no response from the upstream {upstream} in time", 504, "timeout")
    hint = " (check that its server runs on the gateway's machine)" if is_here else ""
    return Fault("server", f"no connection to the upstream {upstream}{hint}", 502, "connection")


def overflow_fault(tokens: int, window: int) -> Fault:
    """Return the fault of a prompt that has at least `tokens`; each wire writes it in the form that its clients read."""
    message = f"prompt is too long: {tokens} tokens > {window} maximum"
    return Fault("invalid_request", message, 400, CONTEXT_LENGTH)


def key_fault_of(error: KeyCommandError, upstream: str) -> Fault:
    """Log a failure of a key command, and convert it to a fault without its details, which are for the operator."""
    _log.error("upstream %s: %s", upstream, error)
    message = f"the gateway has no key for the upstream {upstream}; its log has the cause"
    return Fault("server", message, 502, "key_command", retryable=False)


def is_gateway_fault(fault: Fault) -> bool:
    """Check whether the upstream refuses the gateway rather than its client, by kind or by status."""
    return fault.kind in _GATEWAY_KINDS or fault.status in (401, 402)


def as_gateway_fault(fault: Fault, upstream: str) -> Fault:
    """Return the fault that the client gets. A refusal of our own key is not about the client's key, which is valid.

    Missing credit is reported as such, because it is not a transient failure. A 500 of the upstream becomes a 502: a
    500 from here is always the gateway's own.
    """
    if is_gateway_fault(fault):
        message = f"the upstream {upstream} refuses the gateway: {fault.message}"
        if fault.kind == "billing":
            return Fault("billing", message, 402, fault.code, retryable=False)
        return Fault("server", message, 502, fault.code, retryable=False)
    return replace(fault, status=502) if fault.status == 500 else fault
