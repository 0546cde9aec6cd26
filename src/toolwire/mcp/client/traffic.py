"""The messages between a client and a server, for programs that show or measure them.

    McpClient(spec, traffic=lambda server, event: print(event.direction, event.message))

Values of headers that may be secret are removed: those of the configuration, tokens, cookies and session ids. Messages
are complete, so a program that shows them removes secrets from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from ...ir.value import Value
from ...run.traces.redact import REMOVED
from ..protocol.headers import SESSION
from ..protocol.rpc import RpcMessage

__all__ = ["LinkTraffic", "TrafficEvent", "TrafficHandler", "shown_headers"]


class TrafficEvent(Value, frozen=True):
    """One message. Over HTTP, `headers` are those of the request that carried it, and `status` is that of an answer."""

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
