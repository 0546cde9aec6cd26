"""The protocol itself, sans-IO: a message in, what is to be done about it out.

    act = peer.receive(read(line))
    Send     this is the answer
    Work     something of the author's has to run first (Server.perform), and gives the answer
    Listen   a subscription: acknowledge it, and send what changes until it is stopped
    Stop     the client no longer wants the answer to that request
    Heard    the client answers a question of ours

A request that says its version in `_meta` is served statelessly, wherever it comes from. Any other belongs to the
conversation that `initialize` has begun. Both may share one line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..ir.errors import ProtocolError
from ..ir.pointer import Object
from ..ir.value import Value
from ..wire.mcp.errors import INVALID_PARAMS, INVALID_REQUEST, RequestId, RpcError, unknown_method, unsupported_version
from ..wire.mcp.greeting import Hello, read_hello
from ..wire.mcp.meta import SERVER_INFO, SUBSCRIPTION_ID, Meta, read_meta
from ..wire.mcp.notices import CANCELLED, LEVELS, read_cancelled
from ..wire.mcp.rpc import Failure, Message, Notification, Request, Result, failure
from ..wire.mcp.versions import LATEST_HANDSHAKE, STATELESS, agreed
from .catalog import Catalog

__all__ = ["Act", "Heard", "Listen", "Peer", "Send", "Stop", "Work", "serve_stateless"]


class Send(Value, frozen=True):
    """`status` is the HTTP status it goes out with."""

    message: Result | Failure
    status: int = 200


class Work(Value, frozen=True):
    request: Request
    meta: Meta
    version: str


class Listen(Value, frozen=True):
    """`wanted` is what will be heard of: the part of the wish that this server can fulfil."""

    request_id: RequestId
    wanted: Object

    def tagged(self, notification: Notification) -> Notification:
        """As the subscriber expects it: with the number of its subscription."""
        meta = {**notification.params.get("_meta", {}), SUBSCRIPTION_ID: self.request_id}
        return Notification(notification.method, {**notification.params, "_meta": meta})

    @property
    def acknowledged(self) -> Notification:
        return self.tagged(Notification("notifications/subscriptions/acknowledged", {"notifications": self.wanted}))

    def ended(self, server: Object) -> Result:
        """The server goes away, and says so."""
        meta = {SERVER_INFO: server, SUBSCRIPTION_ID: self.request_id}
        return Result(self.request_id, {"resultType": "complete", "_meta": meta})


class Stop(Value, frozen=True):
    request_id: RequestId


class Heard(Value, frozen=True):
    message: Result | Failure


Act: TypeAlias = Send | Work | Listen | Stop | Heard | None

_WORKS = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
_LISTS = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list"})


def serve_stateless(catalog: Catalog, request: Request, meta: Meta) -> Act:
    """A request that says everything about itself."""
    version, method = meta.version or "", request.method
    if version not in STATELESS:
        raise unsupported_version(version, STATELESS)
    if method in _WORKS and catalog.has(method):
        return Work(request, meta, version)
    if method in _LISTS and catalog.has(method):
        return Send(Result(request.id, catalog.listed(method, request.params, version)))
    if method == "server/discover":
        return Send(Result(request.id, catalog.card().discovered()))
    if method == "subscriptions/listen":
        return Listen(request.id, _heard_of(request.params, catalog))
    raise unknown_method(method)


_CHANGES = {
    "toolsListChanged": "tools/list",
    "promptsListChanged": "prompts/list",
    "resourcesListChanged": "resources/list",
}


def _heard_of(params: Object, catalog: Catalog) -> Object:
    asked = params.get("notifications")
    if type(asked) is not dict:
        raise RpcError(INVALID_PARAMS, "notifications says what to listen for", pointer="/params/notifications")
    wanted: Object = {key: True for key, method in _CHANGES.items() if asked.get(key) is True and catalog.has(method)}
    uris = asked.get("resourceSubscriptions")
    if type(uris) is list and catalog.has("resources/list"):
        wanted["resourceSubscriptions"] = [uri for uri in uris if type(uri) is str]
    return wanted


class Peer:
    """One conversation. Knows what `initialize` agreed on, and nothing else from one message to the next."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.hello: Hello | None = None
        self.version = LATEST_HANDSHAKE
        self.log_level = "info"
        self.subscribed: set[str] = set()
        self._methods: dict[str, Callable[[Request], Object]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def receive(self, message: Message) -> Act:
        """What is to be done about a message; what is wrong with it is an answer, too."""
        if isinstance(message, Request):
            try:
                return self._asked(message)
            except RpcError as error:
                return Send(failure(error, message.id), error.status)
        if isinstance(message, Notification):
            return _told(message)
        return Heard(message)

    def _asked(self, request: Request) -> Act:
        meta = read_meta(request.params)
        if meta.version is not None:
            return serve_stateless(self._catalog, request, meta)
        method = request.method
        if self.hello is None and method not in ("initialize", "ping"):
            raise RpcError(INVALID_REQUEST, "say initialize first, or say your version in _meta", status=400)
        if method in _WORKS and self._catalog.has(method):
            return Work(request, meta, self.version)
        if method in _LISTS and self._catalog.has(method):
            return Send(Result(request.id, self._catalog.listed(method, request.params, self.version)))
        handler = self._methods.get(method)
        if handler is None or not self._catalog.has(method):
            raise unknown_method(method)
        return Send(Result(request.id, handler(request)))

    def _initialize(self, request: Request) -> Object:
        if self.hello is not None:
            raise RpcError(INVALID_REQUEST, "initialize was said before")
        hello = read_hello(request.params)
        self.hello, self.version = hello, agreed(hello.version)
        return self._catalog.card(handshake=True).initialized(self.version)

    def _set_level(self, request: Request) -> Object:
        level = request.params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"level is one of {', '.join(LEVELS)}", pointer="/params/level")
        self.log_level = level
        return {}

    def _subscribe(self, request: Request) -> Object:
        self.subscribed.add(_uri(request))
        return {}

    def _unsubscribe(self, request: Request) -> Object:
        self.subscribed.discard(_uri(request))
        return {}


def _uri(request: Request) -> str:
    uri = request.params.get("uri")
    if type(uri) is not str:
        raise RpcError(INVALID_PARAMS, "uri is missing", pointer="/params/uri")
    return uri


def _told(notification: Notification) -> Act:
    """Notifications that make no sense are passed over: there is nobody to tell."""
    if notification.method == CANCELLED:
        try:
            return Stop(read_cancelled(notification.params).request_id)
        except ProtocolError:
            return None
    return None
