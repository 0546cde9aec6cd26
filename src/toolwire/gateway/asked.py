"""What a client asks: its body read on its own wire."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ..ir.errors import ConfigError, ProtocolError
from ..ir.pointer import Object, join
from ..ir.request import Request
from ..stream.strict import parse_object
from ..wire import get
from ..wire.protocol import Wire
from .fronts import Front, Place

__all__ = ["Asked", "read"]

# fields that other gateways take as the address of an upstream, or as the key for it
_NOT_THE_CLIENTS_TO_SAY = ("api_base", "base_url", "api_key", "extra_headers", "custom_llm_provider")
_LONGEST_NAME = 512  # names are remembered
# what a provider's own clients say about the protocol, for an upstream of the same wire
_SAME_WIRE_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")


class Asked(Struct, frozen=True):
    """A request, as bytes, as a document and as a value."""

    front: Front
    wire: Wire
    body: bytes
    document: Object
    request: Request
    stream: bool
    as_array: bool  # a stream as one JSON array
    strict: bool  # rather an error than a loss
    headers: Mapping[str, str]  # for an upstream of the same wire

    @property
    def model(self) -> str:
        return self.request.model


def read(place: Place, body: bytes, headers: Mapping[str, str], query: Mapping[str, str]) -> Asked:
    """The request in `body`; ProtocolError with a pointer for what its wire does not allow."""
    if headers.get("content-encoding", "identity") != "identity":
        raise ProtocolError("a compressed body", hint="send it as it is", status=415)
    body = body.removeprefix(BOM_UTF8)  # an upstream may not know the mark
    document = parse_object(body)
    for name in _NOT_THE_CLIENTS_TO_SAY:
        if name in document:
            hint = "upstreams and their keys are in the gateway's settings"
            raise ConfigError(f"{name} is not the client's to say", pointer=join(name), hint=hint)
    wire = get(place.front.wire)
    request = wire.decode_request(document)
    model = place.model or request.model
    if not model:
        raise ProtocolError("no model", pointer="/model", hint="`/v1/models` lists what there is")
    if len(model) > _LONGEST_NAME:
        raise ProtocolError(f"the name of a model of more than {_LONGEST_NAME} characters", pointer="/model")
    stream = bool(request.stream) if place.stream is None else place.stream
    return Asked(
        place.front,
        wire,
        body,
        document,
        replace(request, model=model, stream=stream or None),
        stream,
        stream and place.stream is True and query.get("alt") != "sse",
        headers.get("x-toolwire-strict", "") == "1",
        {name: headers[name] for name in _SAME_WIRE_HEADERS if name in headers},
    )
