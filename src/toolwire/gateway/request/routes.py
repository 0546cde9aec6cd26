"""The paths that clients use, with their meaning, as data; and the lookup."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import lru_cache
from secrets import token_hex
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...asgi.access import RequestRefused
from ...asgi.http_exchange import HeaderPairs, HttpExchange, header_pairs
from ...asgi.request import Scope
from ...ir.response import Fault, fault_from
from ...ir.text import to_bytes
from ...wire import get
from ...wire.protocol import EncodedFault, Wire
from ...wire.streaming.encoder import StreamFraming, framing_of
from ..faults import Overloaded

StateAction: TypeAlias = Literal[
    "get_response",
    "delete_response",
    "cancel_response",
    "list_input",
    "create_conversation",
    "get_conversation",
    "update_conversation",
    "delete_conversation",
    "list_items",
    "create_items",
    "compact",
    "get_item",
    "delete_item",
    "stored_interaction",
]
SocketAction: TypeAlias = Literal["connect", "prepare"]
"""A WebSocket's handshake, and a response of it without output; no path has these actions."""
RouteAction: TypeAlias = (
    Literal[
        "generate", "count", "models", "model", "processes", "alive", "ready", "metrics", "version", "openapi", "relay"
    ]
    | StateAction
    | SocketAction
)

WRAPPER = "toolwire.wrapper"
"""The name in a WebSocket's scope of a function that wraps the handler of its requests, as middleware wraps requests over HTTP."""
VERSION = "0.31.0"
"""The version that we report to clients of Ollama: the version of the protocol that we implement."""


class Ingress(Struct, frozen=True):
    """A protocol as the gateway serves it: one row, with everything that differs between protocols."""

    wire: str
    path: str  # of requests for an answer
    ping: bytes = b": ping\n\n"  # a keep-alive that its clients skip
    streams_by_default: bool = False
    models: str = "/v1/models"  # the path that lists the models
    stores_responses: bool = False  # clients may refer to stored answers, and an answer repeats its request
    count_field: str = "input_tokens"  # of the answer to a token count
    count_fields: tuple[tuple[str, str], ...] = ()  # further ones of it; a dict is no key of `encode_overload`'s cache
    tool_depth: int = 3  # of a declaration in a request, which has depth 1
    has_versions: bool = False  # a header names the version of the protocol
    id_prefix: str = ""  # of the ids of its answers
    is_invoke: bool = False  # Bedrock's InvokeModel: the wire's requests and answers, in the framing of another wire

    @property
    def framing(self) -> StreamFraming:
        """The framing of streams, also of InvokeModel."""
        return framing_of(self.envelope)

    @property
    def envelope(self) -> str:
        """The wire whose framing of streams and whose errors the clients read."""
        return "bedrock" if self.is_invoke else self.wire

    def encode_error(self, fault: Fault) -> EncodedFault:
        return get(self.envelope).encode_error(fault)

    @property
    def codec(self) -> Wire:
        """The newest version of the codec."""
        return get(self.wire)

    def answer_id(self, upstream_id: str) -> str:
        """Return the id of a translated answer: the upstream's id, with the prefix of this protocol instead of another.

        An answer without an id gets a new one, because clients use it as a key, and the ids of items contain it.
        """
        prefix = self.id_prefix
        if prefix and upstream_id.startswith(prefix):
            return upstream_id
        other_prefix = _ID_PREFIXES(upstream_id)
        if other_prefix is not None:
            upstream_id = upstream_id[other_prefix.end() :]
        return prefix + (upstream_id or token_hex(12)) if prefix else upstream_id

    def codec_for(self, headers: Mapping[str, str]) -> Wire:
        """Return the codec for the version that a client names, or the newest codec if it is unknown."""
        codec = get(self.wire)
        if self.is_invoke:
            return get(_INVOKE_WIRE)
        if not self.has_versions:
            return codec
        version = headers.get("anthropic-version", "")
        return get(f"{self.wire}@{version}") if version in getattr(codec, "versions", {}) else codec


