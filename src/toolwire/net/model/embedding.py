"""Requests for embeddings in the form of an endpoint, and their answers. No I/O."""

from __future__ import annotations

from ...ir.errors import ConfigError, ProtocolError
from ...ir.losses import Losses
from ...ir.request import Request
from ...ir.text import to_bytes
from ...stream.strict import parse_object
from ...wire.embeddings import (
    EMBEDDING_WIRES,
    EmbeddingRequest,
    Embeddings,
    decode_embeddings,
    embedding_path,
    encode_embedding_request,
)
from .endpoint import Endpoint
from .endpoint_request import EndpointRequest
from .endpoint_settings import escape_model


def make_embedding_request(endpoint: Endpoint, request: EmbeddingRequest, losses: Losses) -> EndpointRequest:
    """Return the request in the form of its endpoint. Raise ConfigError if it cannot be sent."""
    wire = endpoint.wire.name
    if wire not in EMBEDDING_WIRES:
        raise ConfigError(f"{wire} has no embeddings", hint=f"use a model of {', '.join(EMBEDDING_WIRES)}")
    if not request.texts:
        raise ConfigError("there are no texts to embed", hint="pass at least one")
    return EndpointRequest(
        Request(model=endpoint.model),
        endpoint.at_path(embedding_path(wire, escape_model(endpoint.model)), of_model=True),
        stream=False,
        text=None,
        losses=losses,
        same_wire_body=to_bytes(encode_embedding_request(wire, request, losses)),
    )


def read_embeddings(endpoint: Endpoint, request: EmbeddingRequest, data: bytes) -> Embeddings:
    """Decode an answer. Raise ProtocolError if it is invalid, or has another number of vectors than the request has texts."""
    answer = decode_embeddings(endpoint.wire.name, parse_object(data))
    if len(answer.vectors) != len(request.texts):
        message = f"the server returned {len(answer.vectors)} embeddings for {len(request.texts)} texts"
        raise ProtocolError(message, status=502)
    return answer
