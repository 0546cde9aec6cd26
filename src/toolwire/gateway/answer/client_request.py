"""A client's request, its body decoded on its own wire."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping

from msgspec.structs import replace

from ...asgi.offload import LARGE
from ...bridge.stored import find_new_thread, find_stored
from ...ir.errors import ConfigError, ProtocolError, StoredStateError, ToolwireError
from ...ir.pointer import Object, join, nearest_existing
from ...ir.request import Request
from ...ir.text import to_bytes
from ...net.endpoint import Endpoint
from ...stream.strict import parse_object
from ...wire import get
from ...wire.protocol import Wire
from ..routes import Route
from ..upstreams import ConfiguredUpstream
from .response_recorder import ResponseRecorder
from .response_turn import ResponseTurn

__all__ = ["CALL_MARKS", "ClientRequest", "read_client_request"]

# fields that other gateways read as the address of an upstream, or as its key
_FORBIDDEN_FIELDS = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider")
_MAX_MODEL_NAME = 512  # names are cached
# protocol headers of a provider's own clients, forwarded to an upstream of the same wire
_SAME_WIRE_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
CALL_MARKS = (b"tool_use", b"tool_calls", b"unction", b"custom_tool_call")
"""Bytes of which one occurs with each call, on every wire and in any spelling."""


def read_client_request(
    route: Route, body: bytes, headers: Mapping[str, str], query: Mapping[str, str], work_size: int
) -> ClientRequest:
    """Parse a request. A large one is decoded, too, because later uses are on the event loop."""
    client_request = ClientRequest(route, body, headers, query)
    client_request.own_work = work_size
    if work_size > LARGE:
        _ = client_request.request_or_none
    return client_request


class ClientRequest:
    """A request as bytes, as a document and, on demand, as a value."""

    __slots__ = (
        "_decoded",
        "_request",
        "as_array",
        "body",
        "document",
        "has_tools",
        "headers",
        "ingress",
        "model",
        "own_work",
        "stream",
        "strict",
        "turn",
        "wire",
    )

    def __init__(self, route: Route, body: bytes, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        self.ingress = route.ingress
        self.own_work = len(body)  # of the work for it, without a stored conversation
        self.wire: Wire = _client_codec(route.ingress.wire, headers)
        self.body = body.removeprefix(BOM_UTF8)  # an upstream may not accept the byte order mark
        self.document = _parse_document(self.body, headers)
        self._request: Request | ToolwireError | None = None  # decoded on demand
        self._decoded: Request | None = None  # before it was rebuilt
        self.turn: ResponseTurn | None = None  # the stored conversation that this request continues
        self.model = _requested_model(route, self.document)
        if route.stream is None:
            stream = self.document.get("stream", self.ingress.streams_by_default)
            if not isinstance(stream, bool | None):
                self.wire.decode_request(self.document)  # raises the error for this field
            self.stream = bool(stream)
        else:
            self.stream = route.stream
        self.has_tools = bool(self.document.get("tools") or self.document.get("functions"))
        self.as_array = route.stream is True and query.get("alt") != "sse"  # a stream as one JSON array
        self.strict = headers.get("x-toolwire-strict", "") == "1"  # a loss is an error
        self.headers = {name: headers[name] for name in _SAME_WIRE_HEADERS if name in headers}

    @property
    def request(self) -> Request:
        """The decoded request; ProtocolError with a pointer if it is invalid on its wire."""
        if self._request is None:
            try:
                request = self.wire.decode_request(self.document)
            except ToolwireError as error:
                self._request = error
            else:
                self._request = replace(request, model=self.model, stream=self.stream or None)
        if isinstance(self._request, ToolwireError):
            raise self._request
        return self._request

    def continue_turn(self, turn: ResponseTurn) -> None:
        """Continue a stored conversation: from now on, `request` has its messages."""
        self.turn = turn
        if turn.last_id:
            self.document = {**self.document, "previous_response_id": turn.last_id}
            self.body = to_bytes(self.document)
            self._request = None
        if turn.is_rebuilt:
            self._decoded = self.request
            self._request = turn.rebuild(self.decoded, None)

    @property
    def decoded(self) -> Request:
        """The request as the client sent it, without the stored conversation that it continues."""
        return self.request if self._decoded is None else self._decoded

    @property
    def is_rebuilt(self) -> bool:
        """True if the request gets its conversation from the store."""
        return self.turn is not None and self.turn.is_rebuilt

    def request_for(self, endpoint: Endpoint) -> Request:
        """Return the request for one endpoint: with the artefacts of stored messages that this server made."""
        if self.turn is None or not self.turn.is_rebuilt:
            return self.request
        return self.turn.rebuild(self.decoded, endpoint.origin)

    @property
    def work_size(self) -> int:
        """The size of the work for it, with its stored conversation: large for many values, and small for text."""
        turn = self.turn
        return self.own_work if turn is None else self.own_work + turn.chain_bytes + turn.found_bytes

    @property
    def wants_store(self) -> bool:
        """True if the answer of OpenAI Responses may be stored, which is the default."""
        return self.document.get("store") is not False

    def records_at(self, upstream: ConfiguredUpstream) -> bool:
        """Check whether the gateway stores the answer of an upstream."""
        return self.turn is not None and self.turn.records_at(upstream)

    def make_recorder(self, upstream: ConfiguredUpstream, model: str) -> ResponseRecorder | None:
        """Return the recorder for the answer of an upstream; None if the gateway does not store it."""
        turn = self.turn
        return None if turn is None or not turn.records_at(upstream) else turn.make_recorder(model)

    @property
    def request_or_none(self) -> Request | None:
        """The decoded request, or None if it cannot be decoded: a request that is only passed through need not be."""
        try:
            return self.request
        except ToolwireError:
            return None

    def find_stored_state_error(self, target: str) -> StoredStateError | None:
        """Return the error for a reference that `target` cannot carry, with a pointer into the client's document."""
        request = self.request_or_none
        error = None if request is None else find_stored(request, target) or find_new_thread(request, target)
        if request is not None and error is not None:
            error.pointer = nearest_existing(self.document, self.wire.locator(request)(error.pointer))
        return error

    def may_have_calls(self) -> bool:
        """Check whether the history may contain calls; a search in the bytes is cheaper than decoding."""
        if self.is_rebuilt:
            return True
        return any(mark in self.body for mark in CALL_MARKS)