_ID_PREFIXES = re.compile("(?:chatcmpl-|resp_|msg_|v1_)+").match
INGRESSES = {
    "openai_chat": Ingress("openai_chat", "/v1/chat/completions", id_prefix="chatcmpl-"),
    "openai_responses": Ingress(
        "openai_responses",
        "/v1/responses",
        stores_responses=True,
        count_fields=(("object", "response.input_tokens"),),
        id_prefix="resp_",
    ),
    "anthropic": Ingress(
        "anthropic",
        "/v1/messages",
        ping=b'event: ping\ndata: {"type":"ping"}\n\n',
        has_versions=True,
        id_prefix="msg_",
    ),
    "gemini": Ingress(
        "gemini",
        "/v1beta/models/{model}:generateContent",
        models="/v1beta/models",
        count_field="totalTokens",
        tool_depth=5,
    ),
    "cohere": Ingress("cohere", "/v2/chat"),
    "gemini_interactions": Ingress(
        "gemini_interactions", "/v1beta/interactions", models="/v1beta/models", id_prefix="v1_"
    ),
    # an event of this wire has content, and SDKs raise for an unknown one, so there is no keep-alive
    "bedrock": Ingress("bedrock", "/model/{model}/converse", b"", count_field="inputTokens", tool_depth=4),
    # its clients parse every line as an object, so no keep-alive would be skipped
    "ollama": Ingress("ollama", "/api/chat", b"", streams_by_default=True, models="/api/tags"),
}

_INVOKE_WIRE = "anthropic@2023-06-01"  # of `anthropic_version: bedrock-2023-05-31`
_INVOKE = Ingress("anthropic", "/model/{model}/invoke", b"", id_prefix="msg_", is_invoke=True)
ROUTED = {**INGRESSES, "bedrock_invoke": _INVOKE}
"""The protocols by their names in `ROUTE_TABLE`: a wire, or a surface of one with its own envelope."""

PATHS = ", ".join(f"POST {ingress.path}" for ingress in INGRESSES.values()) + ", GET /v1/models"
"""The paths that an error lists for a client that uses an unknown path."""


class Route(Struct, frozen=True):
    """The meaning of a path. `model` and `stream` are None if the body contains them."""

    action: RouteAction
    ingress: Ingress
    model: str | None = None
    stream: bool | None = None
    entry_id: str = ""  # of a stored response or conversation; of a new response, if it is given
    item_id: str = ""  # of an item of a conversation
    path_model: str = ""  # a model in the path of an API whose body names it; see `request.transformed`

    @property
    def model_pointer(self) -> str:
        """A pointer to the model's name; empty if it is in the path."""
        return "" if self.model is not None else "/model"


AnswerRequest: TypeAlias = Callable[[HttpExchange, Scope, Route | None], Awaitable[None]]
"""The gateway's handler of a request."""
ROUTE_TABLE: tuple[tuple[str, str, RouteAction, str], ...] = (
    ("POST", r"(?:/v1)?/chat/completions", "generate", "openai_chat"),
    ("POST", r"(?:/v1)?/responses", "generate", "openai_responses"),
    ("POST", r"(?:/v1)?/responses/input_tokens", "count", "openai_responses"),
    ("POST", r"(?:/v1)?/responses/compact", "compact", "openai_responses"),
    ("GET", r"(?:/v1)?/responses/(?P<id>(?!compact$|input_tokens$)[^/]+)", "get_response", "openai_responses"),
    ("DELETE", r"(?:/v1)?/responses/(?P<id>(?!compact$|input_tokens$)[^/]+)", "delete_response", "openai_responses"),
    ("POST", r"(?:/v1)?/responses/(?P<id>[^/]+)/cancel", "cancel_response", "openai_responses"),
    ("GET", r"(?:/v1)?/responses/(?P<id>[^/]+)/input_items", "list_input", "openai_responses"),
    ("POST", r"(?:/v1)?/conversations", "create_conversation", "openai_responses"),
    ("GET", r"(?:/v1)?/conversations/(?P<id>[^/]+)", "get_conversation", "openai_responses"),
    ("POST", r"(?:/v1)?/conversations/(?P<id>[^/]+)", "update_conversation", "openai_responses"),
    ("DELETE", r"(?:/v1)?/conversations/(?P<id>[^/]+)", "delete_conversation", "openai_responses"),
    ("GET", r"(?:/v1)?/conversations/(?P<id>[^/]+)/items", "list_items", "openai_responses"),
    ("POST", r"(?:/v1)?/conversations/(?P<id>[^/]+)/items", "create_items", "openai_responses"),
    ("GET", r"(?:/v1)?/conversations/(?P<id>[^/]+)/items/(?P<item>[^/]+)", "get_item", "openai_responses"),
    ("DELETE", r"(?:/v1)?/conversations/(?P<id>[^/]+)/items/(?P<item>[^/]+)", "delete_item", "openai_responses"),
    ("POST", r"(?:/v1)?/messages", "generate", "anthropic"),
    ("POST", r"(?:/v1)?/messages/count_tokens", "count", "anthropic"),
    (
        "POST",
        r"/v1(?:beta|alpha)?/models/(?P<model>.+):(?P<verb>generateContent|streamGenerateContent)",
        "generate",
        "gemini",
    ),
    ("POST", r"/v1(?:beta|alpha)?/models/(?P<model>.+):countTokens", "count", "gemini"),
    ("POST", r"/v2/chat", "generate", "cohere"),
    ("POST", r"/v1(?:beta|alpha)?/interactions", "generate", "gemini_interactions"),
    ("GET", r"/v1(?:beta|alpha)?/interactions/(?P<id>[^/]+)", "stored_interaction", "gemini_interactions"),
    ("DELETE", r"/v1(?:beta|alpha)?/interactions/(?P<id>[^/]+)", "stored_interaction", "gemini_interactions"),
    ("POST", r"/v1(?:beta|alpha)?/interactions/(?P<id>[^/]+)/cancel", "stored_interaction", "gemini_interactions"),
    ("POST", r"/model/(?P<model>.+)/(?P<verb>converse|converse-stream)", "generate", "bedrock"),
    ("POST", r"/model/(?P<model>.+)/(?P<verb>invoke|invoke-with-response-stream)", "generate", "bedrock_invoke"),
    ("POST", r"/api/chat", "generate", "ollama"),
    ("GET", r"/api/tags", "models", "ollama"),
    ("GET", r"/api/version", "version", "ollama"),
    ("POST", r"/api/show", "model", "ollama"),
    ("GET", r"/api/ps", "processes", "ollama"),
    ("GET", r"/v1(?:beta|alpha)/models", "models", "gemini"),
    ("GET", r"/v1(?:beta|alpha)/models/(?P<model>.+)", "model", "gemini"),
    ("GET", r"(?:/v1)?/models", "models", "openai_chat"),
    ("GET", r"(?:/v1)?/models/(?P<model>.+)", "model", "openai_chat"),
    ("GET", r"/", "alive", "openai_chat"),
    ("GET", r"/(?:health|healthz|livez)", "alive", "openai_chat"),
    ("GET", r"/(?:ready|readyz)", "ready", "openai_chat"),
    ("GET", r"/metrics", "metrics", "openai_chat"),
    ("GET", r"/openapi\.json", "openapi", "openai_chat"),
)
_MAX_CACHED_PATH = 1024  # characters of a path that is worth caching
_ROUTES = [(method, re.compile(path), action, ROUTED[wire]) for method, path, action, wire in ROUTE_TABLE]


