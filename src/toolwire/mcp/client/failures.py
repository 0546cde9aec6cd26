"""The ways in which a server fails its client. Each records whether the call may have run.

    ServerGone      the connection broke, or there is none; `sent` is True if the call was sent
    ServerRefused   the server, or a proxy in front of it, rejected the request before anything ran
    NotAuthorized   … because the client is not authenticated or lacks a permission

They are `Transient` for the runtime: a call that certainly did not run may be retried, a write that may have run is
not. A JSON-RPC error is an `RpcError` (toolwire.mcp.protocol.rpc).
"""

from __future__ import annotations

from ...ir.errors import ToolwireError
from ...run.calls.context import Transient


class ServerGone(ToolwireError, Transient):
    """No answer will arrive. `sent`: the request was sent, so it is unknown whether it was served."""

    default_status = 502

    def __init__(self, message: str, *, sent: bool = True, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        self.before_effect = not sent


class AmbiguousRetry(ServerGone):
    """The connection broke and the call was sent again. Its outcome does not reveal the effect of the first attempt."""


class ServerRefused(ToolwireError, Transient):
    """Nothing ran, and an immediate retry would not help. `http` is the HTTP status, if there was one."""

    default_status = 502

    def __init__(self, message: str, *, http: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.http = http
        self.before_effect = True
        self.retry_after = float("inf")


class NotAuthorized(ServerRefused):
    """The server requires authentication, or a permission that the token does not have."""

    default_status = 401
