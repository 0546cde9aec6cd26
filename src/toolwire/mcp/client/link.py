"""The link to a server. There are two: a process that the client starts (stdio), and a URL (http)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ...ir.pointer import Object
from ..protocol.headers import HeaderArguments
from ..protocol.meta import Meta, with_meta
from ..protocol.rpc import Failure, Notification, Result, RpcMessage, RpcRequest
from .failures import ServerGone
from .negotiation import NegotiatedProtocol

__all__ = ["LISTEN", "Link", "LostHandler", "MessageHandler", "subscription_request"]

LISTEN = "subscriptions/listen"

MessageHandler: TypeAlias = Callable[[RpcMessage], None]
"""Called with messages that are not answers: notifications, and requests by the server."""
LostHandler: TypeAlias = Callable[[ServerGone], None]
"""Called once, when the connection is gone for good."""


def subscription_request(number: int, meta: Meta) -> RpcRequest:
    """Ask a server of the stateless era to announce changes of its lists. The answer ends the subscription."""
    wanted: Object = {"notifications": {f"{area}ListChanged": True for area in ("tools", "resources", "prompts")}}
    return RpcRequest(f"listen-{number}", LISTEN, with_meta(wanted, meta))


class Link(Protocol):
    """Requests may run concurrently. Cancelling `send_request` notifies the server, as its era requires."""

    async def open(self) -> None: ...

    async def send_request(
        self, request: RpcRequest, header_arguments: HeaderArguments | None = None
    ) -> Result | Failure:
        """Return the answer. Raise ServerGone if there will be none, ServerRefused if nothing ran."""
        ...

    async def send(self, message: Notification | Result | Failure) -> None:
        """Send a message that has no answer."""
        ...

    async def set_protocol(self, greeting: NegotiatedProtocol, *, listen: bool) -> None:
        """Store the negotiated version. `listen`: the server may send messages besides answers."""
        ...

    @property
    def has_pending(self) -> bool:
        """True if a request waits for an answer that may still arrive although another request failed."""
        ...

    async def wait_pending(self) -> None:
        """Wait until no request waits for an answer."""
        ...

    async def close(self) -> None: ...
