"""A client's request, its body decoded on its own wire."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping

from msgspec.structs import replace

from ...bridge.stored import find_stored
from ...ir.errors import ConfigError, ProtocolError, StoredStateError, ToolwireError
from ...ir.pointer import Object, join, nearest_existing
from ...ir.request import Request
from ...stream.strict import parse_object
from ...wire import get
from ...wire.protocol import Wire
from ..routes import Route

__all__ = ["ClientRequest"]

# fields that other gateways read as the address of an upstream, or as its key
_FORBIDDEN_FIELDS = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider")
_MAX_MODEL_NAME = 512  # names are cached
# protocol headers of a provider's own clients, forwarded to an upstream of the same wire
_SAME_WIRE_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
_CALL_MARKS = (b"tool_use", b"tool_calls", b"unction", b"custom_tool_call")  # of every wire, in any spelling


class ClientRequest:
    """A request as bytes, as a document and, on demand, as a value."""

    __slots__ = (
        "_request",
        "as_array",
        "body",
        "document",
        "has_tools",
        "headers",
        "ingress",
        "model",
        "stream",
        "strict",
        "wire",
    )

    def __init__(self, route: Route, body: bytes, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        self.ingress = route.ingress
        self.wire: Wire = _client_codec(route.ingress.wire, headers)
        self.body = body.removeprefix(BOM_UTF8)  # an upstream may not accept the byte order mark
        self.document = _parse_document(self.body, headers)
        self._request: Request | None = None  # decoded on demand
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
            request = self.wire.decode_request(self.document)
            self._request = replace(request, model=self.model, stream=self.stream or None)
        return self._request

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
        error = None if request is None else find_stored(request, target)
        if request is not None and error is not None:
            error.pointer = nearest_existing(self.document, self.wire.locator(request)(error.pointer))
        return error

    def may_have_calls(self) -> bool:
        """Check whether the history may contain calls; a search in the bytes is cheaper than decoding."""
        return any(mark in self.body for mark in _CALL_MARKS)


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
