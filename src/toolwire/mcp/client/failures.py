"""How a server fails its client. Each says whether the call may have been run.

    ServerGone      the connection broke, or there is none; `sent` tells whether the call had left
    ServerRefused   the server, or something in front of it, said no before anything ran
    NotAuthorized   … because it does not know who asks

They are `Transient` to the runtime: what was surely not run may be tried again, a write that may have been is not.
A JSON-RPC error is an `RpcError` (toolwire.wire.mcp.errors).
"""

from __future__ import annotations

from ...ir.errors import ToolwireError
from ...run.failures import Transient

__all__ = ["AskedAgain", "NotAuthorized", "ServerGone", "ServerRefused"]


class ServerGone(ToolwireError, Transient):
    """No answer will come. `sent`: the request had left, so that nobody knows whether it was served."""

    default_status = 502

    def __init__(self, message: str, *, sent: bool = True, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
        self.before_effect = not sent


class AskedAgain(ServerGone):
    """The connection broke, the call was sent once more, and what came of that does not tell what the first one did."""


class ServerRefused(ToolwireError, Transient):
    """Nothing was run, and asking again at once would not help. `http` is the HTTP status, where there was one."""

    default_status = 502

    def __init__(self, message: str, *, http: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.http = http
        self.before_effect = True
        self.retry_after = float("inf")


class NotAuthorized(ServerRefused):
    """The server wants to know who asks, or that one may do more."""

    default_status = 401
