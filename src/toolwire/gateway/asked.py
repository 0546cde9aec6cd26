"""What a client asks: its body read on its own wire."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping

from msgspec.structs import replace

from ..bridge.stored import find_stored
from ..ir.errors import ConfigError, ProtocolError, StoredStateError, ToolwireError
from ..ir.pointer import Object, existing, join
from ..ir.request import Request
from ..stream.strict import parse_object
from ..wire import get
from ..wire.protocol import Wire
from .fronts import Place

__all__ = ["Asked"]

# fields that other gateways take as the address of an upstream, or as the key for it
_NOT_THE_CLIENTS_TO_SAY = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider")
_LONGEST_NAME = 512  # names are remembered
# what a provider's own clients say about the protocol, for an upstream of the same wire
_SAME_WIRE_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
_CALL_MARKS = (b"tool_use", b"tool_calls", b"unction", b"custom_tool_call")  # of every wire, in any spelling


class Asked:
    """A request, as bytes, as a document and, where somebody looks, as a value."""

    __slots__ = (
        "_request",
        "as_array",
        "body",
        "document",
        "front",
        "has_tools",
        "headers",
        "model",
        "stream",
        "strict",
        "wire",
    )

    def __init__(self, place: Place, body: bytes, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        self.front = place.front
        self.wire: Wire = get(place.front.wire)
        self.body = body.removeprefix(BOM_UTF8)  # an upstream may not know the mark
        self.document = _document(self.body, headers)
        self._request: Request | None = None
        self.model = _model(place, self.document)
        if place.stream is None:
            stream = self.document.get("stream", self.front.streams_unless_told)
            if not isinstance(stream, bool | None):
                self.wire.decode_request(self.document)  # says what is wrong with it
            self.stream = bool(stream)
        else:
            self.stream = place.stream
        self.has_tools = bool(self.document.get("tools") or self.document.get("functions"))
        self.as_array = place.stream is True and query.get("alt") != "sse"  # a stream as one JSON array
        self.strict = headers.get("x-toolwire-strict", "") == "1"  # rather an error than a loss
        self.headers = {name: headers[name] for name in _SAME_WIRE_HEADERS if name in headers}

    @property
    def request(self) -> Request:
        """ProtocolError with a pointer where it is none of its wire."""
        if self._request is None:
            request = self.wire.decode_request(self.document)
            self._request = replace(request, model=self.model, stream=self.stream or None)
        return self._request

    @property
    def readable(self) -> Request | None:
        """The same, where it can be read: what only passes need not be."""
        try:
            return self.request
        except ToolwireError:
            return None

    def stored_state(self, target: str) -> StoredStateError | None:
        """The error for a reference that the wire `target` cannot carry, with a pointer into the client's document."""
        request = self.readable
        error = None if request is None else find_stored(request, target)
        if request is not None and error is not None:
            error.pointer = existing(self.document, self.wire.locator(request)(error.pointer))
        return error

    def may_have_calls(self) -> bool:
        """Whether the history can have calls in it: cheaper to see than to read."""
        return any(mark in self.body for mark in _CALL_MARKS)


def _document(body: bytes, headers: Mapping[str, str]) -> Object:
    if headers.get("content-encoding", "identity") != "identity":
        raise ProtocolError("a compressed body", hint="send it as it is", status=415)
    document = parse_object(body)
    for name in _NOT_THE_CLIENTS_TO_SAY:
        if name in document:
            hint = "upstreams and their keys are in the gateway's settings"
            raise ConfigError(f"{name} is not the client's to say", pointer=join(name), hint=hint)
    return document


def _model(place: Place, document: Object) -> str:
    model = place.model or document.get("model")
    if not isinstance(model, str) or not model:
        raise ProtocolError("no model", pointer=place.model_at, hint=place.where_models_are)
    if len(model) > _LONGEST_NAME:
        words = f"the name of a model of more than {_LONGEST_NAME} characters"
        raise ProtocolError(words, pointer=place.model_at)
    return model