def _client_codec(name: str, headers: Mapping[str, str]) -> Wire:
    """Return the codec for the API version that the client names; the newest one if it is unknown."""
    codec = get(name)
    version = headers.get("anthropic-version", "") if codec.version else ""
    return get(f"{name}@{version}") if version in getattr(codec, "versions", {}) else codec


def _parse_document(body: bytes, headers: Mapping[str, str]) -> Object:
    """Parse the body. Refuse a compressed one, and fields that name an upstream's address or key."""
    if headers.get("content-encoding", "identity") != "identity":
        raise ProtocolError("compressed bodies are not supported", hint="send the body uncompressed", status=415)
    document = parse_object(body)
    for name in _FORBIDDEN_FIELDS:
        if name in document:
            hint = "configure upstreams and their keys in the gateway's settings"
            raise ConfigError(f"{name} must not be set by a client", pointer=join(name), hint=hint)
    return document


def _requested_model(route: Route, document: Object) -> str:
    """Return the model named in the path or else in the body; ProtocolError if it is missing or too long."""
    model = route.model or document.get("model")
    if not isinstance(model, str) or not model:
        raise ProtocolError("the request names no model", pointer=route.model_pointer, hint=route.models_hint)
    if len(model) > _MAX_MODEL_NAME:
        message = f"the model name has more than {_MAX_MODEL_NAME} characters"
        raise ProtocolError(message, pointer=route.model_pointer)
    return model