def match_route(method: str, path: str, headers: Container[str]) -> Route | None:
    """Return the meaning of a request's path, or None for an unknown path. Only the names of `headers` are read.

    Several protocols list their models at the same path, so there the headers decide.
    """
    route = _match_cached(method, path) if len(path) <= _MAX_CACHED_PATH else _match(method, path)
    if route is not None and (route.action == "models" or route.action == "model"):
        wire = _wire_of_headers(headers)
        return route if wire is None else Route(route.action, INGRESSES[wire], route.model)
    return route


def _wire_of_headers(headers: Container[str]) -> str | None:
    """Return the protocol whose clients send such headers, or None. google-genai lists models at `/v1/models`, too."""
    if "anthropic-version" in headers:
        return "anthropic"
    return "gemini" if "x-goog-api-key" in headers or "x-goog-api-client" in headers else None


# Paths of clients for clouds and other gateways. They mean a path of the table, some with the model as a part of it:
#
# - AzureOpenAI of the SDKs: /openai/deployments/{model}/…?api-version=…, /openai/…?api-version=… and /openai/v1/…
# - google-genai and Anthropic's SDK for Vertex AI: …/publishers/{publisher}/models/{model}:{verb}
# - prefixes below which one gateway serves several APIs: /anthropic/…, /gemini/…; and Google's /v1beta/openai/…
#
# A base URL that ends with a slash makes a double one.


_PREFIXED = re.compile(
    r"/openai/deployments/(?P<model>[^/]{1,256})(?P<own>/[^/].*)|(?:/v1(?:beta)?)?/openai(?:/v1)?(?P<openai>/[^/].*)|/(?:anthropic|gemini)(?P<other>/[^/].*)"
).fullmatch
_VERTEX = re.compile(
    r"(?:/v1(?:beta1)?)?/projects/[^/]{1,256}/locations/[^/]{1,256}/publishers/(?P<publisher>google|anthropic)/models/(?P<model>[^/:]{1,256}):(?P<verb>[A-Za-z]{1,64})"
).fullmatch
_repeated_slashes = re.compile("//+").sub


class ClientPath(NamedTuple):
    """A path of the table, and the model in the client's path, if the body should name it."""

    path: str
    model: str = ""


