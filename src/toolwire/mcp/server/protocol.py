"""The protocol, sans-IO: a message in, the action to perform out.

    act = peer.receive(read(line))
    SendMessage        send this answer
    ServeRequest       run a function of the author (Server.perform), which returns the answer
    OpenSubscription   acknowledge the subscription, and send changes until it is stopped
    CancelRequest      the client cancelled that request
    ResolveReply       the client answered a request of the server

A request that states its version in `_meta` is served statelessly, on every transport. Any other request belongs to the
conversation that `initialize` started. Both kinds may share one connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...ir.errors import ProtocolError
from ...ir.pointer import Object
from ...ir.value import Value
from ...wire.mcp.versions import LATEST_HANDSHAKE, STATELESS, negotiate_version
from ..protocol.discovery import InitializeParams, read_initialize
from ..protocol.meta import SERVER_INFO, SUBSCRIPTION_ID, Meta, read_meta
from ..protocol.notifications import CANCELLED, LEVELS, read_cancelled
from ..protocol.rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    Failure,
    Notification,
    RequestId,
    Result,
    RpcError,
    RpcMessage,
    RpcRequest,
    failure_from,
    unknown_method,
    unsupported_version,
)
from .catalog import Catalog


class SendMessage(Value, frozen=True):
    """Send an answer. `status` is its HTTP status."""

    message: Result | Failure
    status: int = 200


class ServeRequest(Value, frozen=True):
    """Serve a request by a function of the author. `version` is the protocol version of the answer."""

    request: RpcRequest
    meta: Meta
    version: str


class OpenSubscription(Value, frozen=True):
    """Start a subscription. `notifications` is the supported part of the requested notifications."""

    request_id: RequestId
    notifications: Object

    def tag(self, notification: Notification) -> Notification:
        """Return the notification with the id of the subscription."""
        meta = {**notification.params.get("_meta", {}), SUBSCRIPTION_ID: self.request_id}
        return Notification(notification.method, {**notification.params, "_meta": meta})

    @property
    def acknowledgement(self) -> Notification:
        return self.tag(Notification("notifications/subscriptions/acknowledged", {"notifications": self.notifications}))

    def end_result(self, server: Object) -> Result:
        """Return the result that ends the subscription when the server shuts down."""
        meta = {SERVER_INFO: server, SUBSCRIPTION_ID: self.request_id}
        return Result(self.request_id, {"resultType": "complete", "_meta": meta})


class CancelRequest(Value, frozen=True):
    """Cancel the request with this id. It gets no answer."""

    request_id: RequestId


class ResolveReply(Value, frozen=True):
    """Pass an answer of the client to the question of the server that waits for it."""

    message: Result | Failure


PeerAction: TypeAlias = SendMessage | ServeRequest | OpenSubscription | CancelRequest | ResolveReply | None

_SERVED_METHODS = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
_LISTS = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list"})


def serve_stateless(catalog: Catalog, request: RpcRequest, meta: Meta) -> PeerAction:
    """Return the action for a request that carries its own version and capabilities.

    RpcError if it is not supported.
    """
    version, method = meta.version or "", request.method
    if version not in STATELESS:
        raise unsupported_version(version, STATELESS)
    if method in _SERVED_METHODS and catalog.has_method(method):
        return ServeRequest(request, meta, version)
    if method in _LISTS and catalog.has_method(method):
        return SendMessage(Result(request.id, catalog.list_result(method, request.params, version)))
    if method == "server/discover":
        return SendMessage(Result(request.id, catalog.card().discovered()))
    if method == "subscriptions/listen":
        return OpenSubscription(request.id, _supported_notifications(request.params, catalog))
    raise unknown_method(method)


_LIST_METHODS = {
    "toolsListChanged": "tools/list",
    "promptsListChanged": "prompts/list",
    "resourcesListChanged": "resources/list",
}


def _supported_notifications(params: Object, catalog: Catalog) -> Object:
    """Return the requested notifications that this server can send, which it acknowledges to the client.

    RpcError if the request has none.
    """
    requested = params.get("notifications")
    if type(requested) is not dict:
        raise RpcError(INVALID_PARAMS, "notifications must be an object", pointer="/params/notifications")
    wanted: Object = {
        key: True for key, method in _LIST_METHODS.items() if requested.get(key) is True and catalog.has_method(method)
    }
    uris = requested.get("resourceSubscriptions")
    if type(uris) is list and catalog.has_method("resources/list"):
        wanted["resourceSubscriptions"] = [uri for uri in uris if type(uri) is str]
    return wanted


class ServerProtocol:
    """One conversation. The only state between messages is the outcome of `initialize`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.initialize_params: InitializeParams | None = None
        self.version = LATEST_HANDSHAKE
        self.log_level = "info"
        self.subscribed_uris: set[str] = set()
        self._methods: dict[str, Callable[[RpcRequest], Object]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def receive(self, message: RpcMessage) -> PeerAction:
        """Return the action for a message. An invalid request results in an error answer."""
        if isinstance(message, RpcRequest):
            try:
                return self._handle_request(message)
            except RpcError as error:
                return SendMessage(failure_from(error, message.id), error.status)
        if isinstance(message, Notification):
            return _handle_notification(message)
        return ResolveReply(message)

    def _handle_request(self, request: RpcRequest) -> PeerAction:
        """Return the action for a request: stateless if it states its version, otherwise part of this conversation.

        RpcError before `initialize`, and for a method that is not supported.
        """
        meta = read_meta(request.params)
        if meta.version is not None:
            return serve_stateless(self._catalog, request, meta)
        method = request.method
        if self.initialize_params is None and method not in ("initialize", "ping"):
            raise RpcError(INVALID_REQUEST, "send initialize first, or state the version in _meta", status=400)
        if method in _SERVED_METHODS and self._catalog.has_method(method):
            return ServeRequest(request, meta, self.version)
        if method in _LISTS and self._catalog.has_method(method):
            return SendMessage(Result(request.id, self._catalog.list_result(method, request.params, self.version)))
        handler = self._methods.get(method)
        if handler is None or not self._catalog.has_method(method):
            raise unknown_method(method)
        return SendMessage(Result(request.id, handler(request)))

    def _initialize(self, request: RpcRequest) -> Object:
        if self.initialize_params is not None:
            raise RpcError(INVALID_REQUEST, "initialize was already sent")
        initialize = read_initialize(request.params)
        self.initialize_params, self.version = initialize, negotiate_version(initialize.version)
        return self._catalog.card(handshake=True).initialize_result(self.version)

    def _set_level(self, request: RpcRequest) -> Object:
        level = request.params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"level must be one of {', '.join(LEVELS)}", pointer="/params/level")
        self.log_level = level
        return {}

    def _subscribe(self, request: RpcRequest) -> Object:
        self.subscribed_uris.add(_require_uri(request))
        return {}

    def _unsubscribe(self, request: RpcRequest) -> Object:
        self.subscribed_uris.discard(_require_uri(request))
        return {}


def _require_uri(request: RpcRequest) -> str:
    """Return the field `uri`. Raise RpcError if it is missing or no text."""
    uri = request.params.get("uri")
    if type(uri) is not str:
        raise RpcError(INVALID_PARAMS, "uri is missing", pointer="/params/uri")
    return uri


def _handle_notification(notification: Notification) -> PeerAction:
    """Return the action for a notification. Ignore malformed ones, because a notification has no answer."""
    if notification.method == CANCELLED:
        try:
            return CancelRequest(read_cancelled(notification.params).request_id)
        except ProtocolError:
            return None
    return None
