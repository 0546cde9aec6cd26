"""Finding out what a server speaks, sans-IO: requests come out, answers go in, and at the end there is a Greeting.

    steps = greet(ids, me, "auto")
    request = next(steps)
    request = steps.send(answer)                 # or steps.throw(…) where none came

The stateless era first (`server/discover`). An error that only a modern server gives is final, except that it may name
another version; any other failure, silence included, is how servers of the handshake era say that they do not know it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ...wire.mcp.errors import UNSUPPORTED_VERSION, is_modern
from ...wire.mcp.greeting import (
    INITIALIZED,
    ServerCard,
    discover_request,
    initialize_request,
    read_discovered,
    read_initialized,
)
from ...wire.mcp.meta import IDEMPOTENCY, Meta
from ...wire.mcp.rpc import Failure, Notification, Request, Result
from ...wire.mcp.versions import HANDSHAKE, LATEST, LATEST_HANDSHAKE, STATELESS
from .failures import NotAuthorized, ServerRefused

__all__ = ["Greeting", "Me", "discovered", "greet"]


class Me(Value, frozen=True):
    """What a client says of itself."""

    info: Object
    capabilities: Object = {}

    def meta(self, version: str) -> Meta:
        """What every request of the stateless era says; nothing in the other one."""
        return Meta(version, self.info, self.capabilities) if version in STATELESS else Meta()


class Greeting(Value, frozen=True):
    version: str
    card: ServerCard

    @property
    def is_stateless(self) -> bool:
        return self.version in STATELESS

    def offers(self, area: str) -> bool:
        """Whether the server has anything of "tools", "resources", "prompts". One that says nothing of itself may have tools."""
        return area in self.card.capabilities or (area == "tools" and not self.card.capabilities)

    @property
    def is_idempotent(self) -> bool:
        """Whether a call with a key may be sent twice."""
        offered = self.card.capabilities.get("experimental")
        return type(offered) is dict and IDEMPOTENCY in offered

    def tells(self, area: str) -> bool:
        """Whether it says when its list changes."""
        offered = self.card.capabilities.get(area)
        return type(offered) is dict and offered.get("listChanged") is True


Steps = Generator[Request | Notification, Result | Failure | None, Greeting]


def greet(ids: Iterator[int], me: Me, protocol: str = "auto") -> Steps:
    """Discovery, and the handshake where that is what the server knows."""
    if protocol in HANDSHAKE:
        return (yield from _initialize(ids, me, protocol))
    version = LATEST if protocol == "auto" else protocol
    try:
        answer = yield discover_request(next(ids), me.meta(version))
        offered = _other_version(answer)
        if offered in STATELESS:
            version = offered
            answer = yield discover_request(next(ids), me.meta(version))
    except NotAuthorized:
        raise
    except (TimeoutError, ServerRefused, ProtocolError):
        if protocol != "auto":
            raise
        return (yield from _initialize(ids, me, LATEST_HANDSHAKE))
    if isinstance(answer, Result):
        card = read_discovered(answer.result)
        chosen = _newest(card.versions, STATELESS)
        if chosen is not None:
            return Greeting(chosen, card)
        offered = _newest(card.versions, HANDSHAKE)
    elif isinstance(answer, Failure) and (protocol != "auto" or (is_modern(answer.error) and offered is None)):
        raise answer.error
    return (yield from _initialize(ids, me, offered or LATEST_HANDSHAKE))


def discovered(answer: Result | Failure) -> Greeting | None:
    """What an answer to `server/discover` says that came when nobody waited for it any more."""
    card = read_discovered(answer.result) if isinstance(answer, Result) else ServerCard(())
    version = _newest(card.versions, STATELESS)
    return None if version is None else Greeting(version, card)


def _other_version(answer: Result | Failure | None) -> str | None:
    """What a server that does not speak our version speaks instead, if we do, too."""
    if not isinstance(answer, Failure) or answer.code != UNSUPPORTED_VERSION or type(answer.data) is not dict:
        return None
    supported = answer.data.get("supported")
    return _newest(supported, STATELESS) or _newest(supported, HANDSHAKE)


def _newest(offered: JSON, known: tuple[str, ...]) -> str | None:
    both = [version for version in known if type(offered) in (list, tuple) and version in offered]
    return both[-1] if both else None


def _initialize(ids: Iterator[int], me: Me, version: str) -> Steps:
    answer = yield initialize_request(next(ids), me.info, me.capabilities, version)
    if isinstance(answer, Failure):
        raise answer.error
    assert isinstance(answer, Result)
    card = read_initialized(answer.result)
    spoken = card.versions[0]
    if spoken not in HANDSHAKE:
        raise ProtocolError(
            f"the server speaks MCP {spoken!r}", pointer="/protocolVersion", hint=f"we speak {', '.join(HANDSHAKE)}"
        )
    yield INITIALIZED
    return Greeting(spoken, card)
