"""The way to a server. Two of them: a process that we start (stdio), and an address (http)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ...wire.mcp.headers import Mirrored
from ...wire.mcp.rpc import Failure, Message, Notification, Request, Result
from .failures import ServerGone
from .greeting import Greeting

__all__ = ["Hear", "Link", "Lost"]

Hear: TypeAlias = Callable[[Message], None]
"""Called with what is no answer: notifications, and questions of the server."""
Lost: TypeAlias = Callable[[ServerGone], None]
"""Called once, when the connection is gone for good."""


class Link(Protocol):
    """Requests may be asked side by side. Who is cancelled while asking says so to the server, in the way of the era."""

    async def open(self) -> None: ...

    async def ask(self, request: Request, marks: Mirrored | None = None) -> Result | Failure:
        """The answer; ServerGone where there will be none, ServerRefused where nothing was run."""
        ...

    async def tell(self, message: Notification | Result | Failure) -> None:
        """What needs no answer."""
        ...

    async def agreed(self, greeting: Greeting, *, listen: bool) -> None:
        """What was found out. `listen`: there is something to be heard beside answers."""
        ...

    @property
    def is_awaited(self) -> bool:
        """Somebody waits for an answer that may come though another request failed."""
        ...

    async def answered(self) -> None:
        """Until nobody waits any more."""
        ...

    async def close(self) -> None: ...