def resolve_client_path(path: str) -> ClientPath:
    """Return the path of the table that a client's path means."""
    path = _repeated_slashes("/", path)
    path = path.rstrip("/") or "/"
    vertex = _VERTEX(path)
    if vertex is not None and vertex["publisher"] == "google":
        return ClientPath(f"/v1beta/models/{vertex['model']}:{vertex['verb']}")
    if vertex is not None and vertex["verb"] in ("rawPredict", "streamRawPredict"):
        if vertex["model"] == "count-tokens":
            return ClientPath("/v1/messages/count_tokens")
        return ClientPath("/v1/messages", vertex["model"])
    found = _PREFIXED(path)
    if found is None:
        return ClientPath(path)
    if found["other"] is not None:
        return ClientPath(found["other"])
    return ClientPath(f"/v1{found['own'] or found['openai']}", found["model"] or "")


def _match(method: str, path: str) -> Route | None:
    """Return the route of a path, or of the path that it means; None for an unknown path."""
    route = _match_table(method, path)
    if route is None:
        meant, model = resolve_client_path(path)
        route = None if meant == path else _match_table(method, meant)
        if route is not None and model:
            return replace(route, path_model=model)
    return route


def _match_table(method: str, path: str) -> Route | None:
    """Return the route of a path of the table. Some paths have the model, and the verb of Gemini's requests a stream."""
    method = "GET" if method == "HEAD" else method
    for route_method, pattern, action, ingress in _ROUTES:
        match = pattern.fullmatch(path) if method == route_method else None
        if match is not None:
            groups = match.groupdict()
            model = groups.get("model")
            verb = groups.get("verb")
            stream = None if verb is None else verb.startswith("stream") or verb.endswith("-stream")
            return Route(action, ingress, model, stream, groups.get("id", ""), groups.get("item", ""))
    return None


_match_cached = lru_cache(1024)(_match)


def allowed_methods(path: str) -> list[str]:
    """List the methods of a path."""
    paths = (path, resolve_client_path(path).path)
    return sorted({method for method, pattern, _, _ in _ROUTES if any(map(pattern.fullmatch, paths))})


def guess_ingress(path: str, headers: Container[str]) -> Ingress:
    """Choose the protocol of the error for an unknown path: by the headers, by the path, or OpenAI's."""
    wire = _wire_of_headers(headers)
    if wire == "anthropic" or path.startswith("/v1/messages"):
        return INGRESSES["anthropic"]
    if "/interactions" in path:
        return INGRESSES["gemini_interactions"]
    if wire == "gemini" or path.startswith(("/v1beta", "/v1alpha")):
        return INGRESSES["gemini"]
    if path.startswith("/api/"):
        return INGRESSES["ollama"]
    if path.startswith("/v2/"):
        return INGRESSES["cohere"]
    if path.startswith("/model/"):
        return INGRESSES["bedrock"]
    return INGRESSES["openai_responses" if path.endswith("/responses") else "openai_chat"]


@lru_cache
def encode_overload(ingress: Ingress) -> tuple[int, HeaderPairs, bytes]:
    """Encode a 503 with `retry-after`; its status is 529 for Anthropic's clients, as their servers answer."""
    status, body, headers = ingress.encode_error(fault_from(Overloaded()))
    return status, header_pairs({"content-type": "application/json", **headers}), to_bytes(body)


# RFC 9110, 15.5.22: a 426 names the protocol that is required, which is the one in use
UPGRADE_HEADERS: HeaderPairs = [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")]
UPGRADE_REQUIRED = 426  # the status


def unknown_path_error(http_exchange: HttpExchange, relayed: Sequence[str] = ()) -> RequestRefused:
    """Return the error 405 if the path exists with other methods, 404 if it does not exist.

    A WebSocket handshake for another path, or one that the server has not taken, gets 426: Codex then uses HTTP at once, but
    retries for seconds after any other status (core/src/client.rs of openai/codex; 7 attempts of Codex 0.169.0 after a 405).
    `relayed` are methods of the path among the endpoints besides chats.
    """
    methods = sorted({*allowed_methods(http_exchange.path), *relayed})
    protocols = http_exchange.headers.get("upgrade", "").lower().split(",")
    if http_exchange.method == "GET" and "websocket" in map(str.strip, protocols):
        hint = f"use {' or '.join(methods or ['POST'])} over HTTP"
        return RequestRefused("WebSockets are not supported here", hint=hint, status=UPGRADE_REQUIRED)
    if methods:
        message = f"{http_exchange.method} is not allowed for this path"
        return RequestRefused(message, hint=f"use {' or '.join(methods)}", status=405)
    below = f" below {http_exchange.root_path}" if http_exchange.root_path else ""
    return RequestRefused(f"unknown path {http_exchange.path[:200]}", hint=f"use {PATHS}{below}", status=404)
