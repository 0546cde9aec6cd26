"""The link to a server. There are two: a process that the client starts (stdio), and a URL (http)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ...wire.mcp.headers import Mirrored
from ...wire.mcp.rpc import Failure, Message, Notification, Request, Result
from .failures import ServerGone
from .greeting import Greeting

__all__ = ["Hear", "Link", "Lost"]

Hear: TypeAlias = Callable[[Message], None]
"""Called with messages that are not answers: notifications, and requests by the server."""
Lost: TypeAlias = Callable[[ServerGone], None]
"""Called once, when the connection is gone for good."""


class Link(Protocol):
    """Requests may run concurrently. Cancelling `ask` notifies the server, as its era requires."""

    async def open(self) -> None: ...

    async def ask(self, request: Request, marks: Mirrored | None = None) -> Result | Failure:
        """Return the answer. Raise ServerGone if there will be none, ServerRefused if nothing ran."""
        ...

    async def tell(self, message: Notification | Result | Failure) -> None:
        """Send a message that has no answer."""
        ...

    async def agreed(self, greeting: Greeting, *, listen: bool) -> None:
        """Store the negotiated version. `listen`: the server may send messages besides answers."""
        ...

    @property
    def is_awaited(self) -> bool:
        """True if a request waits for an answer that may still arrive although another request failed."""
        ...

    async def answered(self) -> None:
        """Wait until no request waits for an answer."""
        ...

    async def close(self) -> None: ...
