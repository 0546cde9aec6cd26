"""Send a client's body to an endpoint of its own wire without encoding it again. No I/O."""

from __future__ import annotations

import re

from ..ir.parts import ToolCall
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.text import to_bytes
from ..wire.capability_rows import ModelCapabilities
from ..wire.protocol import Limits
from .endpoint import Endpoint

__all__ = ["accepts_document", "has_valid_ids", "replace_model"]

# at the start of an object, members with plain values, up to the model
_LEADING_MODEL = re.compile(
    rb'\s*+\{(?:\s*+"(?!model")[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[-+.\w]++)\s*+,)*+\s*+"model"\s*+:\s*+("(?:[^"\\]|\\.)*+")'
)


def accepts_document(
    endpoint: Endpoint, wire: str, document: Object, capabilities: ModelCapabilities | None = None
) -> bool:
    """Check that a request on `wire` needs no change for the endpoint, apart from the model and call ids.

    `capabilities` describe the model; by default, those of the endpoint.
    """
    known = endpoint.capabilities if capabilities is None else capabilities
    return (
        endpoint.wire.name == wire
        and endpoint.vendor.dialect is None
        and not any(field in document for field in endpoint.renamed_fields)
        and (known.choice_by_schema is None or document.get("tool_choice") in (None, "auto", "none"))
    )


def has_valid_ids(request: Request, limits: Limits) -> bool:
    """Check that the ids of the calls in the history are within the limits."""
    ids = [part.id for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    return all(len(one) <= limits.id_length and re.fullmatch(limits.id, one) for one in ids)


def replace_model(body: bytes, document: Object, model: str) -> bytes:
    """Replace the model in `body`, whose parsed form is `document`; keep the rest as the client wrote it, byte for byte.

    If the model comes before any nested value, as clients write it, only its name is replaced. Otherwise the document
    is encoded again.
    """
    if document.get("model") == model:
        return body
    if "model" not in document:
        return body  # it is in the path
    match = _LEADING_MODEL.match(body)
    if match is None:
        return to_bytes({**document, "model": model})
    return body[: match.start(1)] + to_bytes(model) + body[match.end(1) :]
