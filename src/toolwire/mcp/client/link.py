"""The link to a server, and the messages over it, for programs that show or measure them.

    McpClient(spec, traffic=lambda server, event: print(event.direction, event.message))

Values of headers that may be secret are removed: configured headers, tokens, cookies and session ids. Messages
are complete, so a program that shows them removes secrets from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from ...ir.pointer import Object
from ...ir.value import Value
from ...run.traces.redact import REMOVED
from ..protocol.headers import SESSION, HeaderArguments
from ..protocol.meta import Meta, with_meta
from ..protocol.rpc import Failure, Notification, Result, RpcMessage, RpcRequest
from .failures import ServerGone
from .negotiation import NegotiatedProtocol


class TrafficEvent(Value, frozen=True):
    """One message. Over HTTP, `headers` are from the request that carried it, and `status` is an answer's."""

    direction: Literal["sent", "received"]
    message: RpcMessage
    headers: dict[str, str] = {}
    status: int | None = None


TrafficHandler: TypeAlias = Callable[[str, TrafficEvent], None]
"""Called with the name of the server and the message."""
LinkTraffic: TypeAlias = Callable[[TrafficEvent], None]


def shown_headers(headers: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request, without the values of secret ones."""
    shown = {name: REMOVED if name == SESSION else value for name, value in headers.items()}
    return {**shown, **dict.fromkeys(map(str.lower, secrets), REMOVED)}


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
