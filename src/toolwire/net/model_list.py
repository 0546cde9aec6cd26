"""Ask a server for the names of its models. It also shows that the server is reachable and accepts the key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ..ir.errors import ConfigError, ProtocolError
from ..ir.response import Fault, FaultKind, UpstreamError
from ..stream.strict import parse
from .endpoint import Endpoint, endpoint_of
from .http_client import HttpTransport
from .key_command import KeyCommandError

if TYPE_CHECKING:
    from ..wire.models.vendors import Vendor

__all__ = ["ProbedTransport", "has_model_list", "is_answering", "list_models", "list_vendor_models"]

_MAX_BODY = 8 * 1024 * 1024  # bytes
_MAX_MODELS = 10_000
_ANY_MODEL = "model"  # the list does not depend on the model, but an endpoint has one


class _ModelListing(NamedTuple):
    """The list of models of a wire: the end of the path of a request, the path of the list, and its fields."""

    request: re.Pattern[str]
    path: str
    items: str
    name: str


_OPENAI = _ModelListing(re.compile(r"/(?:chat/completions|responses)\Z"), "/models", "data", "id")
_LISTINGS: Mapping[str, _ModelListing] = {
    "openai_chat": _OPENAI,
    "openai_responses": _OPENAI,
    "anthropic": _ModelListing(re.compile(r"/messages\Z"), "/models?limit=1000", "data", "id"),
    "gemini": _ModelListing(re.compile(r"/models/[^/]+\Z"), "/models?pageSize=1000", "models", "name"),
    "ollama": _ModelListing(re.compile(r"/api/chat\Z"), "/api/tags", "models", "name"),
}


async def list_vendor_models(
    vendor: Vendor, environment: Mapping[str, str], *, base_url: str | None = None, seconds: float = 10.0
) -> tuple[str, ...]:
    """Return the models that a vendor lists. ConfigError if its key is missing or it has no list."""
    return await list_models(endpoint_of(vendor, _ANY_MODEL, environment, base_url=base_url), environment, seconds)


async def list_models(endpoint: Endpoint, environment: Mapping[str, str], seconds: float = 10.0) -> tuple[str, ...]:
    """Return the names of the models of a server, sorted. UpstreamError if it cannot be reached or refuses."""
    url, listing = _listing_of(endpoint)
    secrets = await endpoint.authorise()
    transport = HttpTransport(environment=environment)
    async with aclosing(transport):
        try:
            async with transport.send("GET", url, endpoint.headers, secrets, b"", seconds) as reply:
                received = bytearray()
                while len(received) <= _MAX_BODY and (piece := await reply.read()):
                    received += piece
                status = reply.status
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {seconds:g} seconds"
            raise _failure("overloaded", f"cannot reach {endpoint.origin}: {reason}", 503) from error
    if status in (401, 403):
        raise _failure("authentication", f"{endpoint.origin} rejected the key (status {status})", status)
    if status != 200:
        raise _failure("server", f"{endpoint.origin} returned status {status} for its list of models", status)
    return _read_names(bytes(received), listing, endpoint.origin)


@runtime_checkable
class ProbedTransport(Protocol):
    """A transport to a server that can be probed."""

    def for_probes(self) -> HttpTransport | None:
        """Return a client with connections of its own, because all connections of the transport may be in use."""
        ...


def has_model_list(endpoint: Endpoint) -> bool:
    """Return whether the server has a list of models that toolwire can read."""
    try:
        _listing_of(endpoint)
    except ConfigError:
        return False
    return True


async def is_answering(endpoint: Endpoint, transport: HttpTransport, seconds: float) -> bool:
    """Ask for the list of models. Return whether the server answers within `seconds`, with any status.

    Without a key, nothing is asked, and nothing is known against the server.
    """
    url, _ = _listing_of(endpoint)
    try:
        secrets = await endpoint.authorise()
    except KeyCommandError:
        return True
    try:
        async with transport.send("GET", url, endpoint.headers, secrets, b"", seconds):
            return True
    except OSError:  # a TimeoutError is one
        return False


def _failure(kind: FaultKind, message: str, status: int = 502) -> UpstreamError:
    return UpstreamError(Fault(kind, message, status))


def _listing_of(endpoint: Endpoint) -> tuple[str, _ModelListing]:
    """Return the URL of the list, beside the URL of requests."""
    listing = _LISTINGS.get(endpoint.wire.name)
    path, _, _ = endpoint.url(stream=False).partition("?")
    if listing is None or not listing.request.search(path):
        raise ConfigError(f"{endpoint.vendor.name} has no list of models that toolwire can read")
    return listing.request.sub(listing.path, path), listing


def _read_names(data: bytes, listing: _ModelListing, origin: str) -> tuple[str, ...]:
    try:
        document: Any = parse(data)
    except ProtocolError as error:
        raise _failure("server", f"the list of models of {origin} is not JSON: {error.message}") from None
    items = document.get(listing.items) if type(document) is dict else None
    if type(items) is not list:
        raise _failure("server", f"the list of models of {origin} has no array {listing.items!r}")
    names = (item.get(listing.name) for item in items[:_MAX_MODELS] if type(item) is dict)
    return tuple(sorted({name.removeprefix("models/") for name in names if type(name) is str}))
