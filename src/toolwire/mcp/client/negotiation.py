"""Negotiate the protocol version with a server, sans-IO: requests come out, answers go in, and the result is a
NegotiatedProtocol.

    steps = negotiate(ids, identity, "auto")
    request = next(steps)
    request = steps.send(answer)                 # or steps.throw(…) if there was none

The stateless era is tried first (`server/discover`). An error that only a modern server returns is final, except that
it may name another version. Any other failure, including a timeout, means a server of the handshake era that does not
know the request.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...wire.mcp.versions import HANDSHAKE, LATEST, LATEST_HANDSHAKE, STATELESS
from ..protocol.discovery import (
    INITIALIZED,
    ServerCard,
    discover_request,
    initialize_request,
    read_discovered,
    read_initialized,
)
from ..protocol.meta import IDEMPOTENCY, Meta
from ..protocol.rpc import UNSUPPORTED_VERSION, Failure, Notification, Result, RpcRequest, is_modern
from .failures import NotAuthorized, ServerRefused


class ClientIdentity(Value, frozen=True):
    """The client's description of itself."""

    info: Object
    capabilities: Object = {}

    def meta(self, version: str) -> Meta:
        """Return the `_meta` of every request in the stateless era. It is empty in the handshake era."""
        return Meta(version, self.info, self.capabilities) if version in STATELESS else Meta()


class NegotiatedProtocol(Value, frozen=True):
    """The agreed version, and the server's description of itself."""

    version: str
    card: ServerCard

    @property
    def is_stateless(self) -> bool:
        return self.version in STATELESS

    def offers(self, area: str) -> bool:
        """Return True if the server has "tools", "resources" or "prompts". One without capabilities may have tools."""
        return area in self.card.capabilities or (area == "tools" and not self.card.capabilities)

    @property
    def is_idempotent(self) -> bool:
        """True if a call with an idempotency key may be sent twice."""
        offered = self.card.capabilities.get("experimental")
        return type(offered) is dict and IDEMPOTENCY in offered

    def announces_changes(self, area: str) -> bool:
        """Return True if the server announces changes of its list."""
        offered = self.card.capabilities.get(area)
        return type(offered) is dict and offered.get("listChanged") is True


NegotiationSteps = Generator[RpcRequest | Notification, Result | Failure | None, NegotiatedProtocol]


def negotiate(ids: Iterator[int], identity: ClientIdentity, protocol: str = "auto") -> NegotiationSteps:
    """Try discovery, and fall back to the handshake; a given `protocol` is used without a fallback.

    Yield requests and receive their answers. Errors of the server are raised where no fallback is left.
    """
    if protocol in HANDSHAKE:
        return (yield from _initialize(ids, identity, protocol))
    version = LATEST if protocol == "auto" else protocol
    try:
        answer = yield discover_request(next(ids), identity.meta(version))
        offered = _offered_version(answer)
        if offered in STATELESS:
            version = offered
            answer = yield discover_request(next(ids), identity.meta(version))
    except NotAuthorized:
        raise
    except (TimeoutError, ServerRefused, ProtocolError):
        if protocol != "auto":
            raise
        return (yield from _initialize(ids, identity, LATEST_HANDSHAKE))
    if isinstance(answer, Result):
        card = read_discovered(answer.result)
        chosen = _newest(card.versions, STATELESS)
        if chosen is not None:
            return NegotiatedProtocol(chosen, card)
        offered = _newest(card.versions, HANDSHAKE)
    elif isinstance(answer, Failure) and (protocol != "auto" or (is_modern(answer.error) and offered is None)):
        raise answer.error
    return (yield from _initialize(ids, identity, offered or LATEST_HANDSHAKE))


def read_late_discovery(answer: Result | Failure) -> NegotiatedProtocol | None:
    """Read an answer to `server/discover` that arrived after its timeout."""
    card = read_discovered(answer.result) if isinstance(answer, Result) else ServerCard(())
    version = _newest(card.versions, STATELESS)
    return None if version is None else NegotiatedProtocol(version, card)


def _offered_version(answer: Result | Failure | None) -> str | None:
    """Return a version that the server names in its error and that this client supports, or None."""
    if not isinstance(answer, Failure) or answer.code != UNSUPPORTED_VERSION or type(answer.data) is not dict:
        return None
    supported = answer.data.get("supported")
    return _newest(supported, STATELESS) or _newest(supported, HANDSHAKE)


def _newest(offered: JSON, known: tuple[str, ...]) -> str | None:
    common = [version for version in known if type(offered) in (list, tuple) and version in offered]
    return common[-1] if common else None


def _initialize(ids: Iterator[int], identity: ClientIdentity, version: str) -> NegotiationSteps:
    """Perform the handshake. The server may answer with another version of the handshake era; else ProtocolError."""
    answer = yield initialize_request(next(ids), identity.info, identity.capabilities, version)
    if isinstance(answer, Failure):
        raise answer.error
    assert isinstance(answer, Result)
    card = read_initialized(answer.result)
    negotiated = card.versions[0]
    if negotiated not in HANDSHAKE:
        raise ProtocolError(
            f"unsupported MCP version {negotiated!r}",
            pointer="/protocolVersion",
            hint=f"use a server that supports one of {', '.join(HANDSHAKE)}",
        )
    yield INITIALIZED
    return NegotiatedProtocol(negotiated, card)
