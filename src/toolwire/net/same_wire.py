"""Send a client's body to an endpoint of its own wire without encoding it again. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..ir.parts import ToolCall
from ..ir.pointer import JSON, Object
from ..ir.request import Request
from ..ir.text import to_bytes
from ..wire.models.capabilities import ModelCapabilities
from ..wire.protocol import Limits
from .endpoint import Endpoint

__all__ = [
    "accepts_request",
    "find_leading_model",
    "has_valid_ids",
    "max_same_wire_tools",
    "replace_leading_model",
    "replace_model",
]

# at the start of an object, members with plain values, up to the model
_LEADING_MODEL = re.compile(
    rb'\s*+\{(?:\s*+"(?!model")[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[-+.\w]++)\s*+,)*+\s*+"model"\s*+:\s*+("(?:[^"\\]|\\.)*+")'
)


def accepts_request(
    endpoint: Endpoint,
    wire: str,
    has_field: Callable[[str], bool],
    find_choice: Callable[[], JSON],
    has_more_tools: Callable[[int], bool],
    capabilities: ModelCapabilities | None = None,
) -> bool:
    """Check that a request on `wire` needs no change for the endpoint, apart from the model and call ids.

    `has_field` checks for a field of the request, `find_choice` returns its `tool_choice`, and `has_more_tools` compares
    its number of tools with the wire's limit. `capabilities` describe the model; by default, those of the endpoint.
    """
    known = endpoint.capabilities if capabilities is None else capabilities
    max_tools = max_same_wire_tools(endpoint, known)
    return (
        endpoint.wire.name == wire
        and endpoint.vendor.dialect is None
        and not any(map(has_field, endpoint.renamed_fields))
        and (known.choice_by_schema is None or find_choice() in (None, "auto", "none"))
        and (max_tools is None or not has_more_tools(max_tools))
    )


def max_same_wire_tools(endpoint: Endpoint, capabilities: ModelCapabilities) -> int | None:
    """Return the maximum number of tools in a request on the endpoint's own wire, or None if no source states one.

    Many servers of Chat accept more tools than OpenAI, and a router's limit depends on the model. A request with too
    many is refused by such a server, not reduced here.
    """
    if capabilities.tools is not None:
        return capabilities.tools
    is_stated = endpoint.wire.name in endpoint.vendor.stated_tool_limits
    return endpoint.wire.limits.tools if is_stated else None


def has_valid_ids(request: Request, limits: Limits) -> bool:
    """Check that the ids of the calls in the history are within the limits."""
    ids = [part.id for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    return all(len(one) <= limits.id_length and re.fullmatch(limits.id, one) for one in ids)


def replace_model(body: bytes, document: Object, model: str) -> bytes:
    """Replace the model in `body`, whose parsed form is `document`; keep the rest as the client wrote it, byte for byte.

    If the model comes after a nested value, which is unusual, the document is encoded again.
    """
    if document.get("model") == model:
        return body
    if "model" not in document:
        return body  # it is in the path
    replaced = replace_leading_model(body, model)
    return to_bytes({**document, "model": model}) if replaced is None else replaced


def replace_leading_model(body: bytes, model: str) -> bytes | None:
    """Replace the model if it comes before any nested value, as clients write it; otherwise return None."""
    match = _LEADING_MODEL.match(body)
    return None if match is None else b"%b%b%b" % (body[: match.start(1)], to_bytes(model), body[match.end(1) :])


def find_leading_model(body: bytes) -> tuple[int, int] | None:
    """Return the start and the end of the model's encoded name if it comes before any nested value, otherwise None."""
    match = _LEADING_MODEL.match(body)
    return None if match is None else match.span(1)
