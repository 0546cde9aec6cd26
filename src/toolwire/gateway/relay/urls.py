"""The address and the headers of a relayed request at its upstream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from ...asgi.http_exchange import HttpExchange
from ...ir.pointer import JSON, Object
from ..routing.router import Target
from .paths import RelayRoute

# Of the client's headers, those that describe the body or choose a feature of the API; all others are about the gateway.
_FORWARDED = ("accept", "anthropic-beta", "anthropic-version", "openai-beta", "idempotency-key", "range")
_OWN_PARAMETERS = ("key", "api-version")  # of the query: the client's key, and the version that the settings choose


class Addressed(NamedTuple):
    """The address and the headers."""

    url: str
    headers: Mapping[str, str]

    def with_model(self, model: str) -> str:
        """Return the address with the model in its query."""
        return self._with_parameter("model", model)

    def following_url(self, last_id: str, parameter: str) -> str:
        """Return the address of the page of a list after an object."""
        return self._with_parameter(parameter, last_id)

    def _with_parameter(self, parameter: str, value: str) -> str:
        parts = urlsplit(self.url)
        query = [(name, other) for name, other in parse_qsl(parts.query) if name != parameter]
        return urlunsplit(parts._replace(query=urlencode([*query, (parameter, value)])))

    def results_url(self, http_exchange: HttpExchange, scheme: str, batch_id: str) -> str:
        """Return the address of a batch's results at this gateway, as the client reaches it."""
        host = http_exchange.headers.get("host", "")
        return f"{scheme}://{host}{http_exchange.root_path}/v1/messages/batches/{quote(batch_id)}/results"


def address_of(route: RelayRoute, target: Target, query: bytes, headers: Mapping[str, str]) -> Addressed:
    """Return the address of a request at its target."""
    endpoint, path = target.endpoint, upstream_path(route, target)
    parameters = [
        (name, value)
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        if name not in _OWN_PARAMETERS
    ]
    url = endpoint.relay_url(path, of_model=bool(route.relay.model != "none" and not route.entry_id))
    if parameters:
        url += ("&" if "?" in url else "?") + urlencode(parameters)
    forwarded = {name: headers[name] for name in _FORWARDED if name in headers}
    merged = endpoint.merge_headers(forwarded)
    if "content-type" in headers:
        merged["content-type"] = headers["content-type"]
    return Addressed(url, merged)


def upstream_path(route: RelayRoute, target: Target) -> str:
    """Return the path below the base URL of the target."""
    wire, path = target.endpoint.wire.name, route.path
    if wire == "gemini" and route.model is not None:
        name = quote(target.model.removeprefix("models/"), safe="@")
        return f"/v1beta/models/{name}:{path.rpartition(':')[2]}"
    if wire == "anthropic":
        return f"/v1{path}"
    if wire == "cohere" and not path.startswith("/v"):
        return f"/v2{path}"
    return quote(path, safe="/:@._~-")


def renamed_document(route: RelayRoute, document: Object, model: str) -> Object | None:
    """Return a body of Gemini whose parts name the model of the path, or None for any other body.

    `requests` repeat the model, so one of them could choose another.
    """
    if route.ingress.wire != "gemini" or route.model is None:
        return None
    name = f"models/{model.removeprefix('models/')}"

    def renamed(part: JSON) -> JSON:
        return {**part, "model": name} if isinstance(part, dict) and "model" in part else part

    requests = document.get("requests")
    body: Object = (
        dict(document) if not isinstance(requests, list) else {**document, "requests": [*map(renamed, requests)]}
    )
    return {**body, "model": name} if "model" in body else body
