"""The form of a relayed request at its upstream: the address, headers, names of models, and translated embeddings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec.structs import replace

from ...asgi.http_exchange import HeaderPairs, HttpExchange
from ...asgi.offload import LARGE
from ...ir.errors import ProtocolError
from ...ir.losses import Losses, require_lossless
from ...ir.pointer import JSON, Object
from ...ir.text import to_bytes
from ...net.http.transport import Reply
from ...net.model.endpoint_settings import escape_model
from ...net.model.replies import read_reply_body
from ...stream.strict import parse_object
from ...wire.embeddings import (
    Embeddings,
    decode_embedding_request,
    decode_embeddings,
    embedding_path,
    encode_embedding_request,
    encode_embeddings,
)
from ..config.settings import LimitsRow
from ..routing.router import Target
from .paths import RelayRoute
from .targets import RelayRequest

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
        query = [(name, other) for name, other in parse_qsl(parts.query) if name.casefold() != parameter]
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
    url = endpoint.at_path(path, of_model=route.relay.model != "none" and not route.entry_id).url(stream=False)
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
        return gemini_path(target.model, ":" + path.rpartition(":")[2])
    if wire == "anthropic":
        return f"/v1{path}"
    if wire == "cohere" and not path.startswith("/v"):
        return f"/v2{path}"
    return quote(path, safe="/:@._~-")


def gemini_path(model: str, verb: str) -> str:
    return f"/v1beta/models/{escape_model(model)}{verb}"


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


class EmbeddingTranslation:
    """A request for embeddings at an upstream of another wire; its answer is translated back. Its losses are in the log, and their number in a header of the answer."""

    def __init__(self, request: RelayRequest, target: Target) -> None:
        """Translate the request. Raise ProtocolError or EncodeError if that is impossible, LossError if no loss is accepted."""
        losses = Losses()
        self._request = request
        self._front = request.route.relay.wires[0]
        self._wire = target.endpoint.wire.name
        self._asked = decode_embedding_request(self._front, request.model or "", request.body.document, losses)
        sent = replace(self._asked, model=target.model)
        self.body = to_bytes(encode_embedding_request(self._wire, sent, losses))
        if request.http_exchange.headers.get("x-toolwire-strict") == "1":
            require_lossless(losses)
        request.log_writer.set_losses(losses)
        self._loss_header = (b"x-toolwire-losses", b"%d" % len(losses))
        path = embedding_path(self._wire, escape_model(target.model))
        self.address = Addressed(
            target.endpoint.at_path(path, of_model=True).url(stream=False), target.endpoint.headers
        )

    async def read_answer(self, reply: Reply, limits: LimitsRow) -> tuple[bytes, HeaderPairs]:
        """Read the answer, and return it for the client with its headers. Raise ProtocolError if it is invalid.

        A large one is translated in a thread: 128 vectors of 3,072 numbers take 170 ms.
        """
        data = await read_reply_body(reply, limits.answer, self._request.memory.add)
        answer, translated = (
            self._translate(data) if len(data) <= LARGE else await asyncio.to_thread(self._translate, data)
        )
        self._request.log_writer.set_relay_usage(answer.usage)
        return translated, [self._loss_header]

    def _translate(self, data: bytes) -> tuple[Embeddings, bytes]:
        answer = decode_embeddings(self._wire, parse_object(data))
        if len(answer.vectors) != len(self._asked.texts):
            message = f"the upstream returned {len(answer.vectors)} embeddings for {len(self._asked.texts)} texts"
            raise ProtocolError(message, status=502)
        return answer, to_bytes(encode_embeddings(self._front, answer, self._asked))
